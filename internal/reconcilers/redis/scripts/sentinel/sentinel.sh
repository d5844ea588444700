#!/bin/sh
# Container sentinel: ordinals 0, 1 and 2 vote, the others idle. What a voter knows outlives its Pod on the volume, without
# the passwords, which are in memory only.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"
. "$config_dir/voters.sh"
. "$config_dir/knowledge.sh"
# The first process of a container ignores signals that it does not ask for.
trap 'exit 143' TERM

conf=$run_dir/sentinel.conf

# seek sets seed, and its epoch, from the first that tells who is the primary: other voters, servers, the volume, a person.
seek() {
	seed=
	epoch=0
	seek_voters
	[ -z "$seed" ] || return 0
	seek_servers
	[ -z "$seed" ] || return 0
	if [ -n "$kept_ordinal" ]; then
		address_of "$kept_ordinal"
		seed=$address
		epoch=$kept_epoch
		source="the volume"
	elif [ -n "$FORCE_PRIMARY" ]; then
		address_of "$FORCE_PRIMARY"
		seed=$address
		source="a person"
	elif [ "$INITIALIZED" != true ] || [ "$MIGRATING" = true ]; then
		address_of 0
		seed=$address
		source="the first start"
	fi
}

# seek_voters takes the word of the voter with the highest epoch.
seek_voters() {
	best=-1
	for v in $voters; do
		[ "$v" != "$me" ] || continue
		vote "$v"
		[ -n "$voted" ] || continue
		epoch_of "$v"
		if [ "$epoch" -gt "$best" ]; then
			seed=$voted
			best=$epoch
			source="sentinel $v"
		fi
	done
	epoch=$best
}

# seek_servers takes a primary that has replicas.
seek_servers() {
	epoch=0
	for a in $ADDRESSES; do
		call "$a" "$port" info replication
		case $answer in
		*role:master*)
			field connected_slaves
			[ "${value:-0}" -lt 1 ] || {
				seed=$a
				source="redis $a"
			}
			;;
		esac
	done
}

# learn sets known: what the container knew before it was started again, what the volume has, or who seek finds.
learn() {
	known=
	[ ! -s "$conf" ] || known=$(knowledge "$conf")
	case $known in
	*"sentinel monitor"*) return ;;
	esac
	recall
	case $known in
	*"sentinel monitor"*) return ;;
	esac
	until seek && [ -n "$seed" ]; do
		why="TopologyUnknown: no sentinel, no server and no volume knows which Pod was the primary"
		say "$why"
		printf '%s\n' "$why" >"$seeking"
		sleep 1
		locate || :
	done
	say "monitoring $seed, told by $source"
	known="sentinel monitor $master $seed $port 2"
	[ "$epoch" -lt 1 ] || known="$known
sentinel config-epoch $master $epoch
sentinel current-epoch $epoch"
}

# credentials prints the passwords: of servers, of other voters, and of this one.
credentials() {
	if [ -z "$password" ]; then
		printf 'protected-mode no\n'
		return
	fi
	quote "${previous:-$password}"
	printf 'sentinel auth-pass %s "%s"\nsentinel sentinel-pass "%s"\nprotected-mode yes\n' $master "$quoted" "$quoted"
	if [ -n "$previous" ]; then
		old=$quoted
		quote "$password"
		printf 'user default on sanitize-payload ~* &* +@all ">%s" ">%s"\n' "$quoted" "$old"
	else
		printf 'requirepass "%s"\n' "$quoted"
	fi
}

# directives prints the configuration. The line that says whom to monitor comes before those that belong to it.
directives() {
	identity=$1
	printf 'port %s\nbind * -::*\ndaemonize no\nlogfile ""\ndir "%s"\n' $voter_port "$run_dir"
	printf 'sentinel myid %s\nsentinel resolve-hostnames no\nsentinel announce-hostnames no\nsentinel deny-scripts-reconfig yes\n' "$identity"
	printf 'sentinel announce-ip %s\nsentinel announce-port %s\n' "$me" $voter_port
	printf '%s\n' "$known" | while IFS= read -r line; do
		case $line in
		"sentinel monitor"*) printf '%s\n' "$line" ;;
		esac
	done
	printf 'sentinel down-after-milliseconds %s %s\n' $master "$DOWN_AFTER"
	printf 'sentinel failover-timeout %s %s\n' $master "$FAILOVER_TIMEOUT"
	# One at a time, a replica that is gone would keep the others from following for ten seconds, without writes.
	printf 'sentinel parallel-syncs %s 9\n' $master
	# A primary that loads for longer is replaced.
	printf 'sentinel master-reboot-down-after-period %s %s\n' $master "$DOWN_AFTER"
	printf '%s\n' "$known" | while IFS= read -r line; do
		case $line in
		"sentinel monitor"* | '') ;;
		*) printf '%s\n' "$line" ;;
		esac
	done
	credentials
}

while [ "$ordinal" -ge 3 ]; do
	sleep 1
done
if [ "$AUTH" = Password ] && [ -z "$password" ]; then
	tell "Waiting: the password is not there"
	exit 75
fi
printf yes >"$seeking"
until locate; do
	say "Waiting: the addresses of the Pods are not recorded yet"
	sleep 1
done
learn
: >"$seeking"
set -- $VOTER_IDS
shift "$ordinal"
(umask 077 && directives "$1" >"$conf")
/bin/sh "$config_dir/voter-links.sh" &
if command -v valkey-server >/dev/null 2>&1; then
	exec valkey-server "$conf" --sentinel
fi
exec redis-server "$conf" --sentinel
