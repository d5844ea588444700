# Sourced by readiness probes: ends the probe unless the server answers and takes writes, and sets info to what it says of
# itself.

# The state of the append-only file, with the number of writes that were refused up to then: "whole:N", "rewriting:N", or
# nothing when it may have a gap. To empty a file takes no room.
appended=${FLOTILLA_DATA_DIR:-/data}/.flotilla.appended
note() { printf '%s' "$1" 2>/dev/null >"$appended"; }

# unready MESSAGE ends the probe; the message becomes an event of the Pod, and from there a condition of the Redis.
unready() {
	printf '%s\n' "$1"
	exit 1
}

# number prints the number that follows $2 in $1; nothing without it.
number() {
	case $1 in
	*"$2"*)
		rest=${1#*"$2"}
		printf '%s' "${rest%%[!0-9]*}"
		;;
	esac
}

# rewrite has the append-only file rewritten after writes were refused, and is not ready before that. Servers open the file
# that a rewrite begins without O_APPEND: after a write without room they cut the file back and write on behind the cut.
# The next start fails at the gap. The memory has everything, and a rewrite takes it from there.
rewrite() {
	case $info in
	*aof_enabled:1*) ;;
	*) return ;;
	esac
	refused=$(number "$info" errorstat_MISCONF:count=)
	state=
	[ ! -e "$appended" ] || IFS= read -r state <"$appended"
	[ "$state" != "whole:$refused" ] || return
	why="DiskFull: the append-only file is being rewritten, because a restart could not read what follows a write that the volume had no room for"
	case $info in
	*aof_rewrite_in_progress:1* | *aof_rewrite_scheduled:1*) unready "$why" ;;
	*aof_last_bgrewrite_status:ok*)
		if [ "$state" = "rewriting:$refused" ]; then
			note "whole:$refused"
			return
		fi
		;;
	# One that fails may fill the volume for a moment: once a minute is enough.
	*)
		uptime=$(number "$info" uptime_in_seconds:)
		[ $((${uptime:-0} % 60)) -lt 3 ] || unready "$why; the last rewrite failed"
		;;
	esac
	case $(ask -h 127.0.0.1 -p "$port" bgrewriteaof) in
	*started* | *scheduled*) note "rewriting:$refused" ;;
	esac
	unready "$why"
}

# sound reports whether PING would be answered with PONG as well. Most of what a probe costs is the clients that it starts.
sound() {
	case $info in
	*loading:1* | *_status:err*) return 1 ;;
	*role:*) return 0 ;;
	*) return 1 ;;
	esac
}

info=$(ask -h 127.0.0.1 -p "$port" info server persistence errorstats replication)
answer=PONG
sound || answer=$(ask -h 127.0.0.1 -p "$port" ping)
case $answer in
*PONG) rewrite ;;
*LOADING*) unready "The server is loading its data" ;;
*MISCONF*)
	# The answer names a failed snapshot first, even if the append-only file cannot be written either.
	case $info in
	*aof_last_write_status:err*)
		note ""
		unready "DiskFull: the append-only file cannot be written, so writes are refused: $answer"
		;;
	*aof_enabled:1*) unready "SnapshotFailed: the last snapshot failed, so writes are refused; the append-only file has all data: $answer" ;;
	*) unready "SnapshotFailed: the last snapshot failed, so writes are refused: $answer" ;;
	esac
	;;
"" | *"Could not connect"*) unready "The server does not answer" ;;
*) unready "The server answers: $answer" ;;
esac
