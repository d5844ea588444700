#!/usr/bin/env bash
# Packs the images of `make e2e` in E2E_DIR/images without a container engine: the sandbox, Redis from Debian's packages
# under two names, so that there is something to update to, HAProxy, Redis 8 and Valkey where they can be had, and the
# manager. Each is packed once per content.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
: "${E2E_DIR:?}"
IMAGES=$E2E_DIR/images
umask 022
mkdir -p "$IMAGES"

# apt runs an apt command with the machine's sources, or with those of Debian 13 and lists of its own once in_trixie was
# called. Nothing counts as installed: an image consists of packages only, down to the C library.
: >"$IMAGES/installed"
APT_OPTIONS=(-o "Dir::State::status=$IMAGES/installed" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
apt() { "apt-$1" "${APT_OPTIONS[@]}" "${@:2}"; }

# in_trixie looks in Debian 13, whatever this machine is: it has Redis 8 and Valkey. It fails where that is out of reach.
in_trixie() {
	mkdir -p "$IMAGES/apt/lists/partial"
	printf 'deb http://deb.debian.org/%s main\n' 'debian trixie' 'debian-security trixie-security' >"$IMAGES/apt/sources.list"
	APT_OPTIONS+=(-o Dir::Etc::sourceparts=- -o "Dir::Etc::sourcelist=$IMAGES/apt/sources.list" -o "Dir::State::lists=$IMAGES/apt/lists")
	apt get update --error-on=any >"$IMAGES/apt.log" 2>&1
}

# packages lists the Debian packages that a server consists of: itself, its client, a shell, sleep and timeout, and
# libraries.
packages() { # <engine>
	local programs=("$1-server" "$1-tools")
	[[ $1 != haproxy ]] || programs=(haproxy)
	apt get install --simulate --no-install-recommends "${programs[@]}" dash coreutils 2>/dev/null | awk '$1 == "Inst" {print $2}' |
		grep -E "^(lib|zlib|dash$|coreutils$|$1)" | grep -v '^libperl'
}

# fetch_debs downloads the packages of a server without installing anything on this machine.
fetch_debs() { # <engine>
	local list
	cd "$IMAGES/debs"
	mapfile -t list < <(packages "$1")
	[[ ! ${list[*]} ]] || { apt get download "${list[@]}" && return; }
	apt get update
	mapfile -t list < <(packages "$1")
	apt get download "${list[@]}"
}

# copy_libraries copies what programs of the packages are linked with, as the packages' own loader finds it.
copy_libraries() { # <packages' root> <image's root> <program...>
	local from=$1 to=$2 loader program name library
	loader=$(find "$from" -name 'ld-linux*' | sort | head -n 1)
	for program in "${@:3}"; do
		"$loader" --library-path "$(find "$from" -type d -path '*/lib/*-linux-gnu' -printf '%p:')" --list "$program" >"$IMAGES/linked"
		while read -r name _ library _; do
			[[ $library == "$from"/* ]] || continue
			# The loader has a path of its own in the programs.
			[[ $name == /* ]] || name=/usr/lib/$name
			mkdir -p "$to$(dirname "$name")"
			cp -L "$library" "$to$name"
		done <"$IMAGES/linked"
	done
}

# programs_of copies the programs of a server from its packages.
programs_of() { # <engine> <packages' root> <image's root>
	local program
	if [[ $1 == haproxy ]]; then
		cp -L "$2/usr/sbin/haproxy" "$3/usr/bin/haproxy"
	else
		# The server is one program under several names.
		program=$2/usr/bin/$1-server
		[[ -f $program && ! -L $program ]] || program=$2/usr/bin/$1-check-rdb
		cp -L "$program" "$3/usr/bin/$1-server"
		cp -L "$2/usr/bin/$1-cli" "$3/usr/bin/$1-cli"
	fi
	cp -L "$(find "$2" -name dash -type f -perm -u+x | head -n 1)" "$3/bin/sh"
	for program in sleep timeout; do
		cp -L "$(find "$2" -name "$program" -type f -perm -u+x | head -n 1)" "$3/usr/bin/$program"
	done
}

# server_root makes the root of the image of a server in a folder.
server_root() { # <engine> <folder>
	local engine=$1 from=$IMAGES/debs/root to=$IMAGES/$2 deb
	rm -rf "$IMAGES/debs" "$to"
	mkdir -p "$IMAGES/debs/root" "$to"/{usr/bin,usr/lib,bin,etc,data,tmp,run,proc,sys,dev}
	(fetch_debs "$engine") >"$IMAGES/apt.log" 2>&1 || { tail -n 5 "$IMAGES/apt.log" >&2 && die "apt-get cannot download Debian's packages of $engine: the log is $IMAGES/apt.log"; }
	for deb in "$IMAGES"/debs/*.deb; do dpkg-deb -x "$deb" "$from"; done
	programs_of "$engine" "$from" "$to"
	copy_libraries "$from" "$to" "$to"/usr/bin/* "$to/bin/sh"
	printf 'root:x:0:0:root:/:/bin/sh\n%s:x:999:999:%s:/data:/bin/sh\n' "$engine" "$engine" >"$to/etc/passwd"
	printf 'root:x:0:\n%s:x:999:\n' "$engine" >"$to/etc/group"
	printf '/usr/lib\n' >"$to/etc/ld.so.conf"
	/sbin/ldconfig -r "$to"
	if [[ $engine == haproxy ]]; then
		chroot "$to" /usr/bin/haproxy -v >"$IMAGES/$2.version"
	else
		chroot "$to" "/usr/bin/$engine-server" --version >"$IMAGES/$2.version"
	fi
	chroot "$to" /bin/sh -c 'timeout 1 sleep 0'
	rm -rf "$IMAGES/debs"
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
	server_root redis redis
	pack redis redis-next localhost/redis:next /usr/bin/redis-server 999:999 next
	pack redis redis localhost/redis:e2e /usr/bin/redis-server 999:999 e2e
fi
if [[ ! -s $IMAGES/haproxy.tar ]]; then
	server_root haproxy haproxy
	pack haproxy haproxy localhost/haproxy:e2e /usr/bin/haproxy 999:999 e2e
fi
program pause localhost/pause:e2e
program manager localhost/flotilla-manager:e2e
if [[ ! -s $IMAGES/redis8.tar || ! -s $IMAGES/valkey.tar ]] && in_trixie; then
	server_root redis redis8
	pack redis8 redis8 localhost/redis:8 /usr/bin/redis-server 999:999 8
	server_root valkey valkey
	pack valkey valkey localhost/valkey:e2e /usr/bin/valkey-server 999:999 e2e
fi
