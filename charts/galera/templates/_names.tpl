{{/* Names, labels and what several objects share. */}}

{{- define "galera.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* What selects the members' pods. Never more than this: selectors cannot be changed. */}}
{{- define "galera.members" -}}
app: galera
instance: {{ .Release.Name }}
{{- end }}

{{- define "galera.secret" -}}
{{ .Values.auth.existingSecret | default (printf "%s-secret" .Release.Name) }}
{{- end }}

{{/* MariaDB takes at most 32 bytes. */}}
{{- define "galera.clusterName" -}}
{{- $name := printf "%s-%s" .Release.Namespace .Release.Name -}}
{{- if le (len $name) 32 }}{{ $name }}{{ else }}{{ printf "%s-%s" ($name | trunc 23) ($name | sha256sum | trunc 8) }}{{ end -}}
{{- end }}

{{/* A member's name below its governing Service: I-galera-0.I-hs */}}
{{- define "galera.hosts" -}}
{{- $name := .Release.Name -}}
{{- range $ordinal := until (int .Values.nodeCount) }}{{ if $ordinal }},{{ end }}{{ $name }}-galera-{{ $ordinal }}.{{ $name }}-hs{{ end -}}
{{- end }}

{{- define "galera.removeBootstrap" -}}
kubectl -n {{ .Release.Namespace }} delete deployment/{{ .Release.Name }}-bootstrap service/{{ .Release.Name }}-bootstrap-svc configmap/{{ .Release.Name }}-bootstrap
{{- end }}

{{- define "galera.image" -}}
image: {{ printf "%s:%s" .repository .tag | quote }}
imagePullPolicy: {{ .pullPolicy | default "IfNotPresent" }}
{{- end }}

{{/* Options of every server, all but the address. */}}
{{- define "galera.options" -}}
[mariadbd]
wsrep_on = ON
wsrep_provider = /usr/lib/galera/libgalera_smm.so
wsrep_provider_options = "gcache.size={{ .Values.gcacheSize }}"
wsrep_cluster_name = {{ include "galera.clusterName" . }}
wsrep_sst_method = mariabackup
# The server tells its state here; probes and the preStop hook read it.
wsrep_status_file = /run/gatera/wsrep_status.json
binlog_format = ROW
innodb_autoinc_lock_mode = 2
innodb_flush_log_at_trx_commit = 1
ignore_db_dirs = lost+found
{{- with .Values.config }}
# from the value `config`
{{ . | trimSuffix "\n" }}
{{- end }}
{{- end }}

{{- define "galera.ports" -}}
- {name: mysql, port: 3306}
- {name: sst, port: 4444}
- {name: replication, port: 4567}
- {name: ist, port: 4568}
{{- end }}

{{/* Annotations of a server's pod: those given, and that nothing in the volume gatera-run is worth keeping a node for. */}}
{{- define "galera.annotations" -}}
{{- toYaml (merge dict . (dict "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes" "gatera-run")) }}
{{- end }}

{{/* Of a pod with a server in it. */}}
{{- define "galera.pod" -}}
automountServiceAccountToken: false
terminationGracePeriodSeconds: 600
securityContext:
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
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

{{/* The server container, without its mounts. The image starts as root, gives the data to its own user and becomes that
     user: those are the capabilities, and KILL, to pass SIGTERM on to it. */}}
{{- define "galera.server" -}}
name: mariadb
{{ include "galera.image" .Values.image }}
# In front of the server: after a crash it starts from where its data is.
command: [sh, /etc/galera/start-member.sh, docker-entrypoint.sh]
args: [mariadbd]
env:
- name: MARIADB_ROOT_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ include "galera.secret" . }}, key: root-password}
{{- end }}

{{/* The rest of it, after its environment. */}}
{{- define "galera.serves" -}}
ports:
- {name: mysql, containerPort: 3306}
- {name: sst, containerPort: 4444}
- {name: replication, containerPort: 4567}
- {name: ist, containerPort: 4568}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL], add: [CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID]}
terminationMessagePolicy: FallbackToLogsOnError
# An hour to copy the whole database.
startupProbe:
  exec: {command: [/etc/galera/wait-for-sync.sh, started]}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 1800
readinessProbe:
  exec: {command: [/etc/galera/wait-for-sync.sh, ready]}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
livenessProbe:
  tcpSocket: {port: 3306}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
lifecycle:
  preStop:
    exec: {command: [/etc/galera/wait-for-sync.sh, leave, "540"]}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "galera.mounts" -}}
- {name: config, mountPath: /etc/mysql/conf.d}
- {name: node-scripts, mountPath: /etc/galera}
- {name: gatera-run, mountPath: /run/gatera}
{{- end }}

{{/* Those mounts' volumes. Arguments: root, the ConfigMap with the option file, the one with the script. */}}
{{- define "galera.volumes" -}}
- name: config
  projected:
    sources:
    - configMap:
        name: {{ .config }}
        items: [{key: galera.cnf, path: galera.cnf}]
    - secret:
        name: {{ include "galera.secret" .root }}
        items: [{key: sst.cnf, path: sst.cnf}]
- name: node-scripts
  configMap:
    name: {{ .scripts }}
    defaultMode: 0755
    items: [{key: wait-for-sync.sh, path: wait-for-sync.sh}, {key: start-member.sh, path: start-member.sh}]
- name: gatera-run
  emptyDir: {}
{{- end }}
