#!/usr/bin/env bash
# Packs the images of `make e2e` in E2E_DIR/images without a container engine: the sandbox, Redis from Debian's packages
# under two names, so that there is something to update to, HAProxy, Redis 8 and Valkey where they can be had, what the
# chart in REDIS_HA needs, and the manager. Each is packed once per content.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
: "${E2E_DIR:?}"
IMAGES=$E2E_DIR/images
umask 022
DEBIAN=$IMAGES
source "$ROOT/hack/debian.sh"

# image_root makes the root of the image of a server in a folder, with the other programs that scripts of its Pods run, and
# notes its version.
image_root() { # <engine> <folder> [<package>=<path of its program>...]
	server_root "$1" "$IMAGES/$2" coreutils=/bin/sleep coreutils=/bin/timeout "${@:3}"
	chroot "$IMAGES/$2" "/usr/bin/$1-server" --version >"$IMAGES/$2.version"
}

pack() { # <folder> <file> <name> <entrypoint> <user> <version>
	"$BIN/image" -root "$IMAGES/$1" -out "$IMAGES/$2.tar" -name "$3" -entrypoint "$4" -user "$5" -version "$6"
}

program() { # <binary> <name>
	cmp -s "$BIN/$1" "$IMAGES/$1/$1" && [[ -s $IMAGES/$1.tar ]] && return
	mkdir -p "$IMAGES/$1/tmp"
	cp "$BIN/$1" "$IMAGES/$1/$1"
	pack "$1" "$1" "$2" "/$1" 65532:65532 e2e
}

if [[ ! -s $IMAGES/redis.tar || ! -s $IMAGES/redis-next.tar ]]; then
	image_root redis redis
	pack redis redis-next localhost/redis:next /usr/bin/redis-server 999:999 next
	pack redis redis localhost/redis:e2e /usr/bin/redis-server 999:999 e2e
fi
if [[ ! -s $IMAGES/haproxy.tar ]]; then
	# Beside a server, which nothing uses there.
	image_root redis haproxy haproxy=/usr/sbin/haproxy
	pack haproxy haproxy localhost/haproxy:e2e /usr/bin/haproxy 999:999 e2e
fi
if [[ ${REDIS_HA:-} && ! -s $IMAGES/peer.tar ]]; then
	image_root redis peer haproxy=/usr/sbin/haproxy busybox=/bin/busybox libc-bin=/usr/bin/getent
	ln -sf /usr/bin/busybox "$IMAGES/peer/bin/sh"
	for name in awk cat cp cut date grep head hostname mkdir mv rm sed seq sleep sort tail test timeout tr; do
		ln -sf busybox "$IMAGES/peer/usr/bin/$name"
	done
	ln -sf redis-server "$IMAGES/peer/usr/bin/redis-sentinel"
	printf 'hosts: files dns\n' >"$IMAGES/peer/etc/nsswitch.conf"
	pack peer peer localhost/redis-ha:e2e /usr/bin/redis-server 1000:1000 e2e
fi
program pause localhost/pause:e2e
program manager localhost/flotilla-manager:e2e
if [[ ! -s $IMAGES/redis8.tar || ! -s $IMAGES/valkey.tar || ! -s $IMAGES/haproxy3.tar ]] && in_trixie; then
	image_root redis redis8
	pack redis8 redis8 localhost/redis:8 /usr/bin/redis-server 999:999 8
	image_root valkey valkey
	pack valkey valkey localhost/valkey:e2e /usr/bin/valkey-server 999:999 e2e
	image_root redis haproxy3 haproxy=/usr/sbin/haproxy
	pack haproxy3 haproxy3 localhost/haproxy:3 /usr/bin/haproxy 999:999 3
fi
