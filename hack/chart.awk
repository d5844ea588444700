# Makes the chart's template of dist/install.yaml: what values can change becomes an action, all else stays as it is.
function flush() {
	if (doc ~ /(^|\n)kind: Namespace\n/ && doc ~ /\n  name: \{\{ \.Values\.namespace \}\}\n/)
		doc = "{{- if .Values.createNamespace }}\n" doc "{{- end }}\n"
	printf "%s", doc
	doc = ""
}
function add(line) { doc = doc line "\n" }

/^#/ { next }
/^---$/ { flush(); print; deployment = 0; next }
$0 == "kind: Deployment" { deployment = 1 }
skipping && /^          / { next }
{ skipping = 0 }
/^ *namespace: flotilla-system$/ || $0 == "  name: flotilla-system" { sub(/flotilla-system/, "{{ .Values.namespace }}") }
/^ *namespace: flotilla-clusters$/ || $0 == "  name: flotilla-clusters" || /^ *- flotilla-clusters$/ { sub(/flotilla-clusters/, "{{ .Values.registrationNamespace }}") }
deployment && /^  replicas: / { add("  replicas: {{ .Values.replicas }}"); next }
deployment && / image: / {
	sub(/image: .*/, "image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}")
}
deployment && /--hub-id=/ {
	sub(/--hub-id=.*/, "--hub-id={{ required \"hubID is the name of this hub\" .Values.hubID }}")
	add($0)
	add("        {{- if ne .Values.namespace \"flotilla-system\" }}")
	add("        - --leader-election-namespace={{ .Values.namespace }}")
	add("        {{- end }}")
	add("        {{- if ne .Values.registrationNamespace \"flotilla-clusters\" }}")
	add("        - --registration-sources={{ .Values.registrationNamespace }}:flotilla+multicluster-runtime")
	add("        {{- end }}")
	add("        {{- with .Values.extraArgs }}")
	add("        {{- toYaml . | nindent 8 }}")
	add("        {{- end }}")
	next
}
deployment && $0 == "        resources:" {
	add($0)
	add("          {{- toYaml .Values.resources | nindent 10 }}")
	skipping = 1
	next
}
{ add($0) }
END { flush() }
