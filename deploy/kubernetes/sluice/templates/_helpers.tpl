{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sluice.peers" -}}
{{- $release := .Release.Name -}}
{{- range $i := untilStep 1 (int (add1 .Values.nodes)) 1 -}}
{{- if gt $i 1 }},{{ end }}{{ $release }}-{{ $i }}.{{ $release }}-nodes.$(NAMESPACE).svc:6222
{{- end -}}
{{- end }}

{{- define "sluice.ports" -}}
- name: http
  port: 8080
  targetPort: http
- name: kafka
  port: 9092
  targetPort: kafka
{{- if .Values.public }}
- name: public
  port: 8081
  targetPort: public
{{- end }}
{{- end }}

{{- /* What cannot be is said before anything is made. */ -}}
{{- define "sluice.check" -}}
{{- with .Values -}}
{{- if gt (int .nodes) 1 -}}
{{- if not .cluster.secret }}{{ fail "nodes: a cluster needs cluster.secret, the name of a Secret with the key \"secret\"" }}{{ end -}}
{{- if not (or .cluster.tlsSecret .cluster.insecure) }}{{ fail "nodes: a cluster needs cluster.tlsSecret, or cluster.insecure: true in a network that nobody else uses" }}{{ end -}}
{{- end -}}
{{- if and .accessSecret (not .tlsSecret) }}{{ fail "accessSecret: tokens in the clear are no protection: name a Secret with a certificate in tlsSecret" }}{{ end -}}
{{- end -}}
{{- end }}
