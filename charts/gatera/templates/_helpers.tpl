{{/* Names are fixed: one guard serves the whole cluster, and a second one would only repeat its answers. */}}
{{- define "gatera.labels" -}}
{{ include "gatera.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "gatera.selector" -}}
app.kubernetes.io/name: gatera
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "gatera.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Pod Security "restricted", and stricter settings. */}}
{{- define "gatera.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "gatera.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Objects of the test differ only in their order. */}}
{{- define "gatera.testHook" -}}
helm.sh/hook: test
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
