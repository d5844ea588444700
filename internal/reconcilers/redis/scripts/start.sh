#!/bin/sh
# Starts the server of one Pod: ordinal 0 as the primary, the others as replicas of it.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"
. "$config_dir/settings.env"
. "${FLOTILLA_RECORD_DIR:-/run/flotilla/record}/topology.env"

data_dir=${FLOTILLA_DATA_DIR:-/data}
termination_log=${FLOTILLA_TERMINATION_LOG:-/dev/termination-log}
marker=$data_dir/.flotilla
# Not empty when the last server here had persistence None and left what is on the volume behind.
unsaved=$data_dir/.flotilla.unsaved

# Exit codes: a person has to decide, or trying again will do.
blocked=78
waiting=75

if command -v valkey-server >/dev/null 2>&1; then
	server=valkey-server
else
	server=redis-server
fi

# stop CODE MESSAGE ends the container; the message becomes its termination message.
stop() {
	printf '%s\n' "$2" >"$termination_log"
	printf '%s\n' "$2" >&2
	exit "$1"
}

# has_data tells whether this volume holds what the persistence mode loads. An RDB file only appears at the first save,
# so in that mode the marker of an earlier start counts too; an append-only file is there from the first start on.
has_data() {
	case $PERSISTENCE in
	AOF*) [ "$aof" = true ] ;;
	*) [ "$rdb" = true ] || { [ -e "$marker" ] && [ ! -s "$unsaved" ]; } ;;
	esac
}

# guard refuses to serve nothing where there was something: replicas would follow and drop their data.
guard() {
	aof=false
	rdb=false
	if [ -s "$data_dir/appendonlydir/appendonly.aof.manifest" ] || [ -s "$data_dir/appendonly.aof" ]; then
		aof=true
	fi
	[ -s "$data_dir/dump.rdb" ] && rdb=true

	if [ -s "$unsaved" ] && [ "$aof:$rdb" != false:false ]; then
		stop $blocked "EmptyPrimaryBlocked: the volume of $pod has only data of before persistence None, which would be served again"
	fi
	# The server loads the file of its own mode only and would ignore the data in the other one.
	case $PERSISTENCE:$aof:$rdb in
	AOF*:false:true) stop $blocked "EmptyPrimaryBlocked: the volume of $pod has an RDB file but no append-only file, which persistence $PERSISTENCE loads" ;;
	RDB:true:*) stop $blocked "EmptyPrimaryBlocked: the volume of $pod has an append-only file, which persistence RDB does not load" ;;
	esac
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

# quote sets quoted to $1 in the syntax of redis.conf, without the surrounding quotes.
quote() {
	quoted=
	rest=$1
	while [ -n "$rest" ]; do
		tail=${rest#?}
		char=${rest%"$tail"}
		case $char in
		'"' | \\) quoted=$quoted\\$char ;;
		*) quoted=$quoted$char ;;
		esac
		rest=$tail
	done
}

# directives prints what differs from Pod to Pod, and the secrets.
directives() {
	printf 'port %s\n' "$port"
	printf 'dir "%s"\n' "$data_dir"
	if [ -n "$previous" ]; then
		# Both are accepted. The previous one opens every server: those that have been started with the new one accept it too.
		quote "$password"
		new=$quoted
		quote "$previous"
		printf 'protected-mode yes\nuser default on sanitize-payload ~* &* +@all ">%s" ">%s"\nmasterauth "%s"\n' "$new" "$quoted" "$quoted"
	elif [ -n "$password" ]; then
		quote "$password"
		printf 'protected-mode yes\nrequirepass "%s"\nmasterauth "%s"\n' "$quoted" "$quoted"
	else
		printf 'protected-mode no\n'
	fi
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

# A full volume need not keep the server from answering reads. If it does, this becomes its termination message.
if printf '%s\n' "$pod" >"$marker.written" 2>/dev/null; then
	: >"$marker"
else
	printf '%s\n' "DiskFull: the volume of $pod cannot be written" >"$termination_log"
fi
: >"$marker.written"
if [ "$PERSISTENCE" = None ]; then
	printf '%s\n' "$pod" >"$unsaved"
elif [ -e "$unsaved" ]; then
	: >"$unsaved"
fi
# The server opens its append-only file such that nothing it writes can leave a gap there: see ready.sh.
printf 'whole:\n' 2>/dev/null >"$marker.appended"

# On standard input nothing secret is on disk or in the arguments.
exec "$server" "$config_dir/redis.conf" - <<EOF
$(directives)
EOF
