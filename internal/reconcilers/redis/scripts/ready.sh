#!/bin/sh
# Readiness: the server answers and takes writes, and a replica is linked to its primary and in sync.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"

# unready MESSAGE ends the probe; the message becomes an event of the Pod, and from there a condition of the Redis.
unready() {
	printf '%s\n' "$1"
	exit 1
}

answer=$(ask -h 127.0.0.1 -p "$port" ping)
case $answer in
*PONG) ;;
*LOADING*) unready "The server is loading its data" ;;
*MISCONF*)
	# The answer names a failed snapshot first, even if the append-only file cannot be written either.
	case $(ask -h 127.0.0.1 -p "$port" info persistence) in
	*aof_last_write_status:err*) unready "DiskFull: the append-only file cannot be written, so writes are refused: $answer" ;;
	*aof_enabled:1*) unready "SnapshotFailed: the last snapshot failed, so writes are refused; the append-only file has all data: $answer" ;;
	*) unready "SnapshotFailed: the last snapshot failed, so writes are refused: $answer" ;;
	esac
	;;
"" | *"Could not connect"*) unready "The server does not answer" ;;
*) unready "The server answers: $answer" ;;
esac
[ "$ordinal" = 0 ] && exit 0
case $(ask -h 127.0.0.1 -p "$port" info replication) in
*master_link_status:up*) exit 0 ;;
*) unready "The replica is not in sync with its primary" ;;
esac
