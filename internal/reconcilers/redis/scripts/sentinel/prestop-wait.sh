#!/bin/sh
# Containers sentinel, keeper and proxy, preStop: they outlive the server by so many seconds. Builtins and sleep only: the
# image of the proxy has no client.
i=0
while [ $i -lt 450 ] && [ ! -s "${FLOTILLA_RUN_DIR:-/run/flotilla/shared}/stopped" ]; do
	i=$((i + 1))
	sleep 0.1
done
sleep "${1:-1}"
