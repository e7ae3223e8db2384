{{/* Names are fixed, because one guard serves the whole cluster. */}}
{{- define "gatera.labels" -}}
{{ include "gatera.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gatera.selector" -}}
app.kubernetes.io/name: gatera
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "gatera.image" -}}
{{- with (.Values.global).imageRegistry | default .Values.image.registry }}{{ . }}/{{ end -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The field imagePullSecrets of a pod. */}}
{{- define "gatera.imagePullSecrets" -}}
{{- with concat .Values.imagePullSecrets ((.Values.global).imagePullSecrets | default list) -}}
imagePullSecrets:
{{- range . }}
- name: {{ kindIs "string" . | ternary . (get (kindIs "map" . | ternary . dict) "name") | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The Secret with a certificate that the guard does not make itself; empty: it makes its own. */}}
{{- define "gatera.certificate" -}}
{{- if and .Values.tls.existingSecret .Values.tls.issuerRef }}
{{- fail "tls: set only one of existingSecret and issuerRef" }}
{{- end }}
{{- if .Values.tls.issuerRef }}gatera-issued{{ else }}{{ .Values.tls.existingSecret }}{{ end }}
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

{{/* The rights of the test are created before its pod and deleted when it succeeds. The pod stays until the next test, because Helm 3
     reads the log after it has deleted hooks that succeeded. */}}
{{- define "gatera.testHook" -}}
helm.sh/hook: test
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation{{ if ne . "0" }},hook-succeeded{{ end }}
{{- end }}
