#!/bin/sh
# Container keeper: once a second, makes this Pod promotable or not, fences a primary that the voters do not name, and keeps
# what the voter knows. It tells the API server that this Pod has become the primary by ending, which the kubelet reports.
set -u
. "${FLOTILLA_CONFIG_DIR:-/etc/flotilla}/client.sh"
. "$config_dir/voters.sh"
. "$config_dir/knowledge.sh"
# The first process of a container ignores signals that it does not ask for.
trap 'exit 0' TERM

told=$run_dir/told # the epoch that a container before this one has told

# hasten has the voter ask for roles, offsets and priorities every second instead of every ten, and try again sooner to
# reach a Pod that was replaced. It forgets that when it is started again.
hasten() { call 127.0.0.1 $voter_port sentinel debug info-period "$INFO_PERIOD" min-link-reconnect-period 3000; }

# remember keeps what the voter knows, when it has changed.
remember() {
	[ -s "$run_dir/sentinel.conf" ] || return 0
	known=$(knowledge "$run_dir/sentinel.conf")
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
# partition, min-replicas-to-write alone would let it go on. By the clock: asking voters that are cut off takes a second each.
fence() {
	uptime
	[ -n "$alone" ] || alone=$now
	[ -z "$fenced" ] && [ $((now - alone)) -ge $((FENCE_AFTER * 100)) ] || return 0
	here config set min-replicas-to-write 9
	fenced=yes
	say "fenced: the sentinels do not name this Pod"
}

# publish tells an epoch in which this Pod has become the primary, once.
publish() {
	epoch=
	for v in $voters; do
		vote "$v"
		[ "$voted" = "$me" ] || continue
		epoch_of "$v"
		break
	done
	[ -n "$epoch" ] && [ "$epoch" != "$published" ] || return 0
	printf '%s\n' "$epoch" >"$told"
	printf 'primary %s\n' "$epoch" >"$termination_log"
	exit 0
}

as_primary() {
	majority
	if [ "$primary" = "$me" ]; then
		alone=
		allow
		[ $((beats % 2)) = 0 ] || [ "$ordinal" -ge 3 ] || publish
	else
		fence
	fi
	# After a demotion it is promotable when it has been in sync again.
	if [ -z "$demotable" ]; then
		here config set replica-priority 0
		demotable=yes
	fi
}

# follow repoints a replica whose link hangs. Ordinals that do not vote are unknown to the voters: theirs is checked always.
follow() {
	case $answer in
	*master_link_status:up*) [ "$ordinal" -ge 3 ] || return 0 ;;
	esac
	field master_host
	follows=$value
	majority
	if [ -n "$primary" ] && [ "$primary" != "$me" ] && [ "$primary" != "$follows" ]; then
		say "following $primary"
		here replicaof "$primary" "$port"
	fi
	here info replication
}

as_replica() {
	alone=
	demotable=
	follow
	if [ -z "$allowed" ] || [ -n "$fenced" ]; then
		allow
		here info replication
	fi
	field slave_priority
	priority=$value
	want=$priority
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
	[ -z "$want" ] || [ "$want" = "$priority" ] || here config set replica-priority "$want"
}

published=
[ ! -s "$told" ] || IFS= read -r published <"$told"
: >"$told"
alone=
fenced=
allowed=
demotable=
kept=
beats=0
while :; do
	sleep 1
	locate || continue
	[ "$ordinal" -ge 3 ] || [ $((beats % 5)) != 0 ] || hasten
	beats=$((beats + 1))
	remember
	here info replication
	field role
	case $value in
	master) as_primary ;;
	slave) as_replica ;;
	esac
done
