// What the chart installs is what config/ installs: both are rendered by the libraries of helm and kustomize, and compared object
// by object. Only the differences that are listed here are allowed.
package verify

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"sort"
	"strings"
	"testing"

	helm "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	root      = "../.."
	namespace = "podset-operator-system"
)

// Labels by which Helm knows its own, and Argo CD or a person what was installed from where.
var ofHelm = []string{
	"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart",
}

type object = map[string]any

func TestChartInstallsWhatConfigDoes(t *testing.T) {
	default_, networkPolicy := config(t, "default"), config(t, "network-policy")
	compare(t, chart(t, "podset-operator", nil), default_)
	enabled := object{"networkPolicy": object{"enabled": true}}
	compare(t, chart(t, "podset-operator", enabled), merged(default_, networkPolicy))
}

func TestChartForANamespaceInstallsWhatConfigDoes(t *testing.T) {
	one := object{"watchNamespaces": []any{"team-a"}}
	compare(t, chart(t, "podset-operator", one), config(t, "namespaced"))
}

func TestEachWatchedNamespaceHasItsRole(t *testing.T) {
	objects := chart(t, "podset-operator", object{"watchNamespaces": []any{"team-a", "team-b"}})
	for _, name := range []string{
		"Role team-a/podset-operator-manager-role", "RoleBinding team-a/podset-operator-manager-rolebinding",
		"Role team-b/podset-operator-manager-role", "RoleBinding team-b/podset-operator-manager-rolebinding",
	} {
		if objects[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	for name, object := range objects {
		if object["kind"] == "ClusterRole" && strings.Contains(fmt.Sprint(object["rules"]), "pods]") &&
			!strings.Contains(name, "editor") && !strings.Contains(name, "viewer") {
			t.Errorf("%s gives rights to pods everywhere", name)
		}
	}
}

// What no release may share with another: objects of no namespace, but for the CRDs.
func TestReleasesDoNotMeet(t *testing.T) {
	other := chart(t, "other", nil)
	for name, object := range chart(t, "podset-operator", nil) {
		if object["kind"] != "CustomResourceDefinition" && other[name] != nil {
			t.Errorf("both have %s", name)
		}
	}
}

// Releases in one namespace elect each a leader of their own: by a Lease that the operator is told of and may write.
func TestALeaseIsNamedWhereItIsUsed(t *testing.T) {
	objects := chart(t, "podset-operator", object{"leaderElection": object{"resourceName": "team-a"}})
	for name, wanted := range map[string]string{
		"Role " + namespace + "/podset-operator-leader-election-role": "resourceNames:[team-a]",
		"Deployment " + namespace + "/podset-operator":                "args:[run --leader-elect-resource-name=team-a]",
	} {
		if text := fmt.Sprint(objects[name]); !strings.Contains(text, wanted) {
			t.Errorf("%q is not in %s: %s", wanted, name, text)
		}
	}
}

func TestCRDsOutliveTheRelease(t *testing.T) {
	for name, object := range rendered(t, "podset-operator", nil) {
		if object["kind"] != "CustomResourceDefinition" {
			continue
		}
		kept := object["metadata"].(map[string]any)["annotations"]
		if !reflect.DeepEqual(kept, map[string]any{"helm.sh/resource-policy": "keep"}) {
			t.Errorf("%s has the annotations %v: uninstalling the release would delete every PodSet", name, kept)
		}
	}
	for name := range chart(t, "podset-operator", object{"crds": object{"install": false}}) {
		if strings.HasPrefix(name, "CustomResourceDefinition") {
			t.Errorf("%s is installed all the same", name)
		}
	}
}

// The chart's value and the component raise the limit in the same way, and change nothing else.
func TestLargerSetsMayBeAllowed(t *testing.T) {
	larger := together(t, []string{"default"}, []string{"larger-sets"})
	delete(larger, "Namespace /"+namespace)
	if text := fmt.Sprint(larger); !strings.Contains(text, "self <= 100 ") && !strings.Contains(text, "self <= 100]") {
		t.Error("the component does not raise the limit")
	}
	compare(t, chart(t, "podset-operator", object{"crds": object{"maxReplicas": 100}}), larger)
	// As `helm upgrade --reuse-values` from a chart without the value.
	compare(t, chart(t, "podset-operator", object{"crds": object{"maxReplicas": nil}}), config(t, "default"))
}

func TestWhatUsersSetArrives(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	deployment := chart(t, "podset-operator", object{
		"image":     object{"repository": "registry.example/op", "digest": digest, "pullPolicy": "Always"},
		"extraArgs": []any{"--log-level=debug"}, "extraEnv": []any{object{"name": "A", "value": "b"}},
		"imagePullSecrets": []any{object{"name": "secret"}}, "nodeSelector": object{"disk": "ssd"},
		"tolerations": []any{object{"operator": "Exists"}}, "priorityClassName": "high", "podAnnotations": object{"x": "y"},
		"affinity": object{"podAntiAffinity": object{}}, "replicas": 2,
		"extraVolumes":      []any{object{"name": "tls", "secret": object{"secretName": "metrics"}}},
		"extraVolumeMounts": []any{object{"name": "tls", "mountPath": "/tls"}},
	})["Deployment "+namespace+"/podset-operator"]
	text, err := yaml.Marshal(deployment)
	must(t, err)
	for _, wanted := range []string{
		"image: registry.example/op@" + digest, "imagePullPolicy: Always", "- --log-level=debug", "- name: A\n", "- name: secret\n",
		"disk: ssd", "- operator: Exists", "priorityClassName: high", "x: \"y\"", "podAntiAffinity: {}", "replicas: 2",
		"secretName: metrics", "mountPath: /tls",
	} {
		if !strings.Contains(string(text), wanted) {
			t.Errorf("%q does not arrive in\n%s", wanted, text)
		}
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	for name, values := range map[string]object{
		"an unknown one":          {"replica": 3},
		"replicas":                {"replicas": "three"},
		"a namespace":             {"watchNamespaces": []any{"Team A"}},
		"the same namespace":      {"watchNamespaces": []any{"a", "a"}},
		"a lease":                 {"leaderElection": object{"resourceName": "My_Lease"}},
		"a digest":                {"image": object{"digest": "sha256:1"}},
		"a pull policy":           {"image": object{"pullPolicy": "Sometimes"}},
		"a flag":                  {"extraArgs": []any{"-v"}},
		"no election":             {"extraArgs": []any{"--leader-elect=false"}},
		"no election by name":     {"extraEnv": []any{object{"name": "PODSET_OPERATOR_LEADER_ELECT", "value": "false"}}},
		"a lease by a flag":       {"extraArgs": []any{"--leader-elect-resource-name=a"}},
		"another port of probes":  {"extraArgs": []any{"--health-probe-bind-address=:1"}},
		"that by name":            {"extraEnv": []any{object{"name": "PODSET_OPERATOR_HEALTH_PROBE_BIND_ADDRESS", "value": ":1"}}},
		"metrics at a free port":  {"extraArgs": []any{"--metrics-bind-address=:0"}},
		"metrics elsewhere":       {"extraArgs": []any{"--metrics-bind-address=127.0.0.1:18443"}},
		"metrics at no address":   {"extraArgs": []any{"--metrics-bind-address"}},
		"metrics by name":         {"extraEnv": []any{object{"name": "PODSET_OPERATOR_METRICS_BIND_ADDRESS", "value": ":1"}}},
		"metrics by a reference":  {"extraEnv": []any{object{"name": "PODSET_OPERATOR_METRICS_BIND_ADDRESS", "valueFrom": object{}}}},
		"a port":                  {"networkPolicy": object{"apiServerPorts": []any{70000}}},
		"no port":                 {"networkPolicy": object{"apiServerPorts": []any{}}},
		"sets that are too large": {"crds": object{"maxReplicas": 5001}},
		"half a misspelt switch":  {"crds": object{"enabled": false}},
		"half an aggregation":     {"roles": object{"aggregateMyCustomResources": "edit"}},
	} {
		if _, err := render("podset-operator", values); err == nil {
			t.Errorf("%s: %v is taken", name, values)
		}
	}
}

// At the port that the Service, the network policy and the ServiceMonitor name, or not at all.
func TestMetricsMayBeAtTheirPortOrOff(t *testing.T) {
	for _, address := range []string{"0", ":8443", "0.0.0.0:8443", "[::]:8443"} {
		for _, values := range []object{
			{"extraArgs": []any{"--metrics-bind-address=" + address, "--metrics-secure=false"}},
			{"extraEnv": []any{object{"name": "PODSET_OPERATOR_METRICS_BIND_ADDRESS", "value": address}, object{"name": "A"}}},
		} {
			if _, err := render("podset-operator", values); err != nil {
				t.Errorf("%v: %v", values, err)
			}
		}
	}
}

func TestVersionsAgree(t *testing.T) {
	cargo, err := os.ReadFile(filepath.Join(root, "Cargo.toml"))
	must(t, err)
	version := regexp.MustCompile(`(?m)^version = "(.*)"$`).FindSubmatch(cargo)
	loaded, err := loader.Load(filepath.Join(root, "charts/podset-operator"))
	must(t, err)
	if loaded.Metadata.Version != string(version[1]) || loaded.Metadata.AppVersion != string(version[1]) {
		t.Errorf("the chart is %s for %s, the operator %s", loaded.Metadata.Version, loaded.Metadata.AppVersion, version[1])
	}
}

// Renders the chart and takes off what is allowed to differ.
func chart(t *testing.T, release string, values object) map[string]object {
	t.Helper()
	objects := rendered(t, release, values)
	for _, object := range objects {
		takeLabels(object)
		if object["kind"] == "CustomResourceDefinition" {
			delete(object["metadata"].(map[string]any), "annotations")
			delete(object["metadata"].(map[string]any), "labels")
		}
	}
	return objects
}

func rendered(t *testing.T, release string, values object) map[string]object {
	t.Helper()
	files, err := render(release, values)
	must(t, err)
	objects := map[string]object{}
	for name, text := range files {
		if filepath.Ext(name) == ".yaml" {
			add(t, objects, text)
		}
	}
	return objects
}

// Without a cluster, as helm template does.
func render(release string, values object) (map[string]string, error) {
	loaded, all, err := prepared(release, values, true)
	if err != nil {
		return nil, err
	}
	return engine.Render(loaded, all)
}

// The chart and all its values, for an installation or an upgrade.
func prepared(release string, values object, isInstall bool) (*helm.Chart, chartutil.Values, error) {
	loaded, err := loader.Load(filepath.Join(root, "charts/podset-operator"))
	if err != nil {
		return nil, nil, err
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: isInstall, IsUpgrade: !isInstall, Revision: 1}
	all, err := chartutil.ToRenderValues(loaded, values, options, chartutil.DefaultCapabilities)
	return loaded, all, err
}

// What a folder of config/ installs, without the namespace: with Helm that is a matter of --create-namespace.
func config(t *testing.T, folder string) map[string]object {
	t.Helper()
	objects := built(t, filepath.Join(root, "config", folder))
	delete(objects, "Namespace /"+namespace)
	return objects
}

func add(t *testing.T, objects map[string]object, text string) {
	t.Helper()
	for _, document := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
		var parsed object
		must(t, yaml.Unmarshal([]byte(document), &parsed))
		if parsed == nil {
			continue
		}
		metadata := parsed["metadata"].(map[string]any)
		in, _ := metadata["namespace"].(string)
		name := fmt.Sprintf("%s %s/%s", parsed["kind"], in, metadata["name"])
		if objects[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		objects[name] = parsed
	}
}

// Takes Helm's labels off, in selectors as well.
func takeLabels(node any) {
	switch node := node.(type) {
	case map[string]any:
		for _, label := range ofHelm {
			delete(node, label)
		}
		for _, child := range node {
			takeLabels(child)
		}
	case []any:
		for _, child := range node {
			takeLabels(child)
		}
	}
}

func merged(one, other map[string]object) map[string]object {
	all := map[string]object{}
	for _, objects := range []map[string]object{one, other} {
		for name, object := range objects {
			all[name] = object
		}
	}
	return all
}

func compare(t *testing.T, chart, config map[string]object) {
	t.Helper()
	names := []string{}
	for name := range merged(chart, config) {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		one, other := chart[name], config[name]
		switch {
		case one == nil:
			t.Errorf("%s is in config/ and not in the chart", name)
		case other == nil:
			t.Errorf("%s is in the chart and not in config/", name)
		case !reflect.DeepEqual(sorted(one), sorted(other)):
			left, _ := yaml.Marshal(sorted(one))
			right, _ := yaml.Marshal(sorted(other))
			t.Errorf("%s differs. The chart:\n%s\nconfig/:\n%s", name, left, right)
		}
	}
}

// Verbs are a set: config/ has them in the order of their reasons.
func sorted(node any) any {
	switch node := node.(type) {
	case map[string]any:
		for key, child := range node {
			if verbs, isList := child.([]any); isList && key == "verbs" {
				sort.Slice(verbs, func(i, j int) bool { return verbs[i].(string) < verbs[j].(string) })
			}
			node[key] = sorted(child)
		}
	case []any:
		for i, child := range node {
			node[i] = sorted(child)
		}
	}
	return node
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
