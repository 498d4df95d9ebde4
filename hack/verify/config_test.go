// Every kustomization of config/ builds, alone and together; metrics can be verified; and editors learn of no pod that is not theirs.
package verify

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	certificates = "/etc/podset-operator/metrics-tls"
	secret       = "podset-operator-metrics-tls"
	monitor      = "ServiceMonitor " + namespace + "/podset-operator-metrics-monitor"
	manager      = "Deployment " + namespace + "/podset-operator"
)

func TestEveryFolderBuilds(t *testing.T) {
	built := 0
	must(t, filepath.WalkDir(filepath.Join(root, "config"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Base(path) != "kustomization.yaml" || err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(text), "kind: Component") {
			folder, _ := filepath.Rel(filepath.Join(root, "config"), filepath.Dir(path))
			if len(config(t, folder)) == 0 {
				t.Errorf("config/%s is empty", folder)
			}
			built++
		}
		return err
	}))
	if built < 10 {
		t.Errorf("only %d folders were found", built)
	}
}

func TestMetricsAreVerifiedWithTheComponent(t *testing.T) {
	for _, resources := range []string{"default", "namespaced", "default network-policy", "namespaced network-policy grafana"} {
		for _, others := range []string{"", "tracing"} {
			what := resources + " prometheus, with prometheus/verified " + others
			folders := append(strings.Fields(resources), "prometheus")
			objects := together(t, folders, append(strings.Fields(others), "prometheus/verified"))
			isVerified(t, what, objects)
			deployment := fmt.Sprint(objects[manager])
			for _, wanted := range []string{"--metrics-cert-path=" + certificates, "mountPath:" + certificates, "secretName:" + secret} {
				if !strings.Contains(deployment, wanted) {
					t.Errorf("%s: %q is not in the Deployment: %s", what, wanted, deployment)
				}
			}
			if others == "tracing" && !strings.Contains(deployment, "OTEL_EXPORTER_OTLP_ENDPOINT") {
				t.Errorf("%s: traces got lost", what)
			}
		}
	}
	// As with Helm: the Deployment is not here.
	objects := together(t, []string{"prometheus"}, []string{"prometheus/verified"})
	isVerified(t, "prometheus alone", objects)
}

// The lines of config/default that a comment offers.
func TestTheCommentedPartsOfTheDefaultBuild(t *testing.T) {
	folder := copyOfConfig(t)
	file := filepath.Join(folder, "default/kustomization.yaml")
	text, err := os.ReadFile(file)
	must(t, err)
	offered := strings.NewReplacer("#  - ", "  - ", "#components:", "components:").Replace(string(text))
	must(t, os.WriteFile(file, []byte(offered), 0o600))
	objects := built(t, filepath.Join(folder, "default"))
	isVerified(t, "config/default", objects)
	if objects["NetworkPolicy "+namespace+"/podset-operator-ingress"] == nil {
		t.Errorf("the network policies are missing")
	}
}

func TestThePlainMonitorSaysThatItIsUnverified(t *testing.T) {
	plain := config(t, "prometheus")[monitor]
	if text := fmt.Sprint(plain); !strings.Contains(text, "insecureSkipVerify:true") || !strings.Contains(text, "kubernetes.io/description:Unverified") {
		t.Errorf("the plain monitor is %s", text)
	}
}

// The values of docs/observability.md make the chart's Deployment the one of the component.
func TestChartServesTheVerifiedCertificate(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/observability.md"))
	must(t, err)
	_, rest, _ := strings.Cut(string(page), "```yaml\n# values.yaml")
	text, _, _ := strings.Cut(rest, "```")
	var values object
	must(t, yaml.Unmarshal([]byte(text), &values))
	if values["extraVolumes"] == nil {
		t.Fatal("the values are not found")
	}
	verified := together(t, []string{"default"}, []string{"prometheus/verified"})
	compare(t, map[string]object{manager: chart(t, "podset-operator", values)[manager]}, map[string]object{manager: verified[manager]})
}

// The kustomization of docs/installing.md opens the same port as the chart's value.
func TestPageOpensThePortOfTheCollector(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/installing.md"))
	must(t, err)
	_, rest, _ := strings.Cut(string(page), "```yaml\n# kustomization.yaml\n")
	text, _, _ := strings.Cut(rest, "```")
	folder := copyOfConfig(t)
	must(t, os.WriteFile(filepath.Join(filepath.Dir(folder), "kustomization.yaml"), []byte(text), 0o600))
	values := object{"networkPolicy": object{"enabled": true, "extraPorts": []any{4317}}}
	egress := "NetworkPolicy " + namespace + "/podset-operator-egress"
	opened := map[string]object{egress: built(t, filepath.Dir(folder))[egress]}
	compare(t, map[string]object{egress: chart(t, "podset-operator", values)[egress]}, opened)
}

// Who may write MyCustomResources learns of pods in every watched namespace. Editors of a namespace get that only where it is asked for.
func TestRolesOfPeopleAggregateAsAsked(t *testing.T) {
	for what, objects := range map[string]map[string]object{
		"config/default":    config(t, "default"),
		"the chart":         chart(t, "podset-operator", nil),
		"the chart, asked":  chart(t, "podset-operator", object{"roles": object{"aggregateMyCustomResources": true}}),
		"the chart, nobody": chart(t, "podset-operator", object{"roles": object{"aggregate": false}}),
	} {
		for kind, aggregates := range map[string]bool{
			"podset":           what != "the chart, nobody",
			"mycustomresource": what == "the chart, asked",
		} {
			editor, viewer := labels(t, objects, kind+"-editor-role"), labels(t, objects, kind+"-viewer-role")
			if (editor["admin"] && editor["edit"] && viewer["view"]) != aggregates || (len(editor)+len(viewer) > 0) != aggregates {
				t.Errorf("%s: the roles for a %s aggregate to %v and %v", what, kind, editor, viewer)
			}
		}
	}
}

// The roles that a ClusterRole is added to.
func labels(t *testing.T, objects map[string]object, role string) map[string]bool {
	t.Helper()
	found, there := objects["ClusterRole /podset-operator-"+role]
	if !there {
		t.Fatalf("there is no ClusterRole %s", role)
	}
	all := map[string]bool{}
	for label, value := range found["metadata"].(map[string]any)["labels"].(map[string]any) {
		if to, is := strings.CutPrefix(label, "rbac.authorization.k8s.io/aggregate-to-"); is {
			all[to] = value == "true"
		}
	}
	return all
}

// The monitor trusts the CA of the certificate that the operator serves, for a name that the certificate has, and nothing else.
func isVerified(t *testing.T, what string, objects map[string]object) {
	t.Helper()
	service := config(t, "manager")["Service "+namespace+"/podset-operator-metrics-service"]["metadata"].(map[string]any)
	name := fmt.Sprintf("%s.%s.svc", service["name"], service["namespace"])
	if objects[monitor] == nil {
		t.Fatalf("%s: there is no monitor", what)
	}
	endpoints := objects[monitor]["spec"].(map[string]any)["endpoints"].([]any)
	wanted := object{"serverName": name, "ca": object{"secret": object{"name": secret, "key": "ca.crt"}}}
	if got := endpoints[0].(map[string]any)["tlsConfig"]; len(endpoints) != 1 || !reflect.DeepEqual(got, any(wanted)) {
		t.Errorf("%s: the monitor's tlsConfig is %v", what, got)
	}
	if strings.Contains(fmt.Sprint(objects[monitor]["metadata"]), "Unverified") {
		t.Errorf("%s: the monitor is called unverified", what)
	}
	spec := objects["Certificate "+namespace+"/podset-operator-metrics"]["spec"].(map[string]any)
	if spec["secretName"] != secret || !reflect.DeepEqual(spec["dnsNames"], []any{name}) {
		t.Errorf("%s: the certificate is %v", what, spec)
	}
	issuer := spec["issuerRef"].(map[string]any)["name"].(string)
	ca := objects["Issuer "+namespace+"/"+issuer]["spec"].(map[string]any)["ca"].(map[string]any)["secretName"]
	if of := objects["Certificate "+namespace+"/podset-operator-metrics-ca"]["spec"].(map[string]any); of["secretName"] != ca || of["isCA"] != true {
		t.Errorf("%s: the CA's certificate is %v, and the Issuer takes %v", what, of, ca)
	}
}

// What a kustomization of these folders of config/ installs.
func together(t *testing.T, resources, components []string) map[string]object {
	t.Helper()
	folder := copyOfConfig(t)
	overlay := object{"resources": beside(resources), "components": beside(components)}
	text, err := yaml.Marshal(overlay)
	must(t, err)
	must(t, os.Mkdir(filepath.Join(folder, "overlay"), 0o700))
	must(t, os.WriteFile(filepath.Join(folder, "overlay/kustomization.yaml"), text, 0o600))
	return built(t, filepath.Join(folder, "overlay"))
}

func beside(folders []string) []any {
	all := []any{}
	for _, folder := range folders {
		all = append(all, "../"+folder)
	}
	return all
}

func copyOfConfig(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "config")
	must(t, os.CopyFS(folder, os.DirFS(filepath.Join(root, "config"))))
	return folder
}

func built(t *testing.T, folder string) map[string]object {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	must(t, err)
	text, err := resources.AsYaml()
	must(t, err)
	objects := map[string]object{}
	add(t, objects, string(text))
	return objects
}
