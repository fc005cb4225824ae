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
