{{/* The name of the Deployment, and the prefix of all other names: the name of the release, which includes that of the chart. */}}
{{- define "podset-operator.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels by which the Deployment selects its pods. */}}
{{- define "podset-operator.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "podset-operator.labels" -}}
{{ include "podset-operator.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The permissions of the controllers in the namespaces that they watch. */}}
{{- define "podset-operator.rules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs:
    - list # fill the caches; list all pods of a namespace before a new leader's first write to a set in it
    - watch # keep the caches up to date; see the friend of a MyCustomResource come and go
    - get # find out which pod has a name that is taken, and whether a pod that the watch lost still exists
    - create # scale up
    - delete # scale down, update, and remove older finished pods
    - patch # restore the label that the watch of pods selects
- apiGroups: [app.example.com]
  resources: [podsets]
  verbs:
    - list # fill the cache; list the sets of a namespace before a new leader's first write there
    - watch # keep the cache up to date
    - get # check that a set still exists when its pods are lost or its pod names are taken; find out why a status was rejected
- apiGroups: [app.example.com]
  resources: [podsets/status]
  verbs:
    - patch # write the status, by server-side apply
- apiGroups: [app.example.com]
  resources: [podsets/finalizers]
  verbs:
    - update # set blockOwnerDeletion in the pods' owner reference, which OpenShift rejects without this permission
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs:
    - create # store each new template before pods are created from it
    - get # read a former template for a replacement during a rollout; check whether a template is stored
    - patch # increase the revision of a former template that becomes current again
    - list # find the newest, and those that are no longer needed
    - delete # delete them
- apiGroups: [poc.test.domain]
  resources: [mycustomresources]
  verbs:
    - list # fill the cache
    - watch # keep the cache up to date
    - get # find out why a status was rejected
- apiGroups: [poc.test.domain]
  resources: [mycustomresources/status]
  verbs:
    - patch # write the status, by server-side apply
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs:
    - create # `kubectl describe podset` shows them
{{- end -}}

{{/* The subjects of a role binding. */}}
{{- define "podset-operator.subjects" -}}
- kind: ServiceAccount
  name: {{ include "podset-operator.name" . }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}
