# Sourced by the other scripts: finds the client, reads the password and defines ask.
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

# ask runs the client. The password is in the environment of that one process only: never in arguments.
ask() {
	if [ -n "$password" ]; then
		REDISCLI_AUTH=$password "$client" "$@"
	else
		"$client" "$@"
	fi
}
