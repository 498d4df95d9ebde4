// Makes the bundle and the catalog for the Operator Lifecycle Manager: `olm FOLDER` writes bundle/, bundle.Dockerfile and catalog/ to FOLDER
// and validates both. `make bundle` runs it.
//
// It reads config/manifests. From the environment it takes VERSION, the images IMG and BUNDLE_IMG, and SOURCE, the address of the repository
// (optional). It does what `operator-sdk generate bundle` and `opm render` do, but an object that a bundle cannot hold is an error.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/lib/version"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/operator-registry/alpha/action"
	"github.com/operator-framework/operator-registry/alpha/action/migrations"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/pkg/lib/bundle"
	"github.com/sirupsen/logrus"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	name        = "podset-operator"
	defaultIMG  = "podset-operator:latest"              // in config/default
	placeholder = "https://github.com/OWNER/REPOSITORY" // in the base
)

type settings struct{ config, version, image, bundleImage, source string }

func main() {
	log.SetFlags(0)
	log.SetPrefix("olm: ")
	logrus.SetOutput(io.Discard) // the libraries miss files that are optional
	if len(os.Args) != 2 {
		log.Fatal("Usage: olm FOLDER")
	}
	folder := os.Args[1]
	err := write(folder, settings{
		config:  "../../config/manifests",
		version: os.Getenv("VERSION"), image: os.Getenv("IMG"), bundleImage: os.Getenv("BUNDLE_IMG"), source: os.Getenv("SOURCE"),
	})
	if err == nil {
		err = validate(folder)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s/bundle and %s/catalog are valid\n", folder, folder)
}

func write(folder string, s settings) error {
	if _, err := semver.Parse(s.version); err != nil {
		return fmt.Errorf("VERSION=%q: %w", s.version, err)
	}
	if s.image == "" || s.bundleImage == "" {
		return errors.New("IMG and BUNDLE_IMG name the images of the operator and of the bundle")
	}
	csv, others, err := build(s)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(folder, "bundle")), os.RemoveAll(filepath.Join(folder, "catalog"))); err != nil {
		return err
	}
	text, err := yaml.Marshal(csv)
	if err == nil {
		err = put(filepath.Join(folder, "bundle/manifests", name+".clusterserviceversion.yaml"), text)
	}
	for _, object := range others {
		if err == nil {
			text, err = object.AsYAML()
		}
		if err == nil {
			err = put(filepath.Join(folder, "bundle/manifests", fileName(object)), text)
		}
	}
	if err != nil {
		return err
	}
	all, channel := strings.Join(channels(s.version), ","), channel(s.version)
	annotations, err := bundle.GenerateAnnotations(bundle.RegistryV1Type, bundle.ManifestsDir, bundle.MetadataDir, name, all, channel)
	if err != nil {
		return err
	}
	dockerfile, err := bundle.GenerateDockerfile(bundle.RegistryV1Type, bundle.ManifestsDir, bundle.MetadataDir,
		"bundle/manifests", "bundle/metadata", ".", name, all, channel, "scratch")
	if err != nil {
		return err
	}
	err = errors.Join(put(filepath.Join(folder, "bundle/metadata/annotations.yaml"), annotations),
		put(filepath.Join(folder, "bundle.Dockerfile"), dockerfile))
	if err != nil {
		return err
	}
	return writeCatalog(folder, s, csv)
}

// The channels of a version, with its own as the last. Subscribers of stable get no pre-release, and those of candidate get both.
func channels(version string) []string {
	if strings.Contains(version, "-") {
		return []string{"candidate"}
	}
	return []string{"candidate", "stable"}
}

func channel(version string) string {
	all := channels(version)
	return all[len(all)-1]
}

// A catalog with this version alone. Its skipRange makes it the update of every older one.
func writeCatalog(folder string, s settings, csv *v1alpha1.ClusterServiceVersion) error {
	image, err := template.New("").Parse(fmt.Sprintf("{{ %q }}", s.bundleImage))
	if err != nil {
		return err
	}
	// What the console shows, instead of all objects.
	smaller, err := migrations.NewMigrations("bundle-object-to-csv-metadata")
	if err != nil {
		return err
	}
	catalog, err := action.Render{
		Refs: []string{filepath.Join(folder, "bundle")}, AllowedRefMask: action.RefBundleDir, ImageRefTemplate: image, Migrations: smaller,
	}.Run(context.Background())
	if err != nil {
		return err
	}
	icon, err := base64.StdEncoding.DecodeString(csv.Spec.Icon[0].Data)
	if err != nil {
		return err
	}
	catalog.Packages = []declcfg.Package{{
		Schema: declcfg.SchemaPackage, Name: name, DefaultChannel: channel(s.version), Description: csv.Annotations["description"],
		Icon: &declcfg.Icon{Data: icon, MediaType: csv.Spec.Icon[0].MediaType},
	}}
	for _, channel := range channels(s.version) {
		catalog.Channels = append(catalog.Channels, declcfg.Channel{
			Schema: declcfg.SchemaChannel, Name: channel, Package: name,
			Entries: []declcfg.ChannelEntry{{Name: csv.Name, SkipRange: csv.Annotations["olm.skipRange"]}},
		})
	}
	var text strings.Builder
	if err := declcfg.WriteYAML(*catalog, &text); err != nil {
		return err
	}
	return put(filepath.Join(folder, "catalog", name, "catalog.yaml"), []byte(text.String()))
}

// The ClusterServiceVersion, and the objects that a bundle has beside it.
func build(s settings) (*v1alpha1.ClusterServiceVersion, []*resource.Resource, error) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), s.config)
	if err != nil {
		return nil, nil, err
	}
	var (
		csv        v1alpha1.ClusterServiceVersion
		deployment appsv1.Deployment
		rules      = map[string][]rbacv1.PolicyRule{} // of each role
		bound      []rbacv1.RoleRef
		examples   []any
		others     []*resource.Resource
		owned      = map[string]apiextensionsv1.CustomResourceDefinition{}
	)
	for _, object := range objects.Resources() {
		text, err := object.AsYAML()
		if err != nil {
			return nil, nil, err
		}
		switch kind := object.GetKind(); kind {
		case "ClusterServiceVersion":
			if s.source != "" {
				text = []byte(strings.ReplaceAll(string(text), placeholder, s.source))
			}
			err = yaml.UnmarshalStrict(text, &csv)
		case "Deployment":
			err = yaml.UnmarshalStrict(text, &deployment)
		case "Role", "ClusterRole":
			var role rbacv1.ClusterRole
			err = yaml.Unmarshal(text, &role)
			rules[kind+role.Name] = role.Rules
			if kind == "ClusterRole" {
				others = append(others, object)
			}
		case "RoleBinding", "ClusterRoleBinding":
			var binding rbacv1.ClusterRoleBinding
			err = yaml.Unmarshal(text, &binding)
			bound = append(bound, binding.RoleRef)
		case "CustomResourceDefinition":
			var crd apiextensionsv1.CustomResourceDefinition
			err = yaml.UnmarshalStrict(text, &crd)
			owned[crd.Name] = crd
			others = append(others, object)
		case "Service", "PodDisruptionBudget":
			err = object.SetNamespace("") // the one where OLM installs the operator
			others = append(others, object)
		case "Namespace", "ServiceAccount": // OLM makes the account, and a user the namespace
		case "PodSet", "MyCustomResource":
			var example any
			err = yaml.Unmarshal(text, &example)
			examples = append(examples, example)
		default:
			err = fmt.Errorf("%s %s: this program does not know what a bundle does with it", kind, object.GetName())
		}
		if err != nil {
			return nil, nil, err
		}
	}
	// OLM grants these rights to the operator's account; the other ClusterRoles are for people.
	account := deployment.Spec.Template.Spec.ServiceAccountName
	strategy := &csv.Spec.InstallStrategy.StrategySpec
	for _, role := range bound {
		permissions := v1alpha1.StrategyDeploymentPermissions{ServiceAccountName: account, Rules: rules[role.Kind+role.Name]}
		if role.Kind == "Role" {
			strategy.Permissions = append(strategy.Permissions, permissions)
		} else {
			strategy.ClusterPermissions = append(strategy.ClusterPermissions, permissions)
		}
	}
	others = slices.DeleteFunc(others, func(object *resource.Resource) bool {
		return slices.ContainsFunc(bound, func(role rbacv1.RoleRef) bool { return role.Kind == object.GetKind() && role.Name == object.GetName() })
	})
	csv.Spec.InstallStrategy.StrategyName = v1alpha1.InstallStrategyNameDeployment
	manager := &deployment.Spec.Template.Spec.Containers[0]
	if manager.Image != defaultIMG {
		return nil, nil, fmt.Errorf("the image of config/default is %s, not %s", manager.Image, defaultIMG)
	}
	manager.Image = s.image
	strategy.DeploymentSpecs = []v1alpha1.StrategyDeploymentSpec{{Name: deployment.Name, Spec: deployment.Spec, Label: deployment.Labels}}
	for i := range csv.Spec.CustomResourceDefinitions.Owned {
		if err := describe(&csv.Spec.CustomResourceDefinitions.Owned[i], owned); err != nil {
			return nil, nil, err
		}
	}
	almExamples, err := json.MarshalIndent(examples, "", "  ")
	if err != nil {
		return nil, nil, err
	}
	icon, err := os.ReadFile("../../docs/images/icon.svg")
	if err != nil {
		return nil, nil, err
	}
	csv.Spec.Icon = []v1alpha1.Icon{{Data: base64.StdEncoding.EncodeToString(icon), MediaType: "image/svg+xml"}}
	csv.Name = name + ".v" + s.version
	csv.Spec.Version = version.OperatorVersion{Version: semver.MustParse(s.version)}
	csv.Spec.RelatedImages = append(csv.Spec.RelatedImages, v1alpha1.RelatedImage{Name: manager.Name, Image: s.image})
	csv.Annotations["alm-examples"] = string(almExamples)
	csv.Annotations["containerImage"] = s.image
	csv.Annotations["olm.skipRange"] = "<" + s.version
	return &csv, others, nil
}

// Takes the description of a kind and of its fields from the schema.
func describe(kind *v1alpha1.CRDDescription, crds map[string]apiextensionsv1.CustomResourceDefinition) error {
	versions := crds[kind.Name].Spec.Versions
	i := slices.IndexFunc(versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == kind.Version })
	if i < 0 {
		return fmt.Errorf("there is no CRD %s of version %s", kind.Name, kind.Version)
	}
	schema := versions[i].Schema.OpenAPIV3Schema
	kind.Description = schema.Description
	var err, statusErr error
	kind.SpecDescriptors, err = descriptors(kind.SpecDescriptors, schema.Properties["spec"].Properties)
	// Those of the status have the same fields.
	status := make([]v1alpha1.SpecDescriptor, len(kind.StatusDescriptors))
	for i, descriptor := range kind.StatusDescriptors {
		status[i] = v1alpha1.SpecDescriptor(descriptor)
	}
	status, statusErr = descriptors(status, schema.Properties["status"].Properties)
	kind.StatusDescriptors = nil
	for _, descriptor := range status {
		kind.StatusDescriptors = append(kind.StatusDescriptors, v1alpha1.StatusDescriptor(descriptor))
	}
	return errors.Join(err, statusErr)
}

var word = regexp.MustCompile(`[A-Z]?[a-z]+`)

// One for each field, with the x-descriptors that are given.
func descriptors(given []v1alpha1.SpecDescriptor, fields map[string]apiextensionsv1.JSONSchemaProps) ([]v1alpha1.SpecDescriptor, error) {
	all := []v1alpha1.SpecDescriptor{}
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		descriptor := v1alpha1.SpecDescriptor{Path: path}
		if i := slices.IndexFunc(given, func(d v1alpha1.SpecDescriptor) bool { return d.Path == path }); i >= 0 {
			descriptor = given[i]
			given = slices.Delete(given, i, i+1)
		}
		words := strings.ToLower(strings.Join(word.FindAllString(path, -1), " "))
		descriptor.DisplayName = strings.ToUpper(words[:1]) + words[1:]
		descriptor.Description = fields[path].Description
		all = append(all, descriptor)
	}
	if len(given) > 0 {
		return nil, fmt.Errorf("there is a descriptor of %s, but no such field", given[0].Path)
	}
	return all, nil
}

func fileName(object *resource.Resource) string {
	if object.GetKind() == "CustomResourceDefinition" {
		plural, group, _ := strings.Cut(object.GetName(), ".")
		return group + "_" + plural + ".yaml"
	}
	return object.GetName() + "_" + strings.ToLower(object.GetKind()) + ".yaml"
}

func put(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
