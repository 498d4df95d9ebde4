// What Artifact Hub and a reader see of the chart: the annotations follow the rules that `ah lint` checks and name what is there, and the
// README and the schema describe each value.
package verify

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"
)

func TestThePackedChartIsReadyForArtifactHub(t *testing.T) {
	for version, wanted := range map[string]object{
		"1.2.3": {
			"prerelease": false, "containsSecurityUpdates": false, "changes": "- One: *thing* of https://github.com/OWNER/REPOSITORY\n  in two lines.\n- \"Another\" - `thing`.\n",
		},
		"1.2.3-rc.1": {"prerelease": true, "containsSecurityUpdates": true, "changes": "- *Security*: a fix.\n"},
	} {
		folder, _ := workspace(t)
		chart := filepath.Join(folder, "charts/podset-operator/Chart.yaml")
		now := regexp.MustCompile(`\nversion: .*`).FindString(read(t, "charts/podset-operator/Chart.yaml"))
		edit(t, chart, now, "\nversion: "+version)
		changelog := "## Unreleased\n\n- No.\n\n## " + version + " (2026-01-01)\n\n" + wanted["changes"].(string) +
			"\n## 1.2.2 (2025-01-01)\n\n- No.\n"
		must(t, os.WriteFile(filepath.Join(folder, "CHANGELOG.md"), []byte(changelog), 0o600))
		image := "ghcr.io/someone/it:" + version + "@sha256:" + strings.Repeat("0a", 32)
		output, err := exec.Command(filepath.Join(folder, "hack/chart"), image, "https://github.com/Someone/it").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		packed, err := loader.Load(filepath.Join(folder, strings.TrimSpace(string(output))))
		must(t, err)
		must(t, packed.Validate())
		for _, file := range packed.Raw {
			if strings.HasSuffix(file.Name, ".gotmpl") {
				t.Errorf("%s is packed", file.Name)
			}
			for _, line := range regexp.MustCompile(".*(OWNER/|REPOSITORY).*").FindAllString(string(file.Data), -1) {
				t.Errorf("%s names no address: %s", file.Name, line)
			}
		}
		metadata := packed.Metadata
		annotation := func(name string, into any) {
			must(t, yaml.UnmarshalStrict([]byte(metadata.Annotations["artifacthub.io/"+name]), into))
		}
		var links []struct{ Name, URL string }
		annotation("links", &links)
		links = append(links, struct{ Name, URL string }{"home", metadata.Home}, struct{ Name, URL string }{"icon", metadata.Icon})
		for _, link := range links {
			path, isHere := strings.CutPrefix(link.URL, "https://github.com/Someone/it")
			file := regexp.MustCompile("^/(blob|raw)/HEAD/").ReplaceAllString(path, "")
			if _, err := os.Stat(filepath.Join(root, file)); link.Name == "" || !isHere || err != nil && path != "/issues" {
				t.Errorf("the link %v leads nowhere: %v", link, err)
			}
		}
		var images []struct{ Name, Image string }
		annotation("images", &images)
		if len(images) != 1 || images[0].Name == "" || images[0].Image != image {
			t.Errorf("the images are %v, not %s", images, image)
		}
		var changes []string
		annotation("changes", &changes)
		text := strings.ReplaceAll(wanted["changes"].(string), "OWNER/REPOSITORY", "Someone/it")
		items := strings.Split(strings.ReplaceAll(strings.TrimPrefix(strings.TrimSpace(text), "- "), "\n  ", " "), "\n- ")
		if !reflect.DeepEqual(changes, items) {
			t.Errorf("the changes are %q, not %q", changes, items)
		}
		for _, name := range []string{"prerelease", "containsSecurityUpdates"} {
			if value, err := strconv.ParseBool(metadata.Annotations["artifacthub.io/"+name]); err != nil || value != wanted[name] {
				t.Errorf("%s of %s is %v (%v)", name, version, value, err)
			}
		}
	}
}

// What does not change with a release.
func TestTheChartTellsArtifactHubWhatItIs(t *testing.T) {
	loaded, err := loader.Load(filepath.Join(root, "charts/podset-operator"))
	must(t, err)
	is := loaded.Metadata.Annotations
	for name, allowed := range map[string][]string{
		"category": {
			"ai-machine-learning", "database", "integration-delivery", "monitoring-logging", "networking", "security", "storage",
			"streaming-messaging", "skip-prediction",
		},
		"license":              {"Apache-2.0"},
		"operator":             {"true"},
		"operatorCapabilities": {"basic install", "seamless upgrades", "full lifecycle", "deep insights", "auto pilot"},
	} {
		if !slices.Contains(allowed, is["artifacthub.io/"+name]) {
			t.Errorf("%s is %q", name, is["artifacthub.io/"+name])
		}
	}
	crds, found := map[string]object{}, 0
	for _, crd := range built(t, filepath.Join(root, "config/crd")) {
		crds[crd["metadata"].(object)["name"].(string)] = crd["spec"].(object)
	}
	var described []struct{ Name, Kind, Version, DisplayName, Description string }
	must(t, yaml.UnmarshalStrict([]byte(is["artifacthub.io/crds"]), &described))
	for _, each := range described {
		crd := crds[each.Name]
		if crd == nil || crd["names"].(object)["kind"] != each.Kind || crd["versions"].([]any)[0].(object)["name"] != each.Version ||
			each.DisplayName == "" || each.Description == "" {
			t.Errorf("%+v is no CRD of config/crd", each)
		}
		found++
	}
	if found != len(crds) {
		t.Errorf("%d of %d CRDs are described", found, len(crds))
	}
	var examples []object
	must(t, yaml.Unmarshal([]byte(is["artifacthub.io/crdsExamples"]), &examples))
	samples := built(t, filepath.Join(root, "config/samples"))
	for _, example := range examples {
		name := example["kind"].(string) + " /" + example["metadata"].(object)["name"].(string)
		if !reflect.DeepEqual(example, samples[name]) {
			t.Errorf("the example %s is not that of config/samples: %v", name, samples[name])
		}
	}
	if len(examples) != len(crds) {
		t.Errorf("%d examples are for %d CRDs", len(examples), len(crds))
	}
}

func TestTheReadmeOfTheChartIsGenerated(t *testing.T) {
	folder, _ := workspace(t)
	command := exec.Command("make", "chart-readme")
	command.Dir = folder
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	generated, err := os.ReadFile(filepath.Join(folder, "charts/podset-operator/README.md"))
	must(t, err)
	if string(generated) != read(t, "charts/podset-operator/README.md") {
		t.Error("charts/podset-operator/README.md does not match values.yaml: run make chart-readme")
	}
	for _, row := range regexp.MustCompile(`(?m)^\|.*\|  \|$`).FindAllString(string(generated), -1) {
		t.Errorf("a value has no description: %s", row)
	}
}

func TestTheSchemaDescribesEachValue(t *testing.T) {
	loaded, err := loader.Load(filepath.Join(root, "charts/podset-operator"))
	must(t, err)
	var schema object
	must(t, yaml.Unmarshal(loaded.Schema, &schema))
	described(t, "", schema, loaded.Values)
}

func described(t *testing.T, path string, schema object, values any) {
	t.Helper()
	if text, _ := schema["description"].(string); path != "" && text == "" {
		t.Errorf("%s has no description", path)
	}
	properties, isObject := schema["properties"].(object)
	if !isObject {
		return
	}
	if schema["additionalProperties"] != false {
		t.Errorf("%s takes unknown values", path)
	}
	set, _ := values.(object)
	for name, property := range properties {
		described(t, path+"/"+name, property.(object), set[name])
	}
	for name := range set {
		if properties[name] == nil {
			t.Errorf("%s/%s is not in the schema", path, name)
		}
	}
}

func edit(t *testing.T, file, old, new string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s has no %q", file, old)
	}
	must(t, os.WriteFile(file, []byte(strings.Replace(string(text), old, new, 1)), 0o600))
}
