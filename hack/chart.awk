# Makes the chart's template of dist/install.yaml: what values can change becomes an action, all else stays as it is.
function flush() {
	if (doc ~ /(^|\n)kind: Namespace\n/ && doc ~ /\n  name: \{\{ \.Values\.namespace \}\}\n/)
		doc = "{{- if .Values.createNamespace }}\n" doc "{{- end }}\n"
	printf "%s", doc
	doc = ""
}
function add(line) { doc = doc line "\n" }
# with adds a value where it is set: below a key, or to a list that is there.
function with(value, key, indent) {
	add(indent "{{- with .Values." value " }}")
	if (key != "") add(indent key ":")
	add(indent "{{- toYaml . | nindent " length(indent) + (key == "" ? 0 : 2) " }}")
	add(indent "{{- end }}")
}

/^#/ { next }
/^---$/ { flush(); print; deployment = 0; next }
$0 == "kind: Deployment" { deployment = 1 }
skipping && /^          / { next }
{ skipping = 0 }
/^ *namespace: flotilla-system$/ || $0 == "  name: flotilla-system" { sub(/flotilla-system/, "{{ .Values.namespace }}") }
/^ *namespace: flotilla-clusters$/ || $0 == "  name: flotilla-clusters" || /^ *- flotilla-clusters$/ { sub(/flotilla-clusters/, "{{ .Values.registrationNamespace }}") }
affinity && !/^       / { add("      {{- end }}"); affinity = 0 }
deployment && /^  replicas: / { add("  replicas: {{ .Values.replicas }}"); next }
deployment && / image: / {
	sub(/image: .*/, "image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}")
	add($0)
	add("        {{- with .Values.image.pullPolicy }}")
	add("        imagePullPolicy: {{ . }}")
	add("        {{- end }}")
	next
}
# Pods are placed, found and configured as the cluster has it.
deployment && $0 == "    metadata:" {
	add($0)
	add("      {{- if or .Values.podAnnotations .Values.config }}")
	add("      annotations:")
	add("        {{- if .Values.config }}")
	add("        checksum/config: {{ toYaml .Values.config | sha256sum }}")
	add("        {{- end }}")
	add("        {{- with .Values.podAnnotations }}")
	add("        {{- toYaml . | nindent 8 }}")
	add("        {{- end }}")
	add("      {{- end }}")
	next
}
deployment && $0 == "      affinity:" {
	add("      {{- if .Values.affinity }}")
	add($0)
	add("        {{- toYaml .Values.affinity | nindent 8 }}")
	add("      {{- else }}")
	affinity = 1
}
deployment && $0 == "        env:" { add($0); with("extraEnv", "", "        "); next }
deployment && $0 == "        volumeMounts:" {
	add($0)
	with("extraVolumeMounts", "", "        ")
	add("        {{- if .Values.config }}")
	add("        - name: config")
	add("          mountPath: /etc/flotilla")
	add("          readOnly: true")
	add("        {{- end }}")
	next
}
deployment && $0 == "      volumes:" {
	add($0)
	with("extraVolumes", "", "      ")
	add("      {{- if .Values.config }}")
	add("      - name: config")
	add("        configMap:")
	add("          name: flotilla-manager-config")
	add("      {{- end }}")
	next
}
deployment && /^      serviceAccountName: / {
	add($0)
	with("imagePullSecrets", "imagePullSecrets", "      ")
	with("nodeSelector", "nodeSelector", "      ")
	with("tolerations", "tolerations", "      ")
	with("topologySpreadConstraints", "topologySpreadConstraints", "      ")
	add("      {{- with .Values.priorityClassName }}")
	add("      priorityClassName: {{ . }}")
	add("      {{- end }}")
	next
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
	add("        {{- if .Values.config }}")
	add("        - --config=/etc/flotilla/config.yaml")
	add("        {{- end }}")
	next
}
# The last flag of a name counts, and a flag counts more than the file: what values say comes after this, or in place of it.
deployment && /--log-format=/ {
	add("        {{- if not (dig \"log\" \"format\" \"\" .Values.config) }}")
	add($0)
	add("        {{- end }}")
	with("extraArgs", "", "        ")
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
