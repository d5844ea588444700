#!/bin/sh
# Container redis: waits until the voters name a primary, decides what this Pod is, and becomes the server. While it waits
# nothing listens, which the voters see as a server that is down.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"
. "$config_dir/voters.sh"
. "$config_dir/volume.sh"
# The first process of a container ignores signals that it does not ask for.
trap 'exit 143' TERM

conf=$run_dir/redis.conf

# wait_because keeps the container alive and not ready, with the reason for both the kubelet and the API server.
wait_because() {
	[ "${reason:-}" = "$1" ] || tell "$1"
	reason=$1
	printf '%s\n' "$1" >"$hold"
	sleep 0.3
}

# promotable tells whether another voting Pod could take over at once: it is a replica that was in sync.
promotable() {
	for v in $voters; do
		[ "$v" != "$me" ] || continue
		call "$v" "$port" info replication
		case $answer in
		*role:slave*)
			field slave_priority
			[ "${value:-0}" -le 0 ] || return 0
			;;
		esac
	done
	return 1
}

# hand_over asks for a promotion now and then: the voters refuse while another one is under way.
hand_over() {
	if [ $((tries % $1)) = 0 ] && failover; then granted=yes; fi
	tries=$((tries + 1))
}

# found sets peers to whether other Pods hold keys: yes, no or unknown.
found() {
	peers=no
	for a in $ADDRESSES; do
		[ "$a" != "$me" ] || continue
		call "$a" "$port" info keyspace
		case $answer in
		*keys=*)
			peers=yes
			return
			;;
		*LOADING*) peers=unknown ;;
		esac
	done
}

# with_data decides for a Pod that the voters call the primary and that has its data. A replica that was in sync takes
# writes at once; a primary that starts again cannot before a replica has copied everything. Without such a replica no
# Pod has more data than this one. When a promotion is granted there may be none any more, and the voters name the next
# primary soon: a second one would have to be demoted, with the clients that have found it meanwhile.
with_data() {
	if [ $tries -lt 20 ] && { [ -n "$granted" ] || promotable; }; then
		hand_over 5
		why="Waiting: handing over to a replica that is in sync"
	else
		role=primary
	fi
}

# without_data decides for a Pod that the voters call the primary and that has nothing to serve. Replicas would follow it
# and drop what they have.
without_data() {
	if [ "$FORCE_PRIMARY" = "$ordinal" ]; then
		role=primary
	elif promotable; then
		hand_over 7
		why="EmptyPrimaryBlocked: ${problem:-the volume of $pod is empty}; handing over to a replica"
	elif [ -n "$problem" ]; then
		why="EmptyPrimaryBlocked: $problem"
	elif [ "$INITIALIZED" = true ] || { [ "$GUARD" = true ] && [ "$ordinal" != 0 ]; }; then
		why="EmptyPrimaryBlocked: the volume of $pod is empty but this Redis had data"
	else
		found
		case $peers in
		no) role=primary ;;
		yes) why="EmptyPrimaryBlocked: the volume of $pod is empty but a peer holds data" ;;
		*) why="Waiting: a peer is loading its data" ;;
		esac
	fi
}

# unknown has the server wait for the reason of the voter beside it, if that knows of nothing to monitor.
unknown() {
	[ -s "$seeking" ] || return 0
	IFS= read -r line <"$seeking" || :
	case $line in
	TopologyUnknown*) why=$line ;;
	esac
}

# decide sets role, or why this Pod has to wait.
decide() {
	role=
	why=
	if [ "$AUTH" = Password ] && [ -z "$password" ]; then
		# Without the password it is told to have, a server would be open to everybody.
		tell "Waiting: the password is not there"
		exit 75
	fi
	if ! locate; then
		why="Waiting: the addresses of the Pods are not recorded yet"
		return
	fi
	majority
	inspect
	if [ -z "$primary" ] && [ "$MIGRATING" = true ]; then
		# Voters appear one by one while a Redis changes its mode. Until two agree, ordinal 0 is what it was.
		address_of 0
		primary=$address
		if [ "$primary" = "$me" ] && [ -z "$problem" ] && has_data; then
			role=primary
			return
		fi
	fi
	if [ -z "$primary" ]; then
		why="Waiting: fewer than two sentinels agree on a primary"
		unknown
	elif [ "$primary" != "$me" ]; then
		role=replica
	elif [ -z "$problem" ] && has_data; then
		with_data
	else
		without_data
	fi
}

# directives prints the configuration: the common part, and what differs from Pod to Pod.
directives() {
	while IFS= read -r line; do
		printf '%s\n' "$line"
	done <"$config_dir/redis.conf"
	printf 'port %s\ndir "%s"\nreplica-announce-ip %s\nreplica-announce-port %s\n' "$port" "$data_dir" "$me" "$port"
	# A replica is not promotable before its keeper has seen it in sync.
	printf 'replica-priority 0\nmin-replicas-to-write %s\nmin-replicas-max-lag %s\nshutdown-on-sigterm force\n' "$MIN_REPLICAS" "$MAX_LAG"
	secrets
	# With None a server would still load a snapshot of an earlier mode, at every start.
	[ "$PERSISTENCE" != None ] || printf 'dbfilename unsaved.rdb\n'
	# Sentinels know the Pods that vote only. Whom the others follow is up to their keepers.
	[ "$ordinal" -lt 3 ] || printf 'replica-announced no\n'
	[ "$role" = primary ] || printf 'replicaof %s %s\n' "$primary" "$port"
}

: >"$stopped"
: >"$leaving"
tries=0
granted=
role=
until [ -n "$role" ]; do
	decide
	[ -z "$why" ] || wait_because "$why"
done
: >"$hold"
mark
say "starting as $role, the primary is $primary"
# Sentinel has servers rewrite their configuration, which is possible in a file only: this one is in memory.
(umask 077 && directives >"$conf")
exec "$server" "$conf"
