// Argo CD's health checks and actions, run by the interpreter that Argo CD runs them with, in what it lets them use.
package verify

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"
)

const (
	progressing = "Reconciling=True/Progressing"
	refused     = "ReplicaFailure=True/FailedCreate"
	undeletable = "ReplicaFailure=True/FailedDelete"
)

// The states of a PodSet, as docs/user-guide.md lists them, each with the conditions that the operator gives it, and what lies between.
func TestHealthOfAPodSet(t *testing.T) {
	for name, this := range map[string]struct {
		generation, observed int
		conditions           []string
		wanted, because      string
	}{
		"all pods are there and ready": {2, 2, list("Ready=True/AllPodsReady"), "Healthy", "AllPodsReady: "},
		"creating or waiting":          {2, 2, list("Ready=False/PodsNotReady", progressing), "Progressing", "PodsNotReady: "},
		"pods of a rollout are refused": {2, 2, list("Ready=False/RolloutInProgress", "Reconciling=True/Retrying", refused), "Progressing", "RolloutInProgress: "},
		"pods are refused":             {2, 2, list("Ready=False/PodsNotReady", "Reconciling=True/Retrying", refused), "Degraded", "FailedCreate: "},
		"surplus pods cannot be deleted": {3, 2, list("Ready=True/AllPodsReady", "Reconciling=True/Retrying", undeletable),
			"Degraded", "FailedDelete: "},
		"pods keep finishing": {2, 2, list("Ready=False/PodsFailing", "Reconciling=True/BackingOff"), "Degraded", "PodsFailing: "},
		"the template can never work": {2, 2, list("Ready=False/InvalidTemplate", "Stalled=True/InvalidTemplate", refused),
			"Degraded", "InvalidTemplate: "},
		"it is being deleted":          {2, 2, list("Ready=False/Deleting", "Reconciling=True/Deleting"), "Progressing", "Deleting: "},
		"the operator has not seen it": {1, 0, nil, "Progressing", "the operator"},
		"its spec has changed":         {3, 2, list("Ready=True/AllPodsReady"), "Progressing", "the operator"},
		"its spec has changed, and was wrong": {3, 2, list("Ready=False/InvalidTemplate", "Stalled=True/InvalidTemplate"),
			"Progressing", "the operator"},
		"a condition that does not hold": {2, 2, list("Stalled=False/Fine", "ReplicaFailure=False/Fine", "Ready=True/AllPodsReady"),
			"Healthy", "AllPodsReady: "},
		"somebody else's condition": {2, 2, list("Foreign=True/Whatever"), "Progressing", "the operator"},
	} {
		t.Run(name, func(t *testing.T) {
			is(t, "podset.lua", set(this.generation, this.observed, this.conditions), this.wanted, this.because)
		})
	}
}

func TestHealthOfAMyCustomResource(t *testing.T) {
	for name, this := range map[string]struct {
		generation, observed int
		conditions           []string
		wanted, because      string
	}{
		"a friend is found":            {1, 1, list("Ready=True/FriendFound"), "Healthy", "FriendFound: "},
		"no friend is found":           {1, 1, list("Ready=True/FriendMissing"), "Healthy", "FriendMissing: "},
		"it looks for another friend":  {2, 1, list("Ready=True/FriendFound"), "Progressing", "the operator"},
		"the operator has not seen it": {1, 0, nil, "Progressing", "the operator"},
		"it has no Ready condition":    {1, 1, list("Foreign=True/Whatever"), "Progressing", "the operator"},
	} {
		t.Run(name, func(t *testing.T) {
			is(t, "mycustomresource.lua", set(this.generation, this.observed, this.conditions), this.wanted, this.because)
		})
	}
}

// As objects look before anybody has written their status.
func TestHealthOfWhatHasNoStatus(t *testing.T) {
	for _, file := range []string{"podset.lua", "mycustomresource.lua"} {
		is(t, file, object{"metadata": object{"generation": 1}}, "Progressing", "the operator")
	}
}

// Each action changes one field, also of a set that has little in its spec, and is offered where kubectl podset allows it.
func TestActionsOnAPodSet(t *testing.T) {
	var actions struct {
		Discovery   string `json:"discovery.lua"`
		Definitions []struct {
			Name   string `json:"name"`
			Action string `json:"action.lua"`
		} `json:"definitions"`
	}
	must(t, yaml.UnmarshalStrict([]byte(source(t, "podset-actions.yaml")), &actions))
	at := func(table lua.LValue, path string) string {
		for _, field := range strings.Split(path, "/") {
			inner, isTable := table.(*lua.LTable)
			if !isTable {
				return "nothing"
			}
			table = inner.RawGetString(strings.ReplaceAll(field, "~", "/"))
		}
		return table.String()
	}
	paused := object{"rollingUpdate": object{"paused": true, "partition": 1}}
	template := object{"spec": object{"hostname": "a"}, "metadata": object{"annotations": object{"a": "b"}}}
	full := object{"updateStrategy": object{"type": "RollingUpdate", "rollingUpdate": object{"paused": false}}, "template": template}
	for name, this := range map[string]struct {
		spec    object
		offered string
	}{
		"little in its spec": {object{"replicas": 1}, "pause restart"},
		"all in its spec":    {full, "pause restart"},
		"paused":             {object{"updateStrategy": paused}, "resume"},
		"on delete":          {object{"updateStrategy": object{"type": "OnDelete"}}, "restart"},
	} {
		t.Run(name, func(t *testing.T) {
			offered := []string{}
			discovered := run(t, "discovery.lua", actions.Discovery, object{"spec": this.spec})
			for _, definition := range actions.Definitions {
				if at(discovered, definition.Name+"/disabled") == "true" {
					continue
				}
				offered = append(offered, definition.Name)
				changed := run(t, definition.Name, definition.Action, object{"spec": this.spec})
				path, wanted := "spec/updateStrategy/rollingUpdate/paused", strconv.FormatBool(definition.Name == "pause")
				if definition.Name == "restart" {
					path, wanted = "spec/template/metadata/annotations/kubectl.kubernetes.io~restartedAt", "20"
				}
				if said := at(changed, path); !strings.HasPrefix(said, wanted) {
					t.Errorf("%s: %s is %s", definition.Name, path, said)
				}
				if this.spec["template"] != nil && at(changed, "spec/template/spec/hostname") != "a" {
					t.Errorf("%s: the template is lost", definition.Name)
				}
			}
			slices.Sort(offered)
			if strings.Join(offered, " ") != this.offered {
				t.Errorf("offered are %v", offered)
			}
		})
	}
}

// The checks stand in Argo CD's ConfigMap under the names that it looks for.
func TestHealthChecksAreNamedAsArgoCDLooksForThem(t *testing.T) {
	data := config(t, "argocd")["ConfigMap argocd/argocd-cm"]["data"].(map[string]any)
	for key, file := range map[string]string{
		"resource.customizations.health.app.example.com_PodSet":           "podset.lua",
		"resource.customizations.actions.app.example.com_PodSet":          "podset-actions.yaml",
		"resource.customizations.health.poc.test.domain_MyCustomResource": "mycustomresource.lua",
	} {
		if data[key] != source(t, file) {
			t.Errorf("%s is not %s", key, file)
		}
	}
	for name, crd := range config(t, "crd") {
		spec := crd["spec"].(map[string]any)
		kind := spec["names"].(map[string]any)["kind"].(string)
		if data["resource.customizations.health."+spec["group"].(string)+"_"+kind] == nil {
			t.Errorf("%s has no health check", name)
		}
	}
}

func list(conditions ...string) []string { return conditions }

// Conditions are written TYPE=STATUS/REASON.
func set(generation, observed int, conditions []string) object {
	status := object{"observedGeneration": observed}
	all := []any{}
	for _, condition := range conditions {
		kind, rest, _ := strings.Cut(condition, "=")
		holds, reason, _ := strings.Cut(rest, "/")
		all = append(all, object{"type": kind, "status": holds, "reason": reason, "message": "words"})
	}
	status["conditions"] = all
	return object{"metadata": object{"generation": generation}, "status": status}
}

func source(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "config/argocd", file))
	must(t, err)
	return string(text)
}

// Runs a check, and compares what it says.
func is(t *testing.T, file string, of object, wanted, because string) {
	t.Helper()
	said := run(t, file, source(t, file), of)
	status, message := said.RawGetString("status").String(), said.RawGetString("message").String()
	if status != wanted || !strings.HasPrefix(message, because) {
		t.Errorf("%s says %s, %q, and not %s, %q", file, status, message, wanted, because)
	}
}

// Runs a script as Argo CD does, with no library but the harmless ones, and returns its table.
func run(t *testing.T, name, script string, of object) *lua.LTable {
	t.Helper()
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{
		{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase},
		{lua.TabLibName, lua.OpenTable}, {lua.StringLibName, lua.OpenString},
	} {
		must(t, state.CallByParam(lua.P{Fn: state.NewFunction(library.open), Protect: true}, lua.LString(library.name)))
	}
	// Argo CD's own has no more than the date and the time.
	state.PreloadModule("os", lua.OpenOs)
	text, err := yaml.Marshal(of)
	must(t, err)
	var plain any
	must(t, yaml.Unmarshal(text, &plain))
	state.SetGlobal("obj", value(state, plain))
	must(t, state.DoString(script))
	said, isTable := state.Get(-1).(*lua.LTable)
	if !isTable {
		t.Fatalf("%s returns %v", name, state.Get(-1))
	}
	return said
}

// A value of JSON in Lua.
func value(state *lua.LState, of any) lua.LValue {
	switch of := of.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, child := range of {
			table.RawSetString(key, value(state, child))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, child := range of {
			table.Append(value(state, child))
		}
		return table
	case string:
		return lua.LString(of)
	case float64:
		return lua.LNumber(of)
	case bool:
		return lua.LBool(of)
	default:
		return lua.LNil
	}
}
