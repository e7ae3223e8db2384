{{/* Names, labels and what several objects share. */}}

{{- define "galera.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The selector of the members' pods. Never add to it: selectors cannot be changed. */}}
{{- define "galera.members" -}}
app: galera
instance: {{ .Release.Name }}
{{- end }}

{{/* The selector of the exporter's pod. */}}
{{- define "galera.exporter" -}}
app: galera-exporter
instance: {{ .Release.Name }}
{{- end }}

{{- define "galera.secret" -}}
{{ .Values.auth.existingSecret | default (printf "%s-secret" .Release.Name) }}
{{- end }}

{{/* The name of the Galera cluster, for which MariaDB takes at most 32 bytes. */}}
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

{{/* The fields about a container's image. Arguments: root, and an image of the values. */}}
{{- define "galera.image" -}}
{{- $registry := (.root.Values.global).imageRegistry | default .image.registry }}
{{- $name := printf "%s:%s" .image.repository .image.tag -}}
image: {{ printf "%s%s%s" (empty $registry | ternary "" (printf "%v/" $registry)) $name (empty .image.digest | ternary "" (printf "@%v" .image.digest)) | quote }}
imagePullPolicy: {{ .image.pullPolicy | default "IfNotPresent" }}
{{- end }}

{{/* Fields of every pod of this chart about images and nodes. */}}
{{- define "galera.placed" -}}
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

{{/* The resources of a container that does little. */}}
{{- define "galera.initResources" -}}
{{- with .Values.initResources -}}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The value `tls`, which is missing after `helm upgrade --reuse-values` of an older release. With `secret`: the Secret with the
     certificate, or empty without TLS. */}}
{{- define "galera.tls" -}}
{{- $tls := .Values.tls | default dict }}
{{- $made := ternary (printf "%s-tls" .Release.Name) "" (not (empty $tls.issuerRef)) }}
{{- dict "secret" ($tls.existingSecret | default $made) "issuerRef" ($tls.issuerRef | default dict) "acceptPlain" ($tls.acceptPlain | default false) "copies" (and (dig "copies" true $tls) (not $tls.acceptPlain)) | toJson }}
{{- end }}

{{/* Options of every server, all but the address. */}}
{{- define "galera.options" -}}
{{- $tls := include "galera.tls" . | fromJson }}
{{- if and $tls.secret $tls.copies -}}
# A donor and its joiner need the same, also for missed writes: a running cluster cannot change it.
[sst]
encrypt = 4
tkey = /etc/mysql/tls/tls.key
tcert = /etc/mysql/tls/tls.crt
tca = /etc/mysql/tls/ca.crt
{{ end -}}
[mariadbd]
wsrep_on = ON
wsrep_provider = /usr/lib/galera/libgalera_smm.so
wsrep_provider_options = {{ include "galera.provider" . | quote }}
wsrep_cluster_name = {{ include "galera.clusterName" . }}
wsrep_sst_method = mariabackup
# The server tells its state here; probes and the preStop hook read it.
wsrep_status_file = /run/gatera/wsrep_status.json
binlog_format = ROW
innodb_autoinc_lock_mode = 2
innodb_flush_log_at_trx_commit = 1
ignore_db_dirs = lost+found
{{- with int (include "galera.listens" . | fromJson).mysql }}{{ if ne . 3306 }}
port = {{ . }}
{{- end }}{{ end }}
{{- if $tls.secret }}
ssl_key = /etc/mysql/tls/tls.key
ssl_cert = /etc/mysql/tls/tls.crt
ssl_ca = /etc/mysql/tls/ca.crt
{{- end }}
{{- with .Values.config }}
# from the value `config`
{{ . | trimSuffix "\n" }}
{{- end }}
{{- end }}

{{/* The value `ports`, which is missing after `helm upgrade --reuse-values` of an older release. */}}
{{- define "galera.listens" -}}
{{- merge dict (.Values.ports | default dict) (dict "mysql" 3306 "sst" 4444 "replication" 4567 "ist" 4568) | toJson }}
{{- end }}

{{/* Members find each other at the base port, and receive missed writes at the next. */}}
{{- define "galera.provider" -}}
gcache.size={{ .Values.gcacheSize }}{{ with int (include "galera.listens" . | fromJson).replication }}{{ if ne . 4567 }};base_port={{ . }}{{ end }}{{ end }}{{ with include "galera.providerTls" . }};{{ . }}{{ end }}
{{- end }}

{{/* With `socket.dynamic` a member connects to members with TLS and to members without it. */}}
{{- define "galera.providerTls" -}}
{{- with include "galera.tls" . | fromJson }}{{ if .secret }}socket.ssl=yes;socket.ssl_key=/etc/mysql/tls/tls.key;socket.ssl_cert=/etc/mysql/tls/tls.crt;socket.ssl_ca=/etc/mysql/tls/ca.crt{{ if .acceptPlain }};socket.dynamic=yes{{ end }}{{ end }}{{ end }}
{{- end }}

{{/* The method of state transfer that config chooses; its last line counts. */}}
{{- define "galera.method" -}}
{{- $line := regexFindAll `(?m)^[ \t]*wsrep[-_]sst[-_]method[ \t]*=.*$` (.Values.config | default "" | toString) -1 | last | default "" }}
{{- regexReplaceAll `^[^=]*=[ \t]*["']?([^"'# \t\r]*).*$` $line "${1}" | trim }}
{{- end }}

{{/* Not empty if members have to announce where they receive missed writes. */}}
{{- define "galera.announcesIst" -}}
{{- with include "galera.listens" . | fromJson }}{{ if ne (int .ist) (add1 (int .replication) | int) }}yes{{ end }}{{ end }}
{{- end }}

{{- define "galera.arguments" -}}
mariadbd
{{- with int (include "galera.listens" . | fromJson).sst }}{{ if ne . 4444 }}, "--wsrep-sst-receive-address=$(POD_IP):{{ . }}"{{ end }}{{ end }}
{{- if include "galera.announcesIst" . }}, "--wsrep-provider-options={{ include "galera.provider" . }};ist.recv_addr=$(POD_IP):{{ int (include "galera.listens" . | fromJson).ist }}"{{ end }}
{{- end }}

{{/* Variables with the ports for probes, preStop hook and step script, if they are not the default. */}}
{{- define "galera.lookAt" -}}
{{- $ports := include "galera.listens" . | fromJson }}
{{- $usual := dict "mysql" 3306 "sst" 4444 "replication" 4567 "ist" 4568 }}
{{- $names := dict "mysql" "GATERA_PORT" "sst" "GATERA_SST_PORT" "replication" "GATERA_GROUP_PORT" "ist" "GATERA_IST_PORT" }}
{{- range $port := list "mysql" "sst" "replication" "ist" }}
{{- with int (get $ports $port) }}{{ if ne . (get $usual $port) }}
- {name: {{ get $names $port }}, value: {{ quote . }}}
{{- end }}{{ end }}
{{- end }}
{{- if or (ne (int $ports.sst) 4444) (include "galera.announcesIst" .) }}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
{{- end }}
{{- end }}

{{- define "galera.ports" -}}
{{- with include "galera.listens" . | fromJson -}}
- {name: mysql, port: {{ int .mysql }}}
- {name: sst, port: {{ int .sst }}}
- {name: replication, port: {{ int .replication }}}
- {name: ist, port: {{ int .ist }}}
{{- end }}
{{- end }}

{{/* Annotations of a server's pod: the given ones, and one that lets a node with the volume gatera-run be removed. */}}
{{- define "galera.annotations" -}}
{{- $key := "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes" }}
{{- toYaml (merge (dict $key (append (splitList "," (get . $key | default "" | replace " " "")) "gatera-run" | compact | uniq | join ",")) .) }}
{{- end }}

{{/* The value `podSecurity`, which is missing after `helm upgrade --reuse-values` of an older release. */}}
{{- define "galera.podSecurity" -}}
{{ .Values.podSecurity | default "baseline" }}
{{- end }}

{{/* The capabilities of a container: none, or in a pod that starts as root those of the argument `add`. */}}
{{- define "galera.capabilities" -}}
capabilities: {drop: [ALL]{{ if ne (include "galera.podSecurity" .root) "restricted" }}, add: [{{ .add }}]{{ end }}}
{{- end }}

{{/* Fields of a pod with a server in it. */}}
{{- define "galera.pod" -}}
automountServiceAccountToken: false
terminationGracePeriodSeconds: 600
securityContext:
  seccompProfile: {type: RuntimeDefault}
  {{- if eq (include "galera.podSecurity" .) "restricted" }}
  # The user `mysql` of the official image.
  runAsNonRoot: true
  runAsUser: 999
  runAsGroup: 999
  fsGroup: 999
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
{{- include "galera.placed" . }}
{{- end }}

{{/* The beginning of the server container, up to its environment. */}}
{{- define "galera.server" -}}
name: mariadb
{{ include "galera.image" (dict "root" . "image" .Values.image) }}
# The step script: after a crash, it starts the server from the position of its data.
command: [sh, /etc/galera/start-member.sh, docker-entrypoint.sh]
args: [{{ include "galera.arguments" . }}]
env:
- name: MARIADB_ROOT_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ include "galera.secret" . }}, key: root-password}
{{- include "galera.lookAt" . }}
{{- end }}

{{/* The rest of the server container, after its environment. Usually the image starts as root, gives the data to its own user and
     becomes that user, for which it needs these capabilities, and KILL to pass SIGTERM on to the server. */}}
{{- define "galera.serves" -}}
{{- $ports := include "galera.listens" . | fromJson -}}
ports:
- {name: mysql, containerPort: {{ int $ports.mysql }}}
- {name: sst, containerPort: {{ int $ports.sst }}}
- {name: replication, containerPort: {{ int $ports.replication }}}
- {name: ist, containerPort: {{ int $ports.ist }}}
securityContext:
  allowPrivilegeEscalation: false
  {{ include "galera.capabilities" (dict "root" . "add" "CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID") }}
terminationMessagePolicy: FallbackToLogsOnError
# A member has an hour to copy the whole database.
startupProbe:
  exec: {command: [/etc/galera/wait-for-sync.sh, started]}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 1800
{{- /* A donor answers no client while it copies by one of these methods. */}}
{{- $blocks := has (include "galera.method" .) (list "rsync" "rsync_wan") }}
readinessProbe:
  exec: {command: [/etc/galera/wait-for-sync.sh, ready{{ if $blocks }}, blocking{{ end }}]}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
livenessProbe:
  tcpSocket: {port: {{ int $ports.mysql }}}
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
{{- if (include "galera.tls" . | fromJson).secret }}
- {name: tls, mountPath: /etc/mysql/tls, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The volumes of those mounts. Arguments: root, the ConfigMap with the option file, the one with the scripts. */}}
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
{{- with (include "galera.tls" .root | fromJson).secret }}
# Readable by every user of the pod, because the server is not root: an fsGroup would change the group of all data, too.
- name: tls
  secret:
    secretName: {{ . }}
    items: [{key: ca.crt, path: ca.crt}, {key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The affinity of members: the given one, and with antiAffinity no two on one node. */}}
{{- define "galera.affinity" -}}
{{- $affinity := deepCopy (.Values.affinity | default dict) }}
{{- if .Values.antiAffinity }}
{{- $matches := list (dict "key" "app" "operator" "In" "values" (list "galera")) (dict "key" "instance" "operator" "In" "values" (list .Release.Name)) }}
{{- $apart := dict "labelSelector" (dict "matchExpressions" $matches) "topologyKey" "kubernetes.io/hostname" }}
{{- $anti := $affinity.podAntiAffinity | default dict }}
{{- $key := "requiredDuringSchedulingIgnoredDuringExecution" }}
{{- $_ := set $anti $key (prepend (get $anti $key | default list) $apart) }}
{{- $_ := set $affinity "podAntiAffinity" $anti }}
{{- end }}
{{- with $affinity -}}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
