#!/usr/bin/env bash
# Renders config/ into one file for a hub and one for a member. Usage: hack/dist.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

# render writes a file beside its place and moves it there when it is whole.
render() { # <folder of config> <file> <what it is>
	{
		say "# $3: kubectl apply --server-side -f dist/$2"
		say "# Rendered from config/$1 by \`make generate\`."
		"$BIN/kubectl" kustomize "config/$1"
	} >"dist/$2.new"
	mv "dist/$2.new" "dist/$2"
}

mkdir -p dist
render default install.yaml 'Flotilla on a hub'
render member member.yaml 'What a member needs, to be applied there by its administrator'

# The Prometheus Operator takes rules in an object.
{
	say '# Alerts for the Prometheus Operator: kubectl apply --server-side -f dist/prometheusrule.yaml'
	say '# Made of config/prometheus/alerts.yaml by `make generate`.'
	printf 'apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: flotilla\n  namespace: flotilla-system\nspec:\n'
	sed '/^#/d; s/^/  /' config/prometheus/alerts.yaml
} >dist/prometheusrule.yaml.new
mv dist/prometheusrule.yaml.new dist/prometheusrule.yaml
cp dist/prometheusrule.yaml config/prometheus/rules.yaml

# The chart has the alerts and the dashboard as they are: their braces are not Helm's.
mkdir -p charts/flotilla/files
sed '/^#/d' config/prometheus/alerts.yaml >charts/flotilla/files/alerts.yaml
cp config/grafana/fleet.json charts/flotilla/files/

# The rest of it is made of dist/install.yaml.
! grep -n '{{' dist/install.yaml || die 'dist/install.yaml has braces that Helm would take for its own'
{
	say '{{- /* Made of dist/install.yaml by `make generate`. */ -}}'
	awk -f hack/chart.awk dist/install.yaml
} >charts/flotilla/templates/install.yaml.new
mv charts/flotilla/templates/install.yaml.new charts/flotilla/templates/install.yaml
