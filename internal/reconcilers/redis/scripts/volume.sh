# Sourced by the scripts that start a server: what the volume of this Pod holds, and what is noted there. Needs settings.env.

data_dir=${FLOTILLA_DATA_DIR:-/data}
marker=$data_dir/.flotilla
# Not empty when the last server here had persistence None and left what is on the volume behind.
unsaved=$data_dir/.flotilla.unsaved

if command -v valkey-server >/dev/null 2>&1; then
	server=valkey-server
else
	server=redis-server
fi

# inspect sets aof and rdb to whether there is such a file, and problem to why the server would ignore what is there: it
# loads the file of its own persistence mode only.
inspect() {
	aof=false
	rdb=false
	problem=
	if [ -s "$data_dir/appendonlydir/appendonly.aof.manifest" ] || [ -s "$data_dir/appendonly.aof" ]; then
		aof=true
	fi
	[ -s "$data_dir/dump.rdb" ] && rdb=true
	if [ -s "$unsaved" ] && [ "$aof:$rdb" != false:false ]; then
		problem="the volume of $pod has only data of before persistence None, which would be served again"
		return
	fi
	case $PERSISTENCE:$aof:$rdb in
	AOF*:false:true) problem="the volume of $pod has an RDB file but no append-only file, which persistence $PERSISTENCE loads" ;;
	RDB:true:*) problem="the volume of $pod has an append-only file, which persistence RDB does not load" ;;
	esac
}

# has_data tells, after inspect, whether this volume holds what the persistence mode loads. An RDB file only appears at the
# first save, so in that mode the marker of an earlier start counts too; an append-only file is there from the first start on.
has_data() {
	case $PERSISTENCE in
	AOF*) [ "$aof" = true ] ;;
	*) [ "$rdb" = true ] || { [ -e "$marker" ] && [ ! -s "$unsaved" ]; } ;;
	esac
}

# mark notes on the volume that a server starts, and how.
mark() {
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
	# The server opens its append-only file such that nothing it writes can leave a gap there: see writable.sh.
	printf 'whole:\n' 2>/dev/null >"$marker.appended"
}
