{{/* The name of the Deployment, and how all other names begin: the release's, with the chart's in it. */}}
{{- define "podset-operator.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* By which the Deployment knows its pods. */}}
{{- define "podset-operator.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "podset-operator.labels" -}}
{{ include "podset-operator.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* What the controllers need where they watch: config/rbac/role.yaml has the reasons. */}}
{{- define "podset-operator.rules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, get, create, delete, patch]
- apiGroups: [app.example.com]
  resources: [podsets]
  verbs: [list, watch, get]
- apiGroups: [app.example.com]
  resources: [podsets/status]
  verbs: [patch]
- apiGroups: [app.example.com]
  resources: [podsets/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [create, get, patch, list, delete]
- apiGroups: [poc.test.domain]
  resources: [mycustomresources]
  verbs: [list, watch, get]
- apiGroups: [poc.test.domain]
  resources: [mycustomresources/status]
  verbs: [patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}

{{/* To whom a binding gives. */}}
{{- define "podset-operator.subjects" -}}
- kind: ServiceAccount
  name: {{ include "podset-operator.name" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
