// Objects of every release survive the CRDs of this tree: what a user has stored is accepted, and nothing of it is lost. The code that
// judges is the API server's own. The records are in tests/data/releases; tests/manifests.rs decodes the same objects.
package verify

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// One per release.
const records = "tests/data/releases/*"

func TestStoredObjectsSurvive(t *testing.T) {
	for _, release := range files(t, records) {
		for _, stored := range objectsOf(t, release) {
			version := stored["apiVersion"].(string)
			name := fmt.Sprint(release, " ", stored["kind"], " ", stored["metadata"].(object)["name"])
			then, now := schemaOf(t, release, version), schemaOf(t, "config/crd/bases", version)
			read := runtime.DeepCopyJSON(stored)
			if dropped := prune(read, now.structural); len(dropped) > 0 {
				t.Errorf("%s: the API server drops %v", name, dropped)
			}
			defaulting.Default(read, now.structural)
			for _, err := range invalid(t, read, now) {
				t.Errorf("%s: the API server rejects it: %v", name, err)
			}
			// Fields that are new since then may have got a default.
			if prune(read, then.structural); !reflect.DeepEqual(read, stored) {
				t.Errorf("%s: the API server reads it as %v", name, read)
			}
		}
	}
}

// Otherwise a field could get lost unseen.
func TestRecordsSetEveryField(t *testing.T) {
	for _, release := range files(t, records) {
		for _, stored := range objectsOf(t, release) {
			if stored["metadata"].(object)["name"] == "full" {
				for _, missing := range unset("", stored, schemaOf(t, release, stored["apiVersion"].(string)).structural) {
					t.Errorf("%s: the %v does not set %s", release, stored["kind"], missing)
				}
			}
		}
	}
}

// A CRD serves the versions that it served, at the same place, and its schemas accept at least as much.
func TestCRDsOnlyGrow(t *testing.T) {
	for _, release := range files(t, records) {
		for _, file := range files(t, release+"/*.yaml") {
			then, now := crd(t, file), crd(t, path.Join("config/crd/bases", filepath.Base(file)))
			if then.Spec.Group != now.Spec.Group || then.Spec.Scope != now.Spec.Scope || !reflect.DeepEqual(then.Spec.Names, now.Spec.Names) {
				t.Errorf("%s: group, scope or names differ", file)
			}
			for _, old := range then.Spec.Versions {
				at := slices.IndexFunc(now.Spec.Versions, func(v v1.CustomResourceDefinitionVersion) bool { return v.Name == old.Name })
				if at < 0 || old.Served && !now.Spec.Versions[at].Served {
					t.Errorf("%s: %s is not served any more", file, old.Name)
					continue
				}
				if !reflect.DeepEqual(old.Subresources, now.Spec.Versions[at].Subresources) {
					t.Errorf("%s: the subresources of %s differ", file, old.Name)
				}
				for _, difference := range narrower("", asObject(t, old.Schema.OpenAPIV3Schema), asObject(t, now.Spec.Versions[at].Schema.OpenAPIV3Schema)) {
					t.Errorf("%s, %s: %s", file, old.Name, difference)
				}
			}
		}
	}
}

// Validation rules that no e2e scenario covers.
func TestWrongSpecsAreRejected(t *testing.T) {
	podsets := schemaOf(t, "config/crd/bases", "app.example.com/v1alpha1")
	for spec, says := range map[string]string{
		`{"template": {"metadata": {"labels": {"controller-revision-hash": "x"}}}}`: "the operator sets the label controller-revision-hash",
		`{"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}}`:              "maxUnavailable must be a number of at least 1",
		`{"updateStrategy": {"rollingUpdate": {"maxUnavailable": "0%"}}}`:           "maxUnavailable must be a number of at least 1",
		`{"updateStrategy": {"rollingUpdate": {"maxUnavailable": "101%"}}}`:         "maxUnavailable must be a number of at least 1",
		`{"updateStrategy": {"rollingUpdate": {"partition": -1}}}`:                  "partition must be a number of at least 0",
		`{"updateStrategy": {"rollingUpdate": {"partition": "101%"}}}`:              "partition must be a number of at least 0",
		`{"minReadySeconds": 600, "progressDeadlineSeconds": 600}`:                  "progressDeadlineSeconds",
	} {
		set := object{}
		must(t, utiljson.Unmarshal([]byte(`{"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": {"name": "web"}, "spec": `+spec+`}`), &set))
		defaulting.Default(set, podsets.structural)
		if all := invalid(t, set, podsets); len(all) != 1 || !strings.Contains(all[0].Detail, says) {
			t.Errorf("%s is rejected with %v", spec, all)
		}
	}
}

// What an object that the old schema accepts could break in the new one. Keywords that are not known here must not change.
func narrower(at string, old, new object) (all []string) {
	say := func(what string, arguments ...any) { all = append(all, at+": "+fmt.Sprintf(what, arguments...)) }
	keywords := map[string]bool{}
	for _, schema := range []object{old, new} {
		for keyword := range schema {
			keywords[keyword] = true
		}
	}
	for keyword := range keywords {
		before, after := old[keyword], new[keyword]
		switch keyword {
		case "description":
		case "properties":
			fields, _ := before.(object)
			fieldsNow, _ := after.(object)
			for name, field := range fields {
				if fieldNow, is := fieldsNow[name].(object); is {
					all = append(all, narrower(at+"."+name, field.(object), fieldNow)...)
				} else {
					say("the field %s is gone", name)
				}
			}
		case "items", "additionalProperties":
			content, is := before.(object)
			contentNow, isNow := after.(object)
			if !is || !isNow {
				say("%s was %v and is %v", keyword, before, after)
				continue
			}
			all = append(all, narrower(at+"[]", content, contentNow)...)
		case "required", "x-kubernetes-validations":
			for _, each := range elements(after) {
				if !slices.ContainsFunc(elements(before), func(known any) bool { return same(known, each) }) {
					say("%v is new in %s", each, keyword)
				}
			}
		case "enum":
			for _, each := range elements(before) {
				if after != nil && !slices.Contains(elements(after), each) {
					say("the value %v is gone", each)
				}
			}
			if before == nil {
				say("only %v are allowed", after)
			}
		case "minimum":
			if after != nil && (before == nil || after.(float64) > before.(float64)) {
				say("the minimum is %v", after)
			}
		case "maximum":
			if after != nil && (before == nil || after.(float64) < before.(float64)) {
				say("the maximum is %v", after)
			}
		default:
			if !reflect.DeepEqual(before, after) {
				say("%s was %v and is %v", keyword, before, after)
			}
		}
	}
	return all
}

// Names of required fields, or rules; the message of a rule may change.
func same(one, other any) bool {
	rule, is := one.(object)
	ruleNow, isNow := other.(object)
	return is && isNow && rule["rule"] == ruleNow["rule"] || !is && one == other
}

func elements(value any) []any {
	items, _ := value.([]any)
	return items
}

// The fields of the schema that the value does not set. A schema of metadata has only the fields with rules.
func unset(at string, value any, schema *structuralschema.Structural) (all []string) {
	for name, property := range schema.Properties {
		fields, _ := value.(object)
		if fields[name] == nil {
			all = append(all, at+"."+name)
		}
		all = append(all, unset(at+"."+name, fields[name], &property)...)
	}
	if schema.Items != nil {
		for _, item := range elements(value) {
			all = append(all, unset(at+"[]", item, schema.Items)...)
		}
	}
	return all
}

func prune(value object, by *structuralschema.Structural) []string {
	options := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	return pruning.PruneWithOptions(value, by, true, options)
}

func invalid(t *testing.T, value object, by schema) field.ErrorList {
	t.Helper()
	validator, _, err := validation.NewSchemaValidator(by.props)
	must(t, err)
	all := validation.ValidateCustomResource(nil, value, validator)
	all = append(all, listtype.ValidateListSetsAndMaps(nil, by.structural, value)...)
	rules := cel.NewValidator(by.structural, true, celconfig.PerCallLimit)
	broken, _ := rules.Validate(t.Context(), nil, by.structural, value, nil, celconfig.RuntimeCELCostBudget)
	return append(all, broken...)
}

type schema struct {
	props      *apiextensions.JSONSchemaProps
	structural *structuralschema.Structural
}

// The schema of an API version, from the CRDs in a folder.
func schemaOf(t *testing.T, folder, apiVersion string) schema {
	t.Helper()
	for _, file := range files(t, folder+"/*.yaml") {
		definition := crd(t, file)
		for _, version := range definition.Spec.Versions {
			if definition.Spec.Group+"/"+version.Name == apiVersion {
				props := &apiextensions.JSONSchemaProps{}
				must(t, v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, props, nil))
				structural, err := structuralschema.NewStructural(props)
				must(t, err)
				return schema{props, structural}
			}
		}
	}
	t.Fatalf("%s: no CRD has %s", folder, apiVersion)
	return schema{}
}

func crd(t *testing.T, file string) (definition v1.CustomResourceDefinition) {
	t.Helper()
	must(t, yaml.UnmarshalStrict([]byte(read(t, file)), &definition))
	return definition
}

// The objects of a release, with numbers as the API server decodes them.
func objectsOf(t *testing.T, release string) (all []object) {
	t.Helper()
	var items []any
	must(t, utiljson.Unmarshal([]byte(read(t, release+"/objects.json")), &items))
	for _, item := range items {
		all = append(all, item.(object))
	}
	return all
}

func asObject(t *testing.T, value any) (converted object) {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	must(t, json.Unmarshal(text, &converted))
	return converted
}
