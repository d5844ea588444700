# Sourced by the other scripts: finds the client, reads the passwords and defines ask.
# Shell builtins, the server and its client are all that the official images are relied on for.

config_dir=${FLOTILLA_CONFIG_DIR:-/etc/flotilla}
auth_file=${FLOTILLA_AUTH_FILE:-/run/flotilla/auth/password}
pod=${FLOTILLA_POD:?}
port=${FLOTILLA_PORT:?}
ordinal=${pod##*-}

if command -v valkey-cli >/dev/null 2>&1; then
	client=valkey-cli
else
	client=redis-cli
fi

# Without a mounted Secret there is no password. A missing final newline is fine.
password=
if [ -e "$auth_file" ]; then
	IFS= read -r password <"$auth_file" || [ -n "$password" ] || exit 1
fi

# While a password is being rotated, the one before it is accepted too.
previous=
if [ -e "${auth_file%/*}/previous" ]; then
	IFS= read -r previous <"${auth_file%/*}/previous"
fi
[ "$previous" != "$password" ] || previous=

# try runs the client with the password in $1. It is in the environment of that one process only: never in arguments.
try() {
	secret=$1
	shift
	if [ -n "$secret" ]; then
		REDISCLI_AUTH=$secret "$client" "$@" 2>&1
	else
		"$client" "$@" 2>&1
	fi
}

# ask prints what the client says. Files change under a running server, so it may know the previous password only.
ask() {
	answer=$(try "$password" "$@")
	case $answer in
	*NOAUTH* | *WRONGPASS*) [ -z "$previous" ] || answer=$(try "$previous" "$@") ;;
	esac
	printf '%s\n' "$answer"
}
