#!/usr/bin/env bash
# Packs the images of `make e2e` in E2E_DIR/images without a container engine: the sandbox, Redis from Debian's packages
# under two names, so that there is something to update to, and the manager. Each is packed once per content.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
: "${E2E_DIR:?}"
IMAGES=$E2E_DIR/images
umask 022
mkdir -p "$IMAGES"

# packages lists the Debian packages that make a Redis here: the server, its client and what the machine lacks of theirs.
packages() {
	apt-get install --simulate --no-install-recommends redis-server redis-tools 2>/dev/null | awk '$1 == "Inst" {print $2}' |
		cat - <(printf 'redis-server\nredis-tools\ndash\n') | sort -u
}

# fetch_debs downloads the packages without installing anything on this machine.
fetch_debs() {
	local list
	cd "$IMAGES/debs"
	mapfile -t list < <(packages)
	apt-get download "${list[@]}" && return
	apt-get update
	mapfile -t list < <(packages)
	apt-get download "${list[@]}"
}

# copy_libraries copies the shared libraries of the programs, from the packages or from this machine.
copy_libraries() { # <packages' root> <image's root> <program...>
	local from=$1 to=$2 library
	shift 2
	LD_LIBRARY_PATH=$from/usr/lib/x86_64-linux-gnu:$from/lib/x86_64-linux-gnu:$from/usr/lib/aarch64-linux-gnu:$from/lib/aarch64-linux-gnu \
		ldd "$@" >"$IMAGES/ldd"
	! grep 'not found' "$IMAGES/ldd" >&2 || die 'Redis lacks shared libraries'
	awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\/.*\/?ld-/ {print $1}' "$IMAGES/ldd" | sort -u | while read -r library; do
		if [[ $library == */ld-* ]]; then
			mkdir -p "$to$(dirname "$library")"
			cp -L "$library" "$to$library"
		else
			cp -L "$library" "$to/usr/lib/"
		fi
	done
}

redis_root() {
	local from=$IMAGES/debs/root to=$IMAGES/redis deb
	rm -rf "$IMAGES/debs" "$to"
	mkdir -p "$IMAGES/debs/root" "$to"/{usr/bin,usr/lib,bin,etc,data,tmp,run,proc,sys,dev}
	fetch_debs >"$IMAGES/apt.log" 2>&1 || { tail -n 5 "$IMAGES/apt.log" >&2 && die "apt-get cannot download Debian's redis-server: the log is $IMAGES/apt.log"; }
	for deb in "$IMAGES"/debs/*.deb; do dpkg-deb -x "$deb" "$from"; done
	# The server is one program under several names.
	cp -L "$from/usr/bin/redis-check-rdb" "$to/usr/bin/redis-server"
	cp -L "$from/usr/bin/redis-cli" "$to/usr/bin/redis-cli"
	cp -L "$(find "$from" -name dash -type f -perm -u+x | head -n 1)" "$to/bin/sh"
	copy_libraries "$from" "$to" "$to/usr/bin/redis-server" "$to/usr/bin/redis-cli" "$to/bin/sh"
	printf 'root:x:0:0:root:/:/bin/sh\nredis:x:999:999:redis:/data:/bin/sh\n' >"$to/etc/passwd"
	printf 'root:x:0:\nredis:x:999:\n' >"$to/etc/group"
	printf '/usr/lib\n' >"$to/etc/ld.so.conf"
	/sbin/ldconfig -r "$to"
	chroot "$to" /usr/bin/redis-server --version >"$IMAGES/redis.version"
	rm -rf "$IMAGES/debs"
}

pack() { # <folder> <file> <name> <entrypoint> <user> <version>
	"$BIN/image" -root "$IMAGES/$1" -out "$IMAGES/$2.tar" -name "$3" -entrypoint "$4" -user "$5" -version "$6"
}

if [[ ! -s $IMAGES/redis.tar || ! -s $IMAGES/redis-next.tar ]]; then
	redis_root
	pack redis redis-next localhost/redis:next /usr/bin/redis-server 999:999 next
	pack redis redis localhost/redis:e2e /usr/bin/redis-server 999:999 e2e
fi

program() { # <binary> <name>
	cmp -s "$BIN/$1" "$IMAGES/$1/$1" && [[ -s $IMAGES/$1.tar ]] && return
	mkdir -p "$IMAGES/$1/tmp"
	cp "$BIN/$1" "$IMAGES/$1/$1"
	pack "$1" "$1" "$2" "/$1" 65532:65532 e2e
}
program pause localhost/pause:e2e
program manager localhost/flotilla-manager:e2e
