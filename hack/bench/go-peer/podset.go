package main

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var groupVersion = schema.GroupVersion{Group: "app.example.com", Version: "v1alpha1"}

// PodSet is as much of a PodSet as is read and written here.
type PodSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              PodSetSpec   `json:"spec,omitempty"`
	Status            PodSetStatus `json:"status,omitempty"`
}

// PodSetSpec says how many pods are wanted.
type PodSetSpec struct {
	Replicas int32 `json:"replicas"`
}

// PodSetStatus says how many there are.
type PodSetStatus struct {
	AvailableReplicas  int32    `json:"availableReplicas"`
	ReadyReplicas      int32    `json:"readyReplicas"`
	ObservedGeneration int64    `json:"observedGeneration"`
	PodNames           []string `json:"podNames,omitempty"`
}

func (s *PodSetStatus) equals(other *PodSetStatus) bool {
	return s.AvailableReplicas == other.AvailableReplicas && s.ReadyReplicas == other.ReadyReplicas &&
		s.ObservedGeneration == other.ObservedGeneration && slices.Equal(s.PodNames, other.PodNames)
}

// DeepCopy copies all of it.
func (s *PodSet) DeepCopy() *PodSet {
	copied := *s
	s.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	copied.Status.PodNames = slices.Clone(s.Status.PodNames)
	return &copied
}

// DeepCopyObject is DeepCopy as the client wants it.
func (s *PodSet) DeepCopyObject() runtime.Object { return s.DeepCopy() }

// PodSetList is a list of them.
type PodSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodSet `json:"items"`
}

// DeepCopyObject copies all of it.
func (l *PodSetList) DeepCopyObject() runtime.Object {
	copied := *l
	copied.Items = make([]PodSet, len(l.Items))
	for i := range l.Items {
		copied.Items[i] = *l.Items[i].DeepCopy()
	}
	return &copied
}
