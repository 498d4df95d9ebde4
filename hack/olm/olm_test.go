// The bundle and the catalog are valid, and each rule that makes them so finds a mistake.
package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const image = "registry.example/podset-operator:0.1.0@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard)
	os.Exit(m.Run())
}

func valid() settings {
	return settings{config: "../../config/manifests", version: "0.1.0", image: image, bundleImage: "registry.example/bundle:v0.1.0"}
}

func made(t *testing.T, s settings) (string, *manifests.Bundle) {
	t.Helper()
	folder := t.TempDir()
	must(t, write(folder, s))
	must(t, validate(folder))
	found, err := manifests.GetBundleFromDir(filepath.Join(folder, "bundle"))
	must(t, err)
	return folder, found
}

func TestReleasesAreStableAndPreReleasesCandidates(t *testing.T) {
	for version, channels := range map[string][]string{"0.1.0": {"candidate", "stable"}, "1.0.0-rc.1": {"candidate"}} {
		channel := channels[len(channels)-1]
		s := valid()
		s.version, s.source = version, "https://example.com/a/b"
		folder, found := made(t, s)
		csv := found.CSV
		if csv.Name != "podset-operator.v"+version || found.DefaultChannel != channel || !slices.Equal(found.Channels, channels) {
			t.Errorf("%s is in %v, by default %s", csv.Name, found.Channels, found.DefaultChannel)
		}
		catalog := read(t, filepath.Join(folder, "catalog/podset-operator/catalog.yaml"))
		for _, wanted := range []string{"defaultChannel: " + channel, "name: " + channel, "skipRange: <" + version, "image: " + s.bundleImage} {
			if !strings.Contains(catalog, wanted+"\n") {
				t.Errorf("%s: %q is not in the catalog", version, wanted)
			}
		}
		all := read(t, filepath.Join(folder, "bundle/manifests/podset-operator.clusterserviceversion.yaml"))
		if strings.Contains(all, "OWNER") || csv.Annotations["repository"] != s.source {
			t.Errorf("the repository is %s", csv.Annotations["repository"])
		}
	}
}

// The rules of the suites basic and olm of the scorecard, which runs as pods.
func TestScorecard(t *testing.T) {
	_, found := made(t, valid())
	var examples []unstructured.Unstructured
	must(t, json.Unmarshal([]byte(found.CSV.Annotations["alm-examples"]), &examples))
	for _, kind := range found.CSV.Spec.CustomResourceDefinitions.Owned {
		if len(kind.Resources) == 0 || len(kind.StatusDescriptors) == 0 {
			t.Errorf("%s has the resources %v and the status %v", kind.Kind, kind.Resources, kind.StatusDescriptors)
		}
		i := slices.IndexFunc(examples, func(e unstructured.Unstructured) bool { return e.GetKind() == kind.Kind })
		if i < 0 {
			t.Errorf("%s has no example", kind.Kind)
			continue
		}
		spec, _, err := unstructured.NestedMap(examples[i].Object, "spec")
		must(t, err)
		if len(spec) == 0 {
			t.Errorf("the example of %s has no spec", kind.Kind)
		}
		for field := range spec { // a descriptor, and so a schema
			if !slices.ContainsFunc(kind.SpecDescriptors, func(d v1alpha1.SpecDescriptor) bool { return d.Path == field && d.Description != "" }) {
				t.Errorf("%s.spec.%s has no descriptor", kind.Kind, field)
			}
		}
	}
}

// What the base says and other files say too.
func TestTheBaseAgreesWithTheRepository(t *testing.T) {
	_, found := made(t, valid())
	for file, pattern := range map[string]string{
		"../../charts/podset-operator/Chart.yaml": `(?m)^kubeVersion: ">=` + regexp.QuoteMeta(found.CSV.Spec.MinKubeVersion) + `-0"$`,
		"../../docs/reference/flags.md":           "--default-image=IMAGE.*`" + regexp.QuoteMeta(found.CSV.Spec.RelatedImages[0].Image) + "`",
	} {
		if !regexp.MustCompile(pattern).MatchString(read(t, file)) {
			t.Errorf("%s has no %s", file, pattern)
		}
	}
}

// The objects of docs/installing.md have no misspelt field, and name what the catalog has.
func TestTheDocumentedObjectsFit(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, "../../docs/installing.md"), "### With the Operator Lifecycle Manager")
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	text, _, _ := strings.Cut(rest, "```")
	objects := strings.Split(text, "---\n")
	if len(objects) != 4 {
		t.Fatalf("%d objects were found", len(objects))
	}
	var source v1alpha1.CatalogSource
	var group operatorsv1.OperatorGroup
	var subscription v1alpha1.Subscription
	for i, object := range []any{&corev1.Namespace{}, &source, &group, &subscription} {
		must(t, yaml.UnmarshalStrict([]byte(objects[i]), object))
	}
	spec := subscription.Spec
	if spec.Package != name || spec.Channel != channel("0.1.0") || spec.CatalogSource != source.Name || spec.CatalogSourceNamespace != source.Namespace {
		t.Errorf("the Subscription is %+v", spec)
	}
	dockerfile := read(t, "catalog.Dockerfile")
	if configs := source.Spec.GrpcPodConfig.ExtractContent.CatalogDir; !strings.Contains(dockerfile, "COPY catalog "+configs+"\n") {
		t.Errorf("%s is not in the image", configs)
	}
}

// One mistake each, and what is said about it.
func TestMistakesAreFound(t *testing.T) {
	const base = "manifests/bases/podset-operator.clusterserviceversion.yaml"
	for _, each := range []struct{ file, old, new, wanted string }{
		{"manifests/kustomization.yaml", "  - ../samples\n", "", "provided API should have an example annotation"},
		{"samples/kustomization.yaml", "  - poc_v1_mycustomresource.yaml\n", "", "provided API should have an example annotation"},
		{base, "categories: Application Runtime", "categories: Pods", "not in the set of standard categories"},
		{base, "capabilities: Seamless Upgrades", "capabilities: Some", "not a valid capabilities level"},
		{base, "minKubeVersion: 1.35.0", "minKubeVersion: one", "MinKubeVersion has an invalid value"},
		{base, "  minKubeVersion: 1.35.0\n", "", "minKubeVersion is not informed"},
		{base, "AllNamespaces, supported: true", "AllNamespaces, supported: false", "none of InstallModeTypes are supported"},
		{base, "    name: The podset-operator authors\n", "", "Provider.Name not specified"},
		{base, "path: replicas,", "path: replica,", "a descriptor of replica, but no such field"},
		{base, "version: v1alpha1\n        kind: PodSet", "version: v1\n        kind: PodSet", "no CRD podsets.app.example.com of version v1"},
		{"manager/pod_disruption_budget.yaml", "maxUnavailable: 1", "maxUnavailable: 0", "maxUnavailable field cannot be set to 0"},
		{"manager/manager.yaml", "            requests:\n              cpu: 10m\n              memory: 32Mi\n", "", "unable to find the resource requests"},
		{"default/kustomization.yaml", "newTag: latest", "newTag: other", "the image of config/default is"},
		{"default/kustomization.yaml", "  - ../manager\n", "  - ../manager\n  - ../policy\n", "does not know what a bundle does with it"},
		{"rbac/server_roles.yaml", "apiGroups: [authentication.k8s.io]\n    resources: [tokenreviews]", "apiGroups: [apiextensions.k8s.io]\n    resources: [customresourcedefinitions]", "permissions to create CRD"},
		{"crd/kustomization.yaml", "  - bases/poc.test.domain_mycustomresources.yaml\n", "", "no CRD mycustomresources.poc.test.domain"},
	} {
		s := valid()
		config := filepath.Join(t.TempDir(), "config")
		must(t, os.CopyFS(config, os.DirFS("../../config")))
		file := filepath.Join(config, each.file)
		text := read(t, file)
		if !strings.Contains(text, each.old) {
			t.Fatalf("%s has no %q", each.file, each.old)
		}
		must(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, each.old, each.new)), 0o600))
		s.config = filepath.Join(config, "manifests")
		folder := t.TempDir()
		err := write(folder, s)
		if err == nil {
			err = validate(folder)
		}
		if err == nil || !strings.Contains(err.Error(), each.wanted) {
			t.Errorf("%s with %q says %v, not %q", each.file, each.new, err, each.wanted)
		}
	}
	for _, change := range []func(*settings){
		func(s *settings) { s.version = "1" },
		func(s *settings) { s.version = "v0.1.0" },
		func(s *settings) { s.image = "" },
		func(s *settings) { s.bundleImage = "" },
	} {
		s := valid()
		change(&s)
		folder := t.TempDir()
		if err := write(folder, s); err == nil && validate(folder) == nil {
			t.Errorf("%+v is valid", s)
		}
	}
}

// The bundle and the catalog can be broken after they were written.
func TestABrokenFileIsFound(t *testing.T) {
	for file, change := range map[string][2]string{
		"bundle/metadata/annotations.yaml":              {"channels.v1: candidate,stable", "channels.v1: weekly"},
		"bundle/manifests/app.example.com_podsets.yaml": {"kind: CustomResourceDefinition", "kind: Gadget"},
		"catalog/podset-operator/catalog.yaml":          {"defaultChannel: stable", "defaultChannel: other"},
	} {
		folder, _ := made(t, valid())
		path := filepath.Join(folder, file)
		must(t, os.WriteFile(path, []byte(strings.Replace(read(t, path), change[0], change[1], 1)), 0o600))
		if validate(folder) == nil {
			t.Errorf("%s with %q is valid", file, change[1])
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
