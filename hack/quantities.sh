#!/usr/bin/env bash
# Limits the quantities of the schemas given to 20 digits before and after the point and 2 in the exponent. controller-gen
# knows one pattern for all quantities, which has no limits, and a text such as 1e-1000000000 needs gigabytes to be decoded.
set -euo pipefail

unlimited='^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'
limited='^(\+|-)?(([0-9]{1,20}(\.[0-9]{0,20})?)|(\.[0-9]{1,20}))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$'

for file; do
	text=$(<"$file")
	printf '%s\n' "${text//"$unlimited"/"$limited"}" >"$file"
done
if grep -lF "$unlimited" "$@" || ! grep -qF "$limited" "$@"; then
	echo "error: the pattern of quantities is another one than expected" >&2
	exit 1
fi
