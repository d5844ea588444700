#!/bin/sh
# Container redis, preStop: a primary hands over before it ends. It takes 40 seconds at most.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"
. "$config_dir/voters.sh"

# lap notes how many milliseconds have passed when a part is done.
lap() {
	uptime
	laps="$laps $1 $(((now - began) * 10))"
}

# done_with ends the hook. The message stays as the termination message of the server.
done_with() {
	lap end
	tell "preStop: $1 (ms:$laps)"
	printf yes >"$stopped"
	exit 0
}

# followers sets candidates to the voting Pods whose replicas are online.
followers() {
	candidates=
	here info replication
	for v in $voters; do
		[ "$v" != "$me" ] || continue
		case $answer in
		*"ip=$v,port=$port,state=online"*) candidates="$candidates $v" ;;
		esac
	done
}

# choose_voter sets voter to one that names this Pod: another one if possible, because it does not end with this Pod.
choose_voter() {
	voter=
	for v in $voters; do
		[ "$v" != "$me" ] || continue
		vote "$v"
		if [ "$voted" = "$me" ]; then
			voter=$v
			return
		fi
	done
	vote "$me"
	[ "$voted" != "$me" ] || voter=$me
}

# calm reports whether the voter is in no failover. It would refuse another one.
calm() {
	call "$voter" $voter_port sentinel master $master
	attribute flags
	[ "$value" = master ]
}

# look sets usable to the candidates that the voter would promote, and refreshed to the age in milliseconds of what it knows
# about the one it has asked last. That is the one with the highest offset, as far as the voter knows, and so the one it takes.
look() {
	usable=
	refreshed=
	call "$voter" $voter_port sentinel replicas $master
	key=
	set -f
	for word in $answer; do
		case $key in
		ip) ip=$word ;;
		flags) flags=$word ;;
		info-refresh) age=$word ;;
		slave-priority) consider "$word" ;;
		esac
		key=$word
	done
	set +f
}

consider() {
	case " $candidates " in
	*" $ip "*) ;;
	*) return ;;
	esac
	[ "$flags" = slave ] && [ "$1" -gt 0 ] || return
	usable="$usable $ip"
	[ -n "$refreshed" ] && [ "$refreshed" -le "$age" ] || refreshed=$age
}

# await_usable waits for 15 seconds at most until the voter would promote a candidate. Writes go on. Replicas that end as
# well, as when all Pods are deleted, are not waited for.
await_usable() {
	i=0
	while [ $i -lt 60 ]; do
		usable=
		! calm || look
		[ -z "$usable" ] || return 0
		i=$((i + 1))
		sleep 0.25
		followers
		[ -n "$candidates" ] || return 1
	done
	return 1
}

# align waits for the moment to begin. A voter sees a promotion when it asks the replica the next time, one second after the
# last: a begin half a second before that saves most of the wait.
align() {
	[ "$ALIGN" = true ] || return 0
	i=0
	while [ $i -lt 30 ]; do
		[ "${refreshed:-0}" -lt "$ALIGN_FROM" ] || [ "$refreshed" -gt "$ALIGN_TO" ] || return 0
		i=$((i + 1))
		sleep 0.03
		look
	done
}

# even waits until every usable replica has all that this primary has acknowledged, for some seconds at most. It asks them:
# what the primary knows of its replicas is up to a second old.
even() {
	here info replication
	field master_repl_offset
	offset=$value
	i=0
	while [ $i -lt 100 ]; do
		i=$((i + 1))
		behind=
		for v in $usable; do
			call "$v" "$port" info replication
			field slave_repl_offset
			[ "${value:-0}" -ge "$offset" ] || behind="$behind $v"
		done
		[ -n "$behind" ] || return 0
		sleep 0.02
	done
	return 1
}

# promote has the voter promote a replica and sets moved to it. Once the voter has said OK it is never asked again: that
# would be another failover.
promote() {
	moved=
	asked=
	i=0
	while [ $i -lt 100 ]; do
		if [ -z "$asked" ] && [ $((i % 10)) = 0 ]; then
			call "$voter" $voter_port sentinel failover $master
			case $answer in
			*OK*) asked=yes ;;
			*) say "preStop: $answer" ;;
			esac
		fi
		i=$((i + 1))
		sleep 0.05
		vote "$voter"
		if [ -n "$voted" ] && [ "$voted" != "$me" ]; then
			moved=$voted
			return 0
		fi
	done
	return 1
}

laps=
uptime
began=$now
printf yes >"$leaving"
locate || done_with "the addresses of the Pods are not recorded"
here info replication
case $answer in
*role:master*) ;;
*)
	here config set replica-priority 0
	done_with "not the primary"
	;;
esac
followers
[ -n "$candidates" ] || done_with "no replica to hand over to"
choose_voter
[ -n "$voter" ] || done_with "no sentinel takes this Pod for the primary"
await_usable || done_with "no replica that the sentinels would promote"
lap usable
align
lap aligned
# A PING that reaches the other replicas, and not the one that has just been promoted, is a history that this one does not have:
# they would copy everything, and it takes no write before one of them has.
here config set repl-ping-replica-period 3600
here client pause 40000 write
if ! even; then
	# Promoting a replica that lacks acknowledged writes would lose them. On SIGTERM the server waits for its replicas.
	here client unpause
	done_with "a replica lags, ending without a hand-over"
fi
lap even
promote || done_with "no replica took over"
lap moved
# The new primary takes no write before a replica follows it. The voter would say so too, later.
for v in $candidates; do
	[ "$v" = "$moved" ] || call "$v" "$port" replicaof "$moved" "$port"
done
# Clients that wait are sent away, and come back to the new primary.
here replicaof "$moved" "$port"
here client kill type normal
done_with "handed over to $moved"
