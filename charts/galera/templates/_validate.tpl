{{/* Values that a schema cannot judge, with messages that say how to correct them. No password is ever printed. */}}

{{- define "galera.validate" -}}
{{- include "galera.validate.name" . }}
{{- include "galera.validate.count" . }}
{{- include "galera.validate.volume" . }}
{{- include "galera.validate.image" . }}
{{- include "galera.validate.ports" . }}
{{- include "galera.validate.method" . }}
{{- include "galera.validate.auth" . }}
{{- include "galera.validate.first" . }}
{{- include "galera.validate.secret" . }}
{{- include "galera.validate.tls" . }}
{{- include "galera.validate.metrics" . }}
{{- if .Release.IsInstall }}{{ include "galera.validate.claims" . }}{{ else }}{{ include "galera.validate.upgrade" . }}{{ include "galera.validate.tlsStep" . }}{{ end }}
{{- end }}

{{/* The longest thing made of the name is a label: NAME-galera- and the ten characters of a revision. */}}
{{- define "galera.validate.name" -}}
{{- $name := .Release.Name }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
{{- fail (printf "\ninstance name %q: Services are named after it, so it must begin with a letter and contain only a-z, 0-9 and -" $name) }}
{{- end }}
{{- if gt (len $name) 45 }}
{{- fail (printf "\ninstance name %q has %d characters: the members' label controller-revision-hash, %s-galera- and 10 more, would have %d, and 63 are the limit; choose a name of at most 45 characters" $name (len $name) $name (add (len $name) 18)) }}
{{- end }}
{{- end }}

{{- define "galera.validate.count" -}}
{{- $count := int .Values.nodeCount }}
{{- if lt $count 1 }}
{{- fail (printf "\nnodeCount %d would stop the whole cluster, and no member could start it again by itself; set nodeCount to 3 or more" $count) }}
{{- end }}
{{- if gt $count 31 }}
{{- fail (printf "\nnodeCount %d: each member applies every write, and the address list of more than 31 does not fit into a line of an option file; set nodeCount to 31 or fewer" $count) }}
{{- end }}
{{- if not .Values.allowEvenOrSmall }}
{{- if lt $count 3 }}
{{- fail (printf "\nnodeCount %d: fewer than 3 members cannot lose one and continue; set nodeCount to 3, or for a test allowEvenOrSmall=true" $count) }}
{{- end }}
{{- if eq (mod $count 2) 0 }}
{{- fail (printf "\nnodeCount %d: an even number of members can split into halves, and both stop; set nodeCount to %d or %d, or for a test allowEvenOrSmall=true" $count (sub $count 1) (add $count 1)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The API server writes 1.5Ti as 1536Gi: sizes are compared as numbers. */}}
{{- define "galera.bytes" -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "m" 0.001 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 }}
{{- $unit := regexFind "[A-Za-z]+$" . }}
{{- mulf (float64 (trimSuffix $unit .)) (get $units $unit) }}
{{- end }}

{{- define "galera.validate.volume" -}}
{{- $size := .Values.volumeSize }}
{{- if not (regexMatch "^[0-9]{1,15}(\\.[0-9]{1,9})?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$" $size) }}
{{- fail (printf "\nvolumeSize %q is not a size: write it like 8Gi or 500Gi" $size) }}
{{- end }}
{{- if lt (include "galera.bytes" $size | float64) 1073741824.0 }}
{{- fail (printf "\nvolumeSize %s is too small: an empty server with its logs and its write-set cache needs most of 1Gi; set volumeSize to 1Gi or more" $size) }}
{{- end }}
{{- end }}

{{- define "galera.validate.image" -}}
{{- range $key := list "image" "initImage" }}
{{- $tag := (get $.Values $key).tag }}
{{- if has $tag (list "" "latest") }}
{{- fail (printf "\n%s.tag %q is not a version: members that restart on different days would run different servers; set %s.tag to a version" $key $tag $key) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "galera.validate.metrics" -}}
{{- with .Values.metrics }}{{ if and .enabled (not .existingSecret) }}
{{- fail "\nmetrics.enabled without metrics.existingSecret: the exporter logs in to the members, so it needs an account; README.md of the chart shows how to make it" }}
{{- end }}{{ end }}
{{- end }}

{{- define "galera.validate.ports" -}}
{{- $ports := include "galera.listens" . | fromJson }}
{{- $all := list (int $ports.mysql) (int $ports.sst) (int $ports.replication) (int $ports.ist) }}
{{- if ne (len $all) (len (uniq $all)) }}
{{- fail (printf "\nports %v: a server cannot listen twice at one; give mysql, sst, replication and ist a port each" $all) }}
{{- end }}
{{- $config := .Values.config | default "" }}
{{- if and (regexMatch "(?m)^[ \\t]*port[ \\t]*=" $config) (not (contains "[client" $config)) }}
{{- fail "\nconfig sets port: probes and Services would not know of it; take it out, and set ports.mysql" }}
{{- end }}
{{- if and (include "galera.announcesIst" .) (regexMatch "wsrep[-_]provider[-_]options" $config) }}
{{- fail (printf "\nports.ist %d is not the next after ports.replication %d, so it is given with wsrep_provider_options on the command line, where those in config do not count; set ports.ist to %d, or take wsrep_provider_options out of config" (int $ports.ist) (int $ports.replication) (add1 (int $ports.replication))) }}
{{- end }}
{{- end }}

{{/* The server takes a dump only if its own tables are there. */}}
{{- define "galera.validate.method" -}}
{{- if eq (include "galera.method" .) "mysqldump" }}
{{- fail "\nconfig sets wsrep_sst_method=mysqldump: a member begins with an empty volume, and a server without tables cannot take a dump, so it would never join; leave mariabackup, which is the default, or use rsync" }}
{{- end }}
{{- end }}

{{- define "galera.validate.auth" -}}
{{- $auth := .Values.auth }}
{{- range $key := list "rootPassword" "sstPassword" "password" }}
{{- $password := get $auth $key | default "" }}
{{- if and $password $auth.existingSecret }}
{{- fail (printf "\nauth.%s and auth.existingSecret are both set: the Secret %s holds the passwords; take auth.%s out" $key $auth.existingSecret $key) }}
{{- end }}
{{- if not (regexMatch "^[ -~]*$" $password) }}
{{- fail (printf "\nauth.%s holds a character that is not printable ASCII (a line break, a tab, an accent): option files and clients do not agree on those; choose another" $key) }}
{{- end }}
{{- if gt (len $password) 128 }}
{{- fail (printf "\nauth.%s has %d characters; 128 are the limit" $key (len $password)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The user and the files of the first start. */}}
{{- define "galera.validate.first" -}}
{{- $auth := .Values.auth }}
{{- if and $auth.password (not $auth.username) }}
{{- fail "\nauth.password is set, and auth.username is not: a password needs a user; set auth.username" }}
{{- end }}
{{- if has $auth.username (list "root" "mysql" "sst" "mariadb.sys") }}
{{- fail (printf "\nauth.username %q is an account that the server or this chart creates; choose another" $auth.username) }}
{{- end }}
{{- range $name, $_ := .Values.bootstrap.scripts }}
{{- if not (regexMatch "^[A-Za-z0-9][-._A-Za-z0-9]*[.](sh|sql)$" $name) }}
{{- fail (printf "\nbootstrap.scripts has the name %q: the image runs files that end in .sh or .sql; rename it" $name) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The Secret that exists already. Without a cluster, as in `helm template`, `lookup` finds none. */}}
{{- define "galera.validate.secret" -}}
{{- $name := include "galera.secret" . }}
{{- with lookup "v1" "Secret" .Release.Namespace $name }}
{{- $data := .data | default dict }}
{{- $auth := $.Values.auth }}
{{- $needed := list "root-password" "sst.cnf" }}
{{- if and $auth.username $.Values.bootstrap.enabled $.Release.IsInstall }}{{ $needed = append $needed "password" }}{{ end }}
{{- range $key := $needed }}
{{- if not (get $data $key) }}
{{- fail (printf "\nSecret %s/%s has no key %s: servers do not start without it; add it (README.md of this chart shows the keys)" $.Release.Namespace $name $key) }}
{{- end }}
{{- end }}
{{- $sst := $auth.sstPassword | default "" | replace `\` `\\` | replace `"` `\"` }}
{{- if or (and $auth.rootPassword (ne $auth.rootPassword (get $data "root-password" | b64dec))) (and $sst (not (contains (printf "\"sst:%s\"\n" $sst) (get $data "sst.cnf" | b64dec)))) (and $auth.password (ne $auth.password (get $data "password" | default "" | b64dec))) }}
{{- fail (printf "\nauth.rootPassword, auth.sstPassword or auth.password is not what Secret %s/%s holds: that Secret is kept; take the values out, and change a password in MariaDB first, then in the Secret" $.Release.Namespace $name) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "galera.validate.tls" -}}
{{- $tls := include "galera.tls" . | fromJson }}
{{- if and $tls.issuerRef (or (.Values.tls.existingSecret) (not $tls.issuerRef.name)) }}
{{- fail "\ntls.issuerRef needs the name of an issuer, and tls.existingSecret must be empty: either cert-manager makes the certificate, or you do" }}
{{- end }}
{{- if and $tls.acceptPlain (not $tls.secret) }}
{{- fail "\ntls.acceptPlain is true, but there is no TLS: set tls.existingSecret or tls.issuerRef.name, or take tls.acceptPlain out" }}
{{- end }}
{{- $config := .Values.config | default "" }}
{{- if and $tls.secret (regexMatch "wsrep[-_]provider[-_]options" $config) (not (contains (include "galera.providerTls" .) $config)) }}
{{- fail (printf "\nconfig sets wsrep_provider_options, and a server uses only the last line of that name: members would not speak the TLS that you chose; add to that line: %s" (include "galera.providerTls" .)) }}
{{- end }}
{{- if and $tls.secret (not $tls.acceptPlain) (regexMatch "(?m)^[^#\n]*socket\\.dynamic[ \\t]*=[ \\t]*(?i:y|true|on|1)" $config) }}
{{- fail "\nconfig sets socket.dynamic, so members would still accept connections without TLS; take it out of wsrep_provider_options, or set tls.acceptPlain=true" }}
{{- end }}
{{- with $tls.secret }}
{{- with lookup "v1" "Secret" $.Release.Namespace . }}
{{- $data := .data | default dict }}
{{- range $key := list "ca.crt" "tls.crt" "tls.key" }}
{{- if not (get $data $key) }}
{{- fail (printf "\nSecret %s/%s has no key %s: pods do not start without it; add it (README.md of this chart shows the three keys)" $.Release.Namespace $tls.secret $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* A bootstrap node founds an empty cluster, and members that join it throw their own data away. */}}
{{- define "galera.validate.claims" -}}
{{- if .Values.bootstrap.enabled }}
{{- $name := .Release.Name }}
{{- range (lookup "v1" "PersistentVolumeClaim" .Release.Namespace "").items }}
{{- $claim := .metadata.name }}
{{- if regexMatch (printf "^%s-datadir-%s-galera-[0-9]+$" $name $name) $claim }}
{{- fail (printf "\nPersistentVolumeClaim %s/%s is left from an earlier installation: a bootstrap node would found an empty cluster, and the data would be lost when its members join.\nTo keep the data: --set bootstrap.enabled=false, and start from the newest member: gatera start %s-galera -n %s (without Gatera: README.md of this chart).\nTo begin again, without the data: kubectl -n %s delete deployment,service,configmap,pvc -l 'app in (galera, galera-bootstrap),instance=%s'" $.Release.Namespace $claim $name $.Release.Namespace $.Release.Namespace $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Changes that the API server would allow, or refuse without a way out. */}}
{{- define "galera.validate.upgrade" -}}
{{- with lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-galera" .Release.Name) }}
{{- $old := int .spec.replicas }}
{{- $new := int $.Values.nodeCount }}
{{- /* From two members one may leave in order, although two have no majority without it. */ -}}
{{- $majority := ternary 1 (add (div $old 2) 1 | int) (eq $old 2) }}
{{- if lt $new $majority }}
{{- $odd := ternary $majority (add $majority 1 | int) (eq (mod $majority 2) 1) }}
{{- $first := ternary (printf "%d first" $odd) (printf "%d first (with allowEvenOrSmall=true)" $majority) (lt $odd $old) }}
{{- fail (printf "\nnodeCount %d -> %d would leave %d of %d members, and %d are a majority: go to %s, and wait until all members are Ready" $old $new $new $old $majority $first) }}
{{- end }}
{{- $ports := include "galera.listens" $ | fromJson }}
{{- range $container := .spec.template.spec.containers }}
{{- range $container.ports }}
{{- if and (eq $container.name "mariadb") (has .name (list "mysql" "replication")) }}
{{- if ne (int .containerPort) (int (get $ports .name)) }}
{{- fail (printf "\nports.%s %d -> %d: a member that restarts would look for the others, and clients for it, where they do not listen; ports.%s is chosen at the installation, so set it to %d" .name (int .containerPort) (int (get $ports .name)) .name (int .containerPort)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- range .spec.volumeClaimTemplates }}
{{- $size := .spec.resources.requests.storage }}
{{- if ne (include "galera.bytes" $size) (include "galera.bytes" $.Values.volumeSize) }}
{{- fail (printf "\nvolumeSize %s -> %s: a StatefulSet's volumes are fixed when it is created. README.md of this chart shows how to enlarge them; until then set volumeSize=%s" $size $.Values.volumeSize $size) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Members with TLS and members without it can connect only with tls.acceptPlain, which all members must have before TLS is
     required, or removed. */}}
{{- define "galera.validate.tlsStep" -}}
{{- $set := lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-galera" .Release.Name) }}
{{- $map := lookup "v1" "ConfigMap" .Release.Namespace (printf "%s-nodeconfig" .Release.Name) }}
{{- if and $set $map (ne (int $set.spec.replicas) 0) }}
{{- $old := get ($map.data | default dict) "galera.cnf" | default "" }}
{{- $was := contains "socket.ssl=yes" $old }}
{{- $accepts := contains "socket.dynamic=yes" $old }}
{{- $tls := include "galera.tls" . | fromJson }}
{{- $new := include "galera.options" . }}
{{- $is := contains "socket.ssl=yes" $new }}
{{- $alone := "a member with TLS and a member without it cannot connect, so the first one that restarts would be alone" }}
{{- if and (ne $was $is) (not $accepts) (not (contains "socket.dynamic=yes" $new)) }}
{{- fail (printf "\ntls: %s; upgrade with a certificate and tls.acceptPlain=true first, and when all members have restarted with that, upgrade again (README.md of this chart)" $alone) }}
{{- end }}
{{- if ne (contains "encrypt = 4" $old) (contains "encrypt = 4" $new) }}
{{- fail "\ntls.copies would change: a joiner and its donor must have the same, so the first member that restarts would not join again; set tls.copies=false for a cluster that moved to TLS (README.md of this chart)" }}
{{- end }}
{{- $status := $set.status | default dict }}
{{- $seen := eq (int64 ($status.observedGeneration | default 0)) (int64 $set.metadata.generation) }}
{{- $rolled := and $seen (eq ($status.currentRevision | default "") ($status.updateRevision | default "")) (eq (int $status.readyReplicas) (int $set.spec.replicas)) }}
{{- if and $accepts (not $tls.acceptPlain) (not $rolled) }}
{{- fail (printf "\ntls: not all members have restarted with tls.acceptPlain=true yet: %s; wait for `kubectl -n %s rollout status statefulset/%s-galera`, and upgrade again; if the rollout hangs, correct the certificate" $alone .Release.Namespace .Release.Name) }}
{{- end }}
{{- end }}
{{- end }}
