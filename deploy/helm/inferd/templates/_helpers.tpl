{{- define "inferd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* 52: a Service is called that and -headless, and names have 63 characters at most. */}}
{{- define "inferd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "inferd.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "inferd.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "inferd.selector" -}}
app.kubernetes.io/name: {{ include "inferd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "inferd.labels" -}}
{{ include "inferd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "inferd.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{/* What a container may do: nothing but run, and write to its own volumes. */}}
{{- define "inferd.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop:
    - ALL
{{- end -}}

{{- define "inferd.onePort" -}}
{{- if eq (int .Values.server.ports.http) (int .Values.server.ports.grpc) }}true{{ end -}}
{{- end -}}

{{- define "inferd.metricsOnHttp" -}}
{{- if eq (int .Values.server.ports.http) (int .Values.server.ports.metrics) }}true{{ end -}}
{{- end -}}

{{/* The name of the container's port that has gRPC, and of the one that has the metrics. */}}
{{- define "inferd.grpcPortName" -}}
{{- if include "inferd.onePort" . }}http{{ else }}grpc{{ end -}}
{{- end -}}

{{- define "inferd.metricsPortName" -}}
{{- if include "inferd.metricsOnHttp" . }}http{{ else }}metrics{{ end -}}
{{- end -}}
