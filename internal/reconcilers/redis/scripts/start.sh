#!/bin/sh
# Starts the server of one Pod: ordinal 0 as the primary, the others as replicas of it.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"
. "$config_dir/volume.sh"
. "$config_dir/settings.env"
. "${FLOTILLA_RECORD_DIR:-/run/flotilla/record}/topology.env"

termination_log=${FLOTILLA_TERMINATION_LOG:-/dev/termination-log}

# Exit codes: a person has to decide, or trying again will do.
blocked=78
waiting=75

# stop CODE MESSAGE ends the container; the message becomes its termination message.
stop() {
	printf '%s\n' "$2" >"$termination_log"
	printf '%s\n' "$2" >&2
	exit "$1"
}

# guard refuses to serve nothing where there was something: replicas would follow and drop their data.
guard() {
	inspect
	[ -z "$problem" ] || stop $blocked "EmptyPrimaryBlocked: $problem"
	has_data && return

	if [ "$INITIALIZED" = true ]; then
		stop $blocked "EmptyPrimaryBlocked: the volume of $pod is empty but this Redis had data"
	fi
	for peer in $PEERS; do
		case $(ask -h "$peer" -p "$port" info keyspace) in
		*keys=*) stop $blocked "EmptyPrimaryBlocked: the volume of $pod is empty but $peer holds data" ;;
		*LOADING*) stop $waiting "Waiting: $peer is loading its data" ;;
		"# Keyspace"* | *"Could not connect"*) ;;
		*) stop $waiting "Waiting: $peer does not say whether it holds data" ;;
		esac
	done
}

# directives prints what differs from Pod to Pod, and the secrets.
directives() {
	printf 'port %s\n' "$port"
	printf 'dir "%s"\n' "$data_dir"
	secrets
	# With None a server would still load a snapshot of an earlier mode, at every start.
	[ "$PERSISTENCE" != None ] || printf 'dbfilename unsaved.rdb\n'
	# A replica that has just copied its primary would not end before its own first append-only file is written, and be
	# killed instead. All that it has is on the primary.
	[ "$ordinal" = 0 ] || printf 'replicaof %s %s\nshutdown-on-sigterm force\n' "$PRIMARY_HOST" "$port"
}

# Without the password it is told to have, a server would be open to everybody.
if [ "$AUTH" = Password ] && [ -z "$password" ]; then
	stop $waiting "Waiting: the password is not there"
fi
if [ "$ordinal" = 0 ] && [ "$GUARD" = true ] && [ "$FORCE_EMPTY_PRIMARY" != true ]; then
	guard
fi
mark

# On standard input nothing secret is on disk or in the arguments.
exec "$server" "$config_dir/redis.conf" - <<EOF
$(directives)
EOF
