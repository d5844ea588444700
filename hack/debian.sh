# shellcheck shell=bash
# Programs of Debian's packages, downloaded and unpacked without installing anything. Source it after lib.sh, with DEBIAN
# set to a folder for this.

# apt runs an apt command with the machine's sources, or with those of Debian 13 and lists of its own once in_trixie was
# called. Nothing counts as installed: a root consists of packages only, down to the C library.
mkdir -p "${DEBIAN:?}"
: >"$DEBIAN/installed"
APT_OPTIONS=(-o "Dir::State::status=$DEBIAN/installed" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
apt() { "apt-$1" "${APT_OPTIONS[@]}" "${@:2}"; }

# in_trixie looks in Debian 13, whatever this machine is: it has Redis 8 and Valkey. It fails where that is out of reach.
in_trixie() {
	mkdir -p "$DEBIAN/apt/lists/partial"
	printf 'deb http://deb.debian.org/%s main\n' 'debian trixie' 'debian-security trixie-security' >"$DEBIAN/apt/sources.list"
	APT_OPTIONS+=(-o Dir::Etc::sourceparts=- -o "Dir::Etc::sourcelist=$DEBIAN/apt/sources.list" -o "Dir::State::lists=$DEBIAN/apt/lists")
	apt get update --error-on=any >"$DEBIAN/apt.log" 2>&1
}

# packages lists the packages that some programs consist of: their own, and libraries.
packages() { # <package...>
	apt get install --simulate --no-install-recommends "$@" 2>/dev/null | awk '$1 == "Inst" {print $2}' |
		grep -E "^(lib|zlib|($(IFS='|' && say "$*"))\$)" | grep -v '^libperl'
}

# fetch_debs downloads packages with their libraries.
fetch_debs() { # <package...>
	local list
	cd "$DEBIAN/debs"
	mapfile -t list < <(packages "$@")
	[[ ! ${list[*]} ]] || { apt get download "${list[@]}" && return; }
	apt get update
	mapfile -t list < <(packages "$@")
	apt get download "${list[@]}"
}

# unpack leaves packages with their libraries in DEBIAN/debs/root.
unpack() { # <package...>
	local deb
	rm -rf "$DEBIAN/debs"
	mkdir -p "$DEBIAN/debs/root"
	(fetch_debs "$@") >"$DEBIAN/apt.log" 2>&1 || { tail -n 5 "$DEBIAN/apt.log" >&2 && die "apt-get cannot download Debian's $*: the log is $DEBIAN/apt.log"; }
	for deb in "$DEBIAN"/debs/*.deb; do dpkg-deb -x "$deb" "$DEBIAN/debs/root"; done
}

# copy_libraries copies what programs of the packages are linked with, as the packages' own loader finds it.
copy_libraries() { # <packages' root> <new root> <program...>
	local from=$1 to=$2 loader program name library
	loader=$(find "$from" -name 'ld-linux*' | sort | head -n 1)
	for program in "${@:3}"; do
		"$loader" --library-path "$(find "$from" -type d -path '*/lib/*-linux-gnu' -printf '%p:')" --list "$program" >"$DEBIAN/linked"
		while read -r name _ library _; do
			[[ $library == "$from"/* ]] || continue
			# The loader has a path of its own in the programs.
			[[ $name == /* ]] || name=/usr/lib/$name
			mkdir -p "$to$(dirname "$name")"
			cp -L "$library" "$to$name"
		done <"$DEBIAN/linked"
	done
}

# server_root makes a root with nothing but a server, its client, a shell, and more programs from more packages.
server_root() { # <engine> <root> [<package>=<path of its program>...]
	local engine=$1 to=$2 from=$DEBIAN/debs/root more=("${@:3}") program
	rm -rf "$to"
	mkdir -p "$to"/{usr/bin,usr/lib,bin,etc,data,tmp,run,proc,sys,dev}
	unpack "$engine-server" "$engine-tools" dash "${more[@]%%=*}"
	# The server is one program under several names.
	program=$from/usr/bin/$engine-server
	[[ -f $program && ! -L $program ]] || program=$from/usr/bin/$engine-check-rdb
	cp -L "$program" "$to/usr/bin/$engine-server"
	cp -L "$from/usr/bin/$engine-cli" "$to/usr/bin/$engine-cli"
	cp -L "$(find "$from" -name dash -type f -perm -u+x | head -n 1)" "$to/bin/sh"
	for program in "${more[@]#*=}"; do
		[[ -e $from$program ]] || program=/usr$program
		cp -L "$from$program" "$to/usr/bin/"
	done
	copy_libraries "$from" "$to" "$to"/usr/bin/* "$to/bin/sh"
	printf 'root:x:0:0:root:/:/bin/sh\n%s:x:999:999:%s:/data:/bin/sh\n' "$engine" "$engine" >"$to/etc/passwd"
	printf 'root:x:0:\n%s:x:999:\n' "$engine" >"$to/etc/group"
	printf '/usr/lib\n' >"$to/etc/ld.so.conf"
	/sbin/ldconfig -r "$to"
	rm -rf "$DEBIAN/debs"
}
