# Sourced after voters.sh: what a voter has learnt, and how it is kept on the volume.

state=$data_dir/.flotilla-sentinel
# The primary alone, once more, in case the other file is lost.
last=$data_dir/.flotilla-primary

# knowledge prints what the configuration of a voter says about the primary, epochs and neighbours. It has no passwords.
knowledge() {
	while IFS= read -r line; do
		case $line in
		"sentinel monitor $master "* | "sentinel config-epoch "* | "sentinel leader-epoch "* | "sentinel current-epoch "* | \
			"sentinel known-replica "* | "sentinel known-sentinel "*) printf '%s\n' "$line" ;;
		esac
	done <"$1"
}

# monitored sets seen and seen_epoch to the address of the primary and the epoch in knowledge.
monitored() {
	seen=
	seen_epoch=0
	before=
	previous_word=
	set -f
	for word in $1; do
		case $before:$previous_word in
		monitor:"$master") seen=$word ;;
		config-epoch:"$master") seen_epoch=$word ;;
		esac
		before=$previous_word
		previous_word=$word
	done
	set +f
}

# keep writes knowledge to the volume: with the Redis that it is of; with the ordinal of the primary, because addresses
# change when a Redis is created again for its volumes; and with a last line, because half a record does not count.
keep() {
	monitored "$1"
	n=0
	kept_ordinal=
	for a in $ADDRESSES; do
		[ "$a" != "$seen" ] || kept_ordinal=$n
		n=$((n + 1))
	done
	{
		printf '%s\n' "$1"
		[ -z "$kept_ordinal" ] || printf '# primary %s %s\n' "$kept_ordinal" "$seen_epoch"
		printf '# instance %s\n# end\n' "$INSTANCE"
	} 2>/dev/null >"$state" || return 1
	[ -z "$kept_ordinal" ] || printf '%s %s %s\n' "$INSTANCE" "$kept_ordinal" "$seen_epoch" 2>/dev/null >"$last"
}

# recall sets known from the volume if the record there is whole, of this Redis, and of an address that is one of its
# voting Pods; otherwise kept_ordinal and kept_epoch if at least the ordinal of the primary counts.
recall() {
	known=
	kept_ordinal=
	kept_epoch=0
	[ ! -s "$state" ] || recall_record
	if [ -z "$known$kept_ordinal" ] && [ -s "$last" ]; then
		IFS=' ' read -r whose kept_ordinal kept_epoch <"$last"
		[ "$whose" = "$INSTANCE" ] || kept_ordinal=
	fi
}

recall_record() {
	mine=
	whole=
	current=
	while IFS= read -r line; do
		case $line in
		"# instance $INSTANCE") mine=yes ;;
		"# end") whole=yes ;;
		"# primary "*)
			set -- $line
			kept_ordinal=$3
			kept_epoch=$4
			;;
		"#"*) ;;
		"sentinel monitor "*)
			for v in $voters; do
				case $line in
				"sentinel monitor $master $v "*) current=yes ;;
				esac
			done
			known=$line
			;;
		*)
			known="$known
$line"
			;;
		esac
	done <"$state"
	if [ "$mine:$whole" != yes:yes ]; then
		known=
		kept_ordinal=
	fi
	[ -n "$current" ] || known=
}
