#!/usr/bin/env bash
# The manager of bin/ against the hub of the fleet in FLEET_DIR. Usage: hack/manager.sh start|run|stop [manager flags...]
# `start` runs it in the background: one that runs the same binary with the same flags is left alone, another is replaced.
# `run` runs it in the foreground, instead of one in the background.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
fleet_dirs

KUBECONFIG_FILE=$FLEET_DIR/manager.kubeconfig
PIDFILE=$FLEET_DIR/manager.pid SUMFILE=$FLEET_DIR/manager.sum LOG=$FLEET_DIR/manager.log

running() { [[ -s $PIDFILE ]] && runs_with "$(<"$PIDFILE")" "$KUBECONFIG_FILE"; }

# set_command sets command. The manager acts as its ServiceAccount, so that it has the rights of config/rbac and no more,
# leader election included. The endpoints get the two ports that the hub's missing scheduler and kwok leave free, so that
# fleets in other folders, each with a manager, can run beside this one.
set_command() {
	local base
	[[ -e $KUBECONFIGS/hub ]] || die "no fleet in $FLEET_DIR: run 'make fleet-up' first"
	base=$(<"$FLEET_DIR/port-base")
	awk '{print} $0 == "  user:" {print "    as: system:serviceaccount:flotilla-system:flotilla-manager"}' "$KUBECONFIGS/hub" >"$KUBECONFIG_FILE"
	command=("$BIN/manager" --kubeconfig "$KUBECONFIG_FILE" --hub-id demo
		"--metrics-bind-address=127.0.0.1:$((base + 4))" "--health-bind-address=127.0.0.1:$((base + 5))" "$@")
}

start() {
	local sum setsid=()
	set_command "$@"
	sum="$(cksum <"$BIN/manager") ${command[*]}"
	if running; then
		if [[ -e $SUMFILE && $(<"$SUMFILE") == "$sum" ]]; then
			say "  ${GREEN}✓${RESET} the manager runs already (pid $(<"$PIDFILE"), log ${LOG/#"$ROOT/"/})"
			return
		fi
		say '  the manager was built or configured anew: replacing it'
		stop
	fi
	# A session of its own: neither Ctrl-C in this terminal nor its end reaches the manager.
	[[ -x $(type -P setsid) ]] && setsid=(setsid)
	"${setsid[@]}" nohup "${command[@]}" >"$LOG" 2>&1 </dev/null &
	say $! >"$PIDFILE"
	say "$sum" >"$SUMFILE"
	sleep 1
	if ! running; then
		tail -n 20 "$LOG" >&2
		rm -f "$PIDFILE" "$SUMFILE"
		die "the manager ended at once: the log is $LOG"
	fi
	say "  ${GREEN}✓${RESET} the manager runs (pid $(<"$PIDFILE"), log ${LOG/#"$ROOT/"/})"
}

stop() {
	local pid
	if running; then
		pid=$(<"$PIDFILE")
		kill "$pid"
		if ! await_exit "$pid" 40; then
			say '  the manager did not end in 40 s: killing it'
			kill -KILL "$pid"
			await_exit "$pid" 10
		fi
		say "  ${GREEN}✓${RESET} the manager is stopped"
	fi
	rm -f "$PIDFILE" "$SUMFILE"
}

run() {
	set_command "$@"
	stop
	exec "${command[@]}"
}

case ${1:-} in
start | run | stop) "$@" ;;
*) die 'usage: hack/manager.sh start|run|stop [manager flags...]' ;;
esac
