{{/* Names, labels and what several objects share. */}}

{{- define "wordpress.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- /* Gatera's rules W01 to W09 recognize the parts by this label. */}}
gatera.dev/wordpress: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The selector of the pods of one tier, `frontend` or `mysql`. Never add to it: selectors cannot be changed. */}}
{{- define "wordpress.tier" -}}
app: {{ .root.Release.Name }}
tier: {{ .tier }}
{{- end }}

{{- define "wordpress.frontend" -}}
{{ include "wordpress.tier" (dict "root" . "tier" "frontend") }}
{{- end }}

{{- define "wordpress.mysql" -}}
{{ include "wordpress.tier" (dict "root" . "tier" "mysql") }}
{{- end }}

{{- define "wordpress.secret" -}}
{{ .Values.auth.existingSecret | default (printf "%swordpress-secret" .Values.namePrefix) }}
{{- end }}

{{- define "wordpress.databaseHost" -}}
{{- with .Values.database.galera }}{{ . }}-cs{{ else }}{{ .Values.namePrefix }}wordpress-mysql{{ end -}}
{{- end }}

{{/* The fields about a container's image. Arguments: root, and an image of the values. */}}
{{- define "wordpress.image" -}}
{{- $registry := (.root.Values.global).imageRegistry | default .image.registry }}
{{- $name := printf "%s:%s" .image.repository .image.tag -}}
image: {{ printf "%s%s%s" (empty $registry | ternary "" (printf "%v/" $registry)) $name (empty .image.digest | ternary "" (printf "@%v" .image.digest)) | quote }}
imagePullPolicy: {{ .image.pullPolicy | default "IfNotPresent" }}
{{- end }}

{{/* The resources of a container that does little. */}}
{{- define "wordpress.initResources" -}}
resources:
  {{- toYaml (.Values.initResources | default dict) | nindent 2 }}
{{- end }}

{{/* Labels of a pod of a tier, and its annotations. */}}
{{- define "wordpress.podMetadata" -}}
labels:
  {{- include "wordpress.tier" . | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The environment of a container that connects as WordPress does. */}}
{{- define "wordpress.password" -}}
valueFrom:
  secretKeyRef: {name: {{ include "wordpress.secret" . }}, key: password}
{{- end }}

{{/* Fields of every pod here. */}}
{{- define "wordpress.pod" -}}
automountServiceAccountToken: false
{{- with concat (.Values.imagePullSecrets | default list) ((.Values.global).imagePullSecrets | default list) }}
imagePullSecrets:
{{- range . }}
- name: {{ kindIs "string" . | ternary . (get (kindIs "map" . | ternary . dict) "name") | quote }}
{{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* No container runs as root. */}}
{{- define "wordpress.unprivileged" -}}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
{{- end }}

{{/* The container that gives a volume to the user that writes there, because not every kind of volume supports fsGroup; the only one that
     runs as root. An item of a list, or nothing. Arguments: root, the volume's name, its path, the user's number. */}}
{{- define "wordpress.prepares" -}}
{{- if dig "enabled" true (.root.Values.volumePermissions | default dict) -}}
- name: volume
  {{- include "wordpress.preparer" . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "wordpress.preparer" -}}
{{ include "wordpress.image" (dict "root" .root "image" .root.Values.initImage) }}
command: [sh, -c, 'chown "$1:$1" "$0" || echo "$0 stays as it is"', {{ .place }}, {{ .user | quote }}]
securityContext:
  runAsUser: 0
  runAsGroup: 0
  runAsNonRoot: false
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL], add: [CHOWN]}
{{ include "wordpress.initResources" .root }}
volumeMounts:
- {name: {{ .volume }}, mountPath: {{ .place }}}
{{- end }}

{{/* A volume that outlives the release. Arguments: root, name, tier, size, class. */}}
{{- define "wordpress.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .name }}
  labels:
    {{- include "wordpress.tier" . | nindent 4 }}
    {{- include "wordpress.labels" .root | nindent 4 }}
  annotations:
    helm.sh/resource-policy: keep
spec:
  accessModes: [ReadWriteOnce]
  {{- with .class | default (.root.Values.global).storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ .size }}
{{- end }}
