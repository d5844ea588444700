# Sourced by liveness probes: any answer of a server means that it is alive, an error as well. A server that loads its data,
# waits for its primary, runs a script, has too many clients or cannot persist is not helped by a restart: what it could
# not persist is in its memory only.
LC_ALL=C
case $(ask -h 127.0.0.1 -p "$port" ping) in
*"Could not connect"*) exit 1 ;;
# An error of a server begins with a code in capitals, those of the client and the shell do not.
*PONG* | [A-Z][A-Z]*) exit 0 ;;
*) exit 1 ;;
esac
