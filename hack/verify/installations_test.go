// The chart looks for another installation before it installs: rendered with a cluster that has some Leases.
package verify

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/engine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// A cluster of which one list can be asked, by the chart's lookup.
type cluster struct {
	dynamic.NamespaceableResourceInterface
	leases []unstructured.Unstructured
	err    error
}

func (c cluster) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	if apiVersion != "coordination.k8s.io/v1" || kind != "Lease" {
		return nil, false, fmt.Errorf("the chart looks up %s %s", apiVersion, kind)
	}
	return c, true, nil
}

func (c cluster) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return &unstructured.UnstructuredList{Object: object{}, Items: c.leases}, c.err
}

func lease(in, name string, spec object) unstructured.Unstructured {
	return unstructured.Unstructured{Object: object{"metadata": object{"namespace": in, "name": name}, "spec": spec}}
}

func TestTheChartInstallsBesideNoOtherInstallation(t *testing.T) {
	held, released := object{"holderIdentity": "operator-1_ab12"}, object{"holderIdentity": "", "leaseDurationSeconds": int64(1)}
	own := object{"holderIdentity": "podset-operator-5d8f7c9b6d-x2k4q_ab12"}
	longer := object{"holderIdentity": "podset-operator-b-5d8f7c9b6d-x2k4q_ab12"}
	other := lease("ops", "podset-operator", held)
	for name, story := range map[string]struct {
		leases  []unstructured.Unstructured
		values  object
		upgrade bool
		refused bool
	}{
		"no Lease":                   {},
		"its own, of a former time":  {leases: []unstructured.Unstructured{lease(namespace, "podset-operator", own)}},
		"another one's, beside it":   {leases: []unstructured.Unstructured{lease(namespace, "podset-operator", held)}, refused: true},
		"one of a longer name":       {leases: []unstructured.Unstructured{lease(namespace, "podset-operator", longer)}, refused: true},
		"one that was released":      {leases: []unstructured.Unstructured{lease("ops", "podset-operator", released)}},
		"one without a spec":         {leases: []unstructured.Unstructured{lease("ops", "podset-operator", nil)}},
		"that of another program":    {leases: []unstructured.Unstructured{lease("ops", "another", held)}},
		"one of the same name":       {leases: []unstructured.Unstructured{lease("ops", "another", held), other}, refused: true},
		"another name is asked for":  {leases: []unstructured.Unstructured{other}, values: object{"leaderElection": object{"resourceName": "mine"}}},
		"a second one is asked for":  {leases: []unstructured.Unstructured{other}, values: object{"allowSecondInstallation": true}},
		"an upgrade of what is here": {leases: []unstructured.Unstructured{other}, upgrade: true},
	} {
		loaded, values, err := prepared("podset-operator", story.values, !story.upgrade)
		must(t, err)
		_, err = engine.RenderWithClientProvider(loaded, values, cluster{leases: story.leases})
		if (err != nil) != story.refused {
			t.Errorf("%s: %v", name, err)
		}
		for _, words := range []string{
			"/podset-operator (holder ", "leaderElection.resourceName=NAME", "allowSecondInstallation=true", "kubectl delete lease",
		} {
			if story.refused && !strings.Contains(fmt.Sprint(err), words) {
				t.Errorf("%s: %q is not in %v", name, words, err)
			}
		}
	}
}

// Where Leases cannot be listed, the chart says so; the value skips the question.
func TestTheChartAsksNothingWhereASecondInstallationIsAllowed(t *testing.T) {
	forbidden := cluster{err: fmt.Errorf("leases.coordination.k8s.io is forbidden")}
	for allowed, refused := range map[bool]bool{false: true, true: false} {
		loaded, values, err := prepared("podset-operator", object{"allowSecondInstallation": allowed}, true)
		must(t, err)
		if _, err = engine.RenderWithClientProvider(loaded, values, forbidden); (err != nil) != refused {
			t.Errorf("allowed: %v: %v", allowed, err)
		}
	}
}
