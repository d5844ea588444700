#!/bin/sh
# Container sentinel, beside the sentinel: has it connect anew when one of its connections keeps it busy.
#
# While a Pod is replaced its Service has no endpoint, and kube-proxy answers the first packet of a connection with an ICMP
# error. If the second packet arrives, the connection works, but Linux keeps the error and reports it for as long as the
# connection lasts. The sentinel finds nothing to read, and is told again at once: it uses all of a CPU that it can get.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"
. "$config_dir/voters.sh"

# The script that starts this one becomes the sentinel.
stat=${FLOTILLA_STAT:-/proc/$PPID/stat}

# account sets spent to the CPU time that the sentinel has used, in hundredths of a second.
account() {
	IFS= read -r line 2>/dev/null <"$stat" || return 1
	set -f
	# The name of the program, in parentheses, is before the state. User and system time are eleven and twelve fields after that.
	set -- ${line##*) }
	set +f
	spent=$((${12} + ${13}))
}

busy=0
before=
while account; do
	# At rest a sentinel needs less than one.
	if [ $((spent - ${before:-$spent})) -lt 10 ]; then busy=0; else busy=$((busy + 1)); fi
	before=$spent
	# Connections to a Pod that is not there keep it busy for a second, and are tried again after three.
	if [ $busy -ge 3 ]; then
		call 127.0.0.1 $voter_port sentinel master $master
		attribute flags
		# A failover needs the connections.
		if [ "$value" = master ]; then
			say "connecting anew, because a connection keeps the sentinel busy"
			# Both change nothing. With the first the sentinel drops its connections to servers, with the second those to other
			# sentinels.
			call 127.0.0.1 $voter_port sentinel set $master auth-user ''
			call 127.0.0.1 $voter_port sentinel config set sentinel-user ''
			busy=-10
		fi
	fi
	sleep 1
done
