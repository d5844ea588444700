#!/bin/sh
# Container keeper: makes this Pod promotable or not, fences a primary that the voters do not name, and keeps what the voter
# knows. It tells the API server that this Pod has become the primary by ending, which the kubelet reports.
#
# A client for each server that it listens to asks once a second for as long as the connection lasts. Nothing is started
# while nothing happens.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"
. "$config_dir/voters.sh"
. "$config_dir/knowledge.sh"

told=$run_dir/told         # the epoch that a container before this one has told
watching=$run_dir/watching # not empty while this Pod listens to the voters of other Pods
conf=$run_dir/sentinel.conf
looked=$run_dir/looked # as old as the last look at what the voter knows

# stream NAME HOST PORT COMMAND... asks once a second and prints the lines of each answer after NAME, and NAME alone when
# the server is gone or the client has lived for a minute: after a partition, a connection may hang for long.
stream() {
	name=$1 h=$2 p=$3
	shift 3
	secret=$password
	while :; do
		if wanted; then
			patience='timeout 60'
			try "$secret" -h "$h" -p "$p" -r -1 -i 1 "$@" | relay
			if [ $? = 3 ]; then
				# Files change under a running server, so it may know the previous password only.
				if [ "$secret" = "$password" ]; then secret=$previous; else secret=$password; fi
			fi
			printf '%s\n' "$name"
		fi
		case $name in
		server | "$ordinal") sleep 1 ;;
		*) sleep 5 ;;
		esac
	done
}

# relay ends with 3 when the server does not accept the password.
relay() {
	while IFS= read -r line; do
		case $line in
		*NOAUTH* | *WRONGPASS*) exit 3 ;;
		esac
		printf '%s %s\n' "$name" "$line"
	done
}

# wanted reports whether a stream is needed. The voters of other Pods matter to a primary and to Pods that do not vote.
wanted() {
	case $name in
	server | "$ordinal") return 0 ;;
	*) [ "$ordinal" -ge 3 ] || [ -s "$watching" ] ;;
	esac
}

# streams starts all of them. Their lines are short enough not to be mixed.
streams() {
	n=0
	for v in $voters; do
		[ "$n" != "$ordinal" ] || v=127.0.0.1
		stream $n "$v" $voter_port sentinel get-master-addr-by-name $master &
		n=$((n + 1))
	done
	stream server 127.0.0.1 "$port" info replication
}

# hear takes a line of a voter: the address of the primary, its port, or what went wrong.
hear() {
	case ${1#* } in
	*[!0-9a-fA-F.:]*) return ;;
	*[.:]*) ;;
	*) return ;;
	esac
	case $1 in
	"0 "*) vote_0=${1#* } age_0=0 ;;
	"1 "*) vote_1=${1#* } age_1=0 ;;
	"2 "*) vote_2=${1#* } age_2=0 ;;
	esac
	[ "${1%% *}" != "$ordinal" ] || [ -n "$hastened" ] || hasten
}

# hasten has the voter ask for roles, offsets and priorities every second instead of every ten, and try again sooner to
# reach a Pod that was replaced. It forgets that when it is started again.
hasten() {
	call 127.0.0.1 $voter_port sentinel debug info-period "$INFO_PERIOD" min-link-reconnect-period 3000
	hastened=yes
}

# age forgets votes that were not heard since the beat before this one.
age() {
	age_0=$((age_0 + 1)) age_1=$((age_1 + 1)) age_2=$((age_2 + 1))
	[ $age_0 -le 1 ] || vote_0=
	[ $age_1 -le 1 ] || vote_1=
	[ $age_2 -le 1 ] || vote_2=
}

# agreed sets primary to the address that two of the votes name. Without two of them the voters are asked one by one, which
# takes seconds when they are cut off: the answers of the server that wait for this keeper by then are of the past.
agreed() {
	primary=
	if [ -n "$vote_0" ] && { [ "$vote_0" = "$vote_1" ] || [ "$vote_0" = "$vote_2" ]; }; then
		primary=$vote_0
	elif [ -n "$vote_1" ] && [ "$vote_1" = "$vote_2" ]; then
		primary=$vote_1
	else
		uptime
		asked=$now
		majority
		uptime
		skip=$(((now - asked) / 100))
	fi
}

# remember keeps what the voter knows, when it may have changed. Some shells compare times by the second only. A
# configuration that was written before a look and put in place after it is older than that look, so every tenth beat looks
# whatever the times are.
remember() {
	[ -s "$conf" ] || return 0
	looks=$((looks + 1))
	[ ! "$conf" -ot "$looked" ] || [ $looks -ge 10 ] || return 0
	looks=0
	printf yes >"$looked"
	known=$(knowledge "$conf")
	monitored "$known"
	[ "$known" != "$kept" ] || return 0
	! keep "$known" || kept=$known
}

# allow lets the server take writes again. An earlier keeper may have fenced it.
allow() {
	if [ -z "$allowed" ] || [ -n "$fenced" ]; then
		here config set min-replicas-to-write "$MIN_REPLICAS"
		[ -z "$fenced" ] || say "unfenced"
		fenced=
		allowed=yes
	fi
}

# fence has the server refuse writes when the voters have not named it for some seconds. With read replicas on its side of a
# partition, min-replicas-to-write alone would let it go on. By the clock: asking voters that are cut off takes a second each,
# and the next time would be too late when less than a second is missing.
fence() {
	[ -z "$fenced" ] || return 0
	uptime
	due=$((named + FENCE_AFTER * 100 - now))
	[ $due -le 100 ] || return 0
	[ $due -le 0 ] || sleep 1
	here config set min-replicas-to-write 9
	fenced=yes
	say "fenced: the sentinels do not name this Pod"
}

# repoint makes the server a replica of the primary.
repoint() {
	say "following $primary"
	here replicaof "$primary" "$port"
}

# step_down makes a primary that was replaced while it was alive a replica of its successor. The voters do that as well, eight
# seconds after they have replaced it, and until then clients that stay connected to it are refused.
step_down() {
	[ -n "$fenced" ] && [ -n "$primary" ] || return 0
	call "$primary" "$port" info replication
	case $answer in
	*role:master*) repoint ;;
	esac
}

# publish tells the epoch in which this Pod has become the primary, once.
publish() {
	[ "$seen" = "$me" ] && [ "$seen_epoch" != "$published" ] || return 0
	printf '%s\n' "$seen_epoch" >"$told"
	printf 'primary %s\n' "$seen_epoch" >"$termination_log"
	exit 0
}

as_primary() {
	if [ -z "$was_primary" ]; then
		uptime
		named=$now
		was_primary=yes
		printf yes >"$watching"
		# After a demotion it is promotable when it has been in sync again.
		here config set replica-priority 0
	fi
	agreed
	if [ "$primary" = "$me" ]; then
		uptime
		named=$now
		allow
		[ "$seen" = "$me" ] || {
			looks=10
			remember
		}
		publish
	else
		fence
		step_down
	fi
}

# follow repoints a replica whose link hangs. Ordinals that do not vote are unknown to the voters: theirs is checked always.
follow() {
	case $answer in
	*master_link_status:up*) [ "$ordinal" -ge 3 ] || return 0 ;;
	esac
	field master_host
	follows=$value
	said=$answer
	agreed
	answer=$said
	if [ -n "$primary" ] && [ "$primary" != "$me" ] && [ "$primary" != "$follows" ]; then
		repoint
		here info replication
	fi
}

as_replica() {
	if [ -n "$was_primary" ]; then
		was_primary=
		: >"$watching"
	fi
	follow
	if [ -z "$allowed" ] || [ -n "$fenced" ]; then
		said=$answer
		allow
		answer=$said
	fi
	field slave_priority
	want=$value
	case $answer in
	*master_sync_in_progress:1*) want=0 ;;
	*master_link_status:up*)
		want=100
		[ "$ordinal" -lt 3 ] && [ ! -s "$leaving" ] || want=0
		;;
	# Whose link is merely down stays as it is: a primary that dies would disqualify all its replicas.
	esac
	# When no replica is promotable and the primary does not come back, a person may choose.
	[ "$FORCE_PRIMARY" != "$ordinal" ] || want=1
	[ "$want" = "$value" ] || here config set replica-priority "$want"
}

# beat is called once a second with the answer of the server.
beat() {
	age
	if [ $skip -gt 0 ]; then
		skip=$((skip - 1))
		return
	fi
	locate || return 0
	remember
	field role
	case $value in
	master) as_primary ;;
	slave) as_replica ;;
	esac
}

# watch reads the lines of all streams. The history of the backlog is the last line of INFO.
watch() {
	while IFS= read -r line; do
		case $line in
		"server # Replication"*) text= ;;
		"server repl_backlog_histlen:"*)
			answer=$text
			beat
			;;
		"server "*) text="$text ${line#* }" ;;
		server)
			answer=
			beat
			;;
		*" "*) hear "$line" ;;
		"$ordinal")
			hastened=
			remember
			;;
		esac
	done
}

# The first process of a container ignores signals that it does not ask for.
trap 'exit 0' TERM
until locate; do
	sleep 1
done
published=
[ ! -s "$told" ] || IFS= read -r published <"$told"
: >"$told"
: >"$watching"
: >"$looked"
vote_0=
vote_1=
vote_2=
age_0=0
age_1=0
age_2=0
skip=0
looks=0
text=
kept=
seen=
seen_epoch=
hastened=
allowed=
fenced=
was_primary=
streams | watch &
# A shell that waits for a child hears of signals at once.
wait $!
