#!/bin/sh
# Container proxy, with the image of haproxy: sends clients to the Pod that two of three voters name and that is a primary
# by its own word. Shell builtins only.
set -u
LC_ALL=C
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"
. "$config_dir/voters.sh"

conf=$run_dir/haproxy.cfg

# hex sets hex to the bytes of $1. It keeps what passwords consist of out of the syntax of the configuration.
hex() {
	hex=
	rest=$1
	while [ -n "$rest" ]; do
		tail=${rest#?}
		char=${rest%"$tail"}
		hex=$hex$(printf '%02x' "'$char")
		rest=$tail
	done
}

# request sets request to the words of a command, as a server expects them, in hex.
request() {
	hex "*$#"
	request=${hex}0d0a
	for word in "$@"; do
		hex "\$${#word}"
		request=$request${hex}0d0a
		hex "$word"
		request=$request${hex}0d0a
	done
}

# check begins the checks of a backend.
check() {
	printf 'backend %s\n  option tcp-check\n  tcp-check connect\n' "$1"
	[ -z "$password" ] || printf '  tcp-check send-binary %s\n  tcp-check expect string +OK\n' "$login"
}

# near sets host to the address of an ordinal. A Pod need not reach itself by the address of its own Service.
near() {
	host=127.0.0.1
	[ "$1" = "$ordinal" ] || {
		address_of "$1"
		host=$address
	}
}

# voters_for prints the backend with the voters that name an ordinal. Without min-recv, a check that does not match would
# wait for more until it times out.
voters_for() {
	check "voters_for_$1"
	address_of "$1"
	printf '  tcp-check send-binary %s\n  tcp-check expect string $%s\\r\\n%s\\r\\n min-recv 20\n' "$whom" "${#address}" "$address"
	for v in 0 1 2; do
		near $v
		printf '  server voter%s %s:%s check inter %s fall 1 rise 1\n' $v "$host" $voter_port "$PROXY_INTER"
	done
}

# primary prints the backend with the server of an ordinal, which is up while it is a primary.
primary() {
	check "primary_$1"
	printf '  tcp-check send-binary %s\n  tcp-check expect string role:master min-recv 40\n' "$role"
	near "$1"
	printf '  server redis%s %s:%s check inter %s fall %s rise 1 on-marked-down shutdown-sessions\n' "$1" "$host" "$port" "$PROXY_INTER" "$PROXY_FALL"
}

configuration() {
	# With retries, haproxy would hold clients for a second at each try of a primary that is gone.
	printf '%s\n' global "  maxconn $PROXY_MAXCONN" '  nbthread 1' '  hard-stop-after 3s' \
		defaults '  mode tcp' '  timeout connect 1s' '  timeout client 24h' '  timeout server 24h' '  timeout check 900ms' \
		'  option clitcpka' '  option srvtcpka' '  retries 0'
	request AUTH "${previous:-$password}"
	login=$request
	request SENTINEL get-master-addr-by-name $master
	whom=$request
	request INFO replication
	role=$request
	for i in 0 1 2; do
		voters_for $i
		primary $i
	done
	# There is no default: without two voters that agree there is no primary, and connections are closed.
	printf 'frontend primary\n  bind :%s\n' "$PROXY_PORT"
	for i in 0 1 2; do
		printf '  use_backend primary_%s if { nbsrv(voters_for_%s) ge 2 } { nbsrv(primary_%s) ge 1 }\n' $i $i $i
	done
	printf 'frontend ready\n  mode http\n  bind :%s\n  monitor-uri /live\n' "$PROXY_HEALTH_PORT"
}

if [ "$AUTH" = Password ] && [ -z "$password" ]; then
	tell "Waiting: the password is not there"
	exit 75
fi
trap 'exit 143' TERM
until locate; do
	say "Waiting: the addresses of the Pods are not recorded yet"
	sleep 1
done
(umask 077 && configuration >"$conf")
# The first process of a container ignores signals that it does not ask for, and haproxy does not ask for SIGTERM.
haproxy -db -f "$conf" &
proxy=$!
# No new connections from here on, and hard-stop-after for those that are there.
trap 'kill -USR1 $proxy' TERM USR1
code=0
wait $proxy || code=$?
while kill -0 $proxy 2>/dev/null; do
	code=0
	wait $proxy || code=$?
done
exit $code
