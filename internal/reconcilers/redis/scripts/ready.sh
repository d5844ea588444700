#!/bin/sh
# Readiness: the server answers and can write to its volume, and a replica is linked to its primary and in sync.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"

# unready MESSAGE ends the probe; the message becomes an event of the Pod.
unready() {
	printf '%s\n' "$1"
	exit 1
}

case $(ask -h 127.0.0.1 -p "$port" ping) in
*PONG) ;;
*LOADING*) unready "The server is loading its data" ;;
*) unready "The server does not answer PONG" ;;
esac
case $(ask -h 127.0.0.1 -p "$port" info persistence) in
*aof_last_write_status:err*) unready "DiskFull: the append-only file cannot be written, so that writes are refused" ;;
*rdb_last_bgsave_status:err*aof_enabled:0*) unready "DiskFull: the last snapshot could not be written, so that writes are refused" ;;
esac
[ "$ordinal" = 0 ] && exit 0
case $(ask -h 127.0.0.1 -p "$port" info replication) in
*master_link_status:up*) exit 0 ;;
*) unready "The replica is not in sync with its primary" ;;
esac
