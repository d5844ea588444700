#!/usr/bin/env bash
# Packs the images of `make e2e` in E2E_DIR/images without a container engine: the sandbox, Redis from Debian's packages
# under two names, so that there is something to update to, Valkey where Debian has it, and the manager. Each is packed
# once per content.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
: "${E2E_DIR:?}"
IMAGES=$E2E_DIR/images
umask 022
mkdir -p "$IMAGES"

# apt runs an apt command with the machine's sources; once look_in_backports was called, with those of Debian and its
# backports instead, and lists of its own.
APT_OPTIONS=()
apt() { "apt-$1" "${APT_OPTIONS[@]}" "${@:2}"; }

look_in_backports() {
	local release
	release=$(. /etc/os-release && say "${ID:-} ${VERSION_CODENAME:-}")
	[[ $release == 'debian '?* ]] || return 1
	mkdir -p "$IMAGES/apt/lists/partial"
	printf 'deb http://deb.debian.org/debian %s main\n' "${release#* }" "${release#* }-backports" >"$IMAGES/apt/sources.list"
	APT_OPTIONS=(-o Dir::Etc::sourceparts=- -o "Dir::Etc::sourcelist=$IMAGES/apt/sources.list" -o "Dir::State::lists=$IMAGES/apt/lists")
	apt get update
}

# packages lists the Debian packages that a server consists of here: itself, its client and what the machine lacks of theirs.
packages() { # <engine>
	apt get install --simulate --no-install-recommends "$1-server" "$1-tools" 2>/dev/null | awk '$1 == "Inst" {print $2}' |
		cat - <(printf '%s-server\n%s-tools\ndash\n' "$1" "$1") | sort -u
}

# fetch_debs downloads the packages of a server without installing anything on this machine.
fetch_debs() { # <engine>
	local list
	cd "$IMAGES/debs"
	mapfile -t list < <(packages "$1")
	apt get download "${list[@]}" && return
	apt get update
	mapfile -t list < <(packages "$1")
	apt get download "${list[@]}"
}

# copy_libraries copies the shared libraries of the programs, from the packages or from this machine.
copy_libraries() { # <packages' root> <image's root> <program...>
	local from=$1 to=$2 library
	shift 2
	LD_LIBRARY_PATH=$from/usr/lib/x86_64-linux-gnu:$from/lib/x86_64-linux-gnu:$from/usr/lib/aarch64-linux-gnu:$from/lib/aarch64-linux-gnu \
		ldd "$@" >"$IMAGES/ldd"
	! grep 'not found' "$IMAGES/ldd" >&2 || die "$(basename "$1") lacks shared libraries"
	awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\/.*\/?ld-/ {print $1}' "$IMAGES/ldd" | sort -u | while read -r library; do
		if [[ $library == */ld-* ]]; then
			mkdir -p "$to$(dirname "$library")"
			cp -L "$library" "$to$library"
		else
			cp -L "$library" "$to/usr/lib/"
		fi
	done
}

# server_root makes the root of the image of a server in the folder of its name.
server_root() { # <engine>
	local engine=$1 from=$IMAGES/debs/root to=$IMAGES/$1 deb program
	rm -rf "$IMAGES/debs" "$to"
	mkdir -p "$IMAGES/debs/root" "$to"/{usr/bin,usr/lib,bin,etc,data,tmp,run,proc,sys,dev}
	(fetch_debs "$engine") >"$IMAGES/apt.log" 2>&1 || { tail -n 5 "$IMAGES/apt.log" >&2 && die "apt-get cannot download Debian's $engine-server: the log is $IMAGES/apt.log"; }
	for deb in "$IMAGES"/debs/*.deb; do dpkg-deb -x "$deb" "$from"; done
	# The server is one program under several names.
	program=$from/usr/bin/$engine-server
	[[ -f $program && ! -L $program ]] || program=$from/usr/bin/$engine-check-rdb
	cp -L "$program" "$to/usr/bin/$engine-server"
	cp -L "$from/usr/bin/$engine-cli" "$to/usr/bin/$engine-cli"
	cp -L "$(find "$from" -name dash -type f -perm -u+x | head -n 1)" "$to/bin/sh"
	copy_libraries "$from" "$to" "$to/usr/bin/$engine-server" "$to/usr/bin/$engine-cli" "$to/bin/sh"
	printf 'root:x:0:0:root:/:/bin/sh\n%s:x:999:999:%s:/data:/bin/sh\n' "$engine" "$engine" >"$to/etc/passwd"
	printf 'root:x:0:\n%s:x:999:\n' "$engine" >"$to/etc/group"
	printf '/usr/lib\n' >"$to/etc/ld.so.conf"
	/sbin/ldconfig -r "$to"
	chroot "$to" "/usr/bin/$engine-server" --version >"$IMAGES/$engine.version"
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

# has_valkey says whether Debian has it, for this release or in its backports.
has_valkey() {
	[[ $(apt-cache policy valkey-server 2>/dev/null) == *Candidate:\ [0-9]* ]] && return
	look_in_backports >"$IMAGES/apt.log" 2>&1 && [[ $(apt cache policy valkey-server) == *Candidate:\ [0-9]* ]]
}

if [[ ! -s $IMAGES/redis.tar || ! -s $IMAGES/redis-next.tar ]]; then
	server_root redis
	pack redis redis-next localhost/redis:next /usr/bin/redis-server 999:999 next
	pack redis redis localhost/redis:e2e /usr/bin/redis-server 999:999 e2e
fi
program pause localhost/pause:e2e
program manager localhost/flotilla-manager:e2e
if [[ ! -s $IMAGES/valkey.tar ]] && has_valkey; then
	server_root valkey
	pack valkey valkey localhost/valkey:e2e /usr/bin/valkey-server 999:999 e2e
fi
