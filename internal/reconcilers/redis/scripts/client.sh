# Sourced by the other scripts: finds the client, reads the passwords and defines how to ask.
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

# A script that must not wait for a host sets this to the words that end its client in time.
patience=

# try runs the client with the password in $1. It is in the environment of that one process only: never in arguments.
try() {
	secret=$1
	shift
	if [ -n "$secret" ]; then
		REDISCLI_AUTH=$secret $patience "$client" "$@" 2>&1
	else
		$patience "$client" "$@" 2>&1
	fi
}

# query sets answer to what the client says. Files change under a running server, so it may know the previous password only.
query() {
	answer=$(try "$password" "$@")
	case $answer in
	*NOAUTH* | *WRONGPASS*) [ -z "$previous" ] || answer=$(try "$previous" "$@") ;;
	esac
}

# ask prints what the client says.
ask() {
	query "$@"
	printf '%s\n' "$answer"
}

# quote sets quoted to $1 in the syntax of redis.conf, without the surrounding quotes.
quote() {
	quoted=
	rest=$1
	while [ -n "$rest" ]; do
		tail=${rest#?}
		char=${rest%"$tail"}
		case $char in
		'"' | \\) quoted=$quoted\\$char ;;
		*) quoted=$quoted$char ;;
		esac
		rest=$tail
	done
}

# secrets prints the directives that protect a server. While a password is being rotated it accepts both, and opens other
# servers with the previous one: those that have been started with the new one accept it too.
secrets() {
	if [ -n "$previous" ]; then
		quote "$password"
		new=$quoted
		quote "$previous"
		printf 'protected-mode yes\nuser default on sanitize-payload ~* &* +@all ">%s" ">%s"\nmasterauth "%s"\n' "$new" "$quoted" "$quoted"
	elif [ -n "$password" ]; then
		quote "$password"
		printf 'protected-mode yes\nrequirepass "%s"\nmasterauth "%s"\n' "$quoted" "$quoted"
	else
		printf 'protected-mode no\n'
	fi
}
