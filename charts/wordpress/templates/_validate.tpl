{{/* Values that a schema cannot judge, with messages that say how to correct them. No password is ever printed. */}}

{{- define "wordpress.validate" -}}
{{- $prefix := .Values.namePrefix }}
{{- if not (regexMatch "^([a-z][-a-z0-9]{0,40})?$" $prefix) }}
{{- fail (printf "\nnamePrefix %q: Services are named after it, so it must begin with a letter and hold at most 41 of a-z, 0-9 and -" $prefix) }}
{{- end }}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" .Release.Name) }}
{{- fail (printf "\nrelease name %q is a label of every object, so it may contain only a-z, 0-9 and -" .Release.Name) }}
{{- end }}
{{- $database := .Values.database }}
{{- range $key, $image := dict "image" .Values.image "initImage" .Values.initImage "database.image" $database.image }}
{{- if has $image.tag (list "" "latest") }}
{{- fail (printf "\n%s.tag %q is not a version: a pod that restarts another day would run another version; set %s.tag to a version" $key $image.tag $key) }}
{{- end }}
{{- end }}
{{- if and $database.galeraSecret (not $database.galera) }}
{{- fail "\ndatabase.galeraSecret is set, and database.galera names no cluster; name it, or take database.galeraSecret out" }}
{{- end }}
{{- if has $database.user (list "root" "sst" "mysql" "mariadb.sys") }}
{{- fail (printf "\ndatabase.user %s is an account of the server with rights of its own: choose another name" $database.user) }}
{{- end }}
{{- include "wordpress.validate.secret" . }}
{{- if .Release.IsInstall }}{{ include "wordpress.validate.names" . }}{{ else }}{{ include "wordpress.validate.upgrade" . }}{{ end }}
{{- end }}

{{/* A Secret of your own. Without a cluster, as in `helm template`, `lookup` finds none. */}}
{{- define "wordpress.validate.secret" -}}
{{- with .Values.auth.existingSecret }}
{{- with lookup "v1" "Secret" $.Release.Namespace . }}
{{- $data := .data | default dict }}
{{- range $key := ternary (list "password") (list "password" "root-password") (ne $.Values.database.galera "") }}
{{- if not (get $data $key) }}
{{- fail (printf "\nSecret %s/%s has no key %s: pods do not start without it; add it (README.md of this chart shows the keys)" $.Release.Namespace $.Values.auth.existingSecret $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Helm's own errors in these cases name no way out. */}}
{{- define "wordpress.validate.names" -}}
{{- $claim := printf "%smysql-pv-claim" .Values.namePrefix }}
{{- $secret := include "wordpress.secret" . }}
{{- if and (not .Values.database.galera) (lookup "v1" "PersistentVolumeClaim" .Release.Namespace $claim) (not (lookup "v1" "Secret" .Release.Namespace $secret)) }}
{{- fail (printf "\nPersistentVolumeClaim %s/%s is left from an earlier installation, and Secret %s is not there: the database on it keeps its old passwords, and WordPress could not log in. Create the Secret with the old `password` and `root-password` first; or, without the data: kubectl -n %s delete pvc %s" .Release.Namespace $claim $secret .Release.Namespace $claim) }}
{{- end }}
{{- range $name := list "wordpress" "wordpress-mysql" }}
{{- $name = printf "%s%s" $.Values.namePrefix $name }}
{{- with lookup "apps/v1" "Deployment" $.Release.Namespace $name }}
{{- $owner := get (.metadata.annotations | default dict) "meta.helm.sh/release-name" }}
{{- if ne $owner $.Release.Name }}
{{- fail (printf "\nDeployment %s/%s is there already, and %s: a second WordPress in a namespace needs its own names: --set namePrefix=%s-" $.Release.Namespace $name (ternary (printf "release %s made it" $owner) "it belongs to no release" (ne $owner "")) $.Release.Name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* A release stays on the database that has its posts. */}}
{{- define "wordpress.validate.upgrade" -}}
{{- with lookup "apps/v1" "Deployment" .Release.Namespace (printf "%swordpress" .Values.namePrefix) }}
{{- range (index .spec.template.spec.containers 0).env }}
{{- if eq .name "WORDPRESS_DB_HOST" }}
{{- $host := include "wordpress.databaseHost" $ }}
{{- if and .value (ne .value $host) }}
{{- fail (printf "\ndatabase.galera: WordPress would move from %s to %s, where its posts are not. Dump the database there and load it here first, then delete Deployment %swordpress and run this again" .value $host $.Values.namePrefix) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
