# Sourced by the scripts of mode Sentinel after client.sh: who this Pod is, where the others are, and what the voters say.
# Needs sleep and timeout beside the shell, the server and its client.

data_dir=${FLOTILLA_DATA_DIR:-/data}
run_dir=${FLOTILLA_RUN_DIR:-/run/flotilla/shared}
record_dir=${FLOTILLA_RECORD_DIR:-/run/flotilla/record}
termination_log=${FLOTILLA_TERMINATION_LOG:-/dev/termination-log}
voter_port=26379
master=mymaster
patience='timeout 1'
. "$config_dir/settings.env"

# Marks are files in memory that the containers of a Pod share. A mark is set when its file is not empty.
hold=$run_dir/hold       # why the server waits
leaving=$run_dir/leaving # this Pod is being deleted
stopped=$run_dir/stopped # its server has nothing more to do
seeking=$run_dir/seeking # its voter does not know yet what to monitor, and why

say() { printf 'flotilla: %s\n' "$1" >&2; }

# tell makes $1 the termination message of the container.
tell() {
	printf '%s\n' "$1" 2>/dev/null >"$termination_log"
	say "$1"
}

# uptime sets now to hundredths of a second.
uptime() {
	IFS=' ' read -r now rest </proc/uptime
	now=${now%.*}${now#*.}
}

# address_of sets address to that of an ordinal: the cluster IP of its Service, which outlives every Pod.
address_of() {
	n=$1
	address=
	for a in $ADDRESSES; do
		if [ "$n" = 0 ]; then
			address=$a
			return
		fi
		n=$((n - 1))
	done
}

# locate reads the record, which changes while Pods run, and sets me and voters. It fails while addresses are missing.
locate() {
	. "$record_dir/topology.env"
	voters=
	for v in 0 1 2; do
		address_of "$v"
		[ -n "$address" ] || return 1
		voters="$voters $address"
	done
	address_of "$ordinal"
	me=$address
	[ -n "$me" ]
}

# call HOST PORT COMMAND... sets answer; it takes a second at most.
call() {
	h=$1 p=$2
	shift 2
	query -h "$h" -p "$p" "$@"
}

# here asks the server of this Pod.
here() { call 127.0.0.1 "$port" "$@"; }

# field sets value to that of "$1:value" in the answer to INFO.
field() {
	value=
	case $answer in
	*"$1:"*)
		value=${answer#*"$1:"}
		value=${value%%[!a-zA-Z0-9.:_-]*}
		;;
	esac
}

# vote sets voted to the address that a voter takes for the primary, or to nothing. It names a promoted replica at once.
# SENTINEL MASTER names the old primary until every replica follows the new one, a second later.
vote() {
	voted=
	call "$1" $voter_port sentinel get-master-addr-by-name $master
	case $answer in
	*[0-9a-fA-F]"
$port"*) voted=${answer%%[!0-9a-fA-F.:]*} ;;
	esac
}

# majority sets primary to the address that two of the three voters name, or to nothing.
majority() {
	primary=
	voices=
	for v in $voters; do
		vote "$v"
		[ -n "$voted" ] || continue
		case " $voices " in
		*" $voted "*)
			primary=$voted
			return
			;;
		esac
		voices="$voices $voted"
	done
}

# attribute sets value to what follows $1 in the answer of a voter, which is a list of names and values.
attribute() {
	value=
	next=
	set -f
	for word in $answer; do
		if [ -n "$next" ]; then
			value=$word
			break
		fi
		[ "$word" != "$1" ] || next=yes
	done
	set +f
}

# epoch_of sets epoch to the configuration epoch of a voter, or to 0.
epoch_of() {
	call "$1" $voter_port sentinel master $master
	attribute config-epoch
	epoch=${value:-0}
}

# failover has the voters promote a replica in place of this Pod. It fails when none of them begins, or when one has replaced
# it already: another one might know by now as well, and would replace its successor.
failover() {
	for v in $voters; do
		vote "$v"
		[ -n "$voted" ] || continue
		[ "$voted" = "$me" ] || return 1
		call "$v" $voter_port sentinel failover $master
		case $answer in
		*OK*) return 0 ;;
		esac
	done
	return 1
}
