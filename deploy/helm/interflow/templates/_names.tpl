{{- define "interflow.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}

{{- define "interflow.selector" -}}
app.kubernetes.io/name: interflow
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "interflow.labels" -}}
{{ include "interflow.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "interflow.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "interflow.name" .) "default" .Values.serviceAccount.create) }}
{{- end -}}

{{/* "true" if there is, or may be, more than one replica. */}}
{{- define "interflow.replicated" -}}
{{- if or (and .Values.autoscaling.enabled (gt (int .Values.autoscaling.maxReplicas) 1)) (and (not .Values.autoscaling.enabled) (gt (int .Values.replicas) 1)) -}}
true
{{- end -}}
{{- end -}}

{{/* The names of a Service inside the cluster, and those of the second argument, as a JSON list. */}}
{{- define "interflow.hosts" -}}
{{- $service := index . 0 -}}{{- $namespace := index . 1 -}}
{{- $own := list -}}
{{- range list "" ".svc" ".svc.cluster.local" -}}
{{- $own = append $own (printf "%s.%s%s" $service $namespace .) -}}
{{- end -}}
{{- concat (list $service) $own (index . 2) | uniq | toJson -}}
{{- end -}}

{{- /* The address of all interfaces. */ -}}
{{- define "interflow.anyAddress" -}}
{{ eq .Values.ipFamily "IPv6" | ternary "[::]" "0.0.0.0" }}
{{- end }}

{{- define "interflow.ipFamilies" -}}
{{- if eq .Values.ipFamily "IPv6" }}
ipFamilyPolicy: SingleStack
ipFamilies: [IPv6]
{{- end }}
{{- end }}
