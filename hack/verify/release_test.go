// What comes from outside reaches no shell as code, a release is made of what is on main, the job that signs runs nothing of this
// repository, and everything that is pulled is pinned.
package verify

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The workflow that builds a release and signs it.
const builder = "./.github/workflows/build.yml"

type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		Strategy struct {
			Matrix struct {
				Kubernetes []string
				Include    []struct{ K3s string }
			}
		}
		Permissions map[string]string
		Needs       any
		Uses        string
		Steps       []struct{ ID, Uses, Run string }
	}
}

// Programs that recipes call, without what they do.
var stubs = map[string]string{
	"docker": `[ "$1" != logs ] || echo "connection refused"`, // otherwise hack/image/test waits for it
	"cargo":  "", "go": "",
	"kubectl": `echo "image: podset-operator:latest"`,
}

// Targets, and variables that they take from outside. IMG is alone, since a wrong one lets no other be used.
var outside = map[string][]string{
	"docker-build docker-build-local docker-push docker-push-digest test-image chart deploy undeploy build-installer bundle": {"IMG"},
	"bundle bundle-build catalog-build": {"BUNDLE_IMG", "CATALOG_IMG"},
	"run simulate fuzz bench deny docker-build docker-build-local docker-push docker-push-digest chart verify-release " +
		"deploy undeploy build-installer bundle bundle-build catalog-build cluster-up cluster-down": {
		"ADVISORIES", "ARGS", "BENCH", "CLUSTER", "CONFIG", "FROM", "FUZZ_SECONDS", "REVISION", "SEED", "SEEDS", "SOURCE", "TAG",
		"TARGET", "VERSION",
	},
}

// What make says if it cannot run the recipes of a target.
var noRecipe = regexp.MustCompile(`No rule to make target|missing separator|Nothing to be done`)

// The canary is what a value makes where it is run: by a shell, by make, or by sed.
func TestNoVariableIsRun(t *testing.T) {
	folder, path := workspace(t)
	canary := filepath.Join(folder, "canary")
	touch := "touch " + canary
	for targets, variables := range outside {
		for _, value := range []string{
			"v0.1.0;" + touch + ";`" + touch + "`\n" + touch, "$(shell " + touch + ")", "$$(" + touch + ")",
			"x';" + touch + ";'", `x";` + touch + `;"`, "x|;1e " + touch + " #",
		} {
			set := []string{}
			for _, variable := range variables {
				set = append(set, variable+"="+value)
			}
			for _, asArguments := range []bool{true, false} {
				command := exec.Command("make", append([]string{"--keep-going"}, strings.Fields(targets)...)...)
				command.Dir = folder
				command.Env = append(os.Environ(), "PATH="+path, "KUBECTL=kubectl", "CLUSTER_HOME="+folder, "MAKEFLAGS=")
				if asArguments {
					command.Args = append(command.Args, set...)
				} else {
					command.Env = append(command.Env, set...)
				}
				output, err := command.CombinedOutput()
				if os.Remove(canary) == nil {
					t.Errorf("make ran a part of %q:\n%s", set, output)
				}
				if _, hasRun := err.(*exec.ExitError); err != nil && !hasRun || noRecipe.Match(output) {
					t.Fatalf("make ran no recipe: %v:\n%s", err, output)
				}
			}
		}
	}
}

// The scripts themselves, as somebody may call them without make.
func TestScriptsRefuseWhatIsNoName(t *testing.T) {
	folder, _ := workspace(t)
	for script, values := range map[string][]string{
		"hack/verify-release": {"", "0.1.0", "v0.1", "v0.1.0;id", "v0.1.0 ", "v0.1.0\n", "v0.1.0-", "v0.1.0-x/y", "v01.0.0", "v0.1.0+b"},
		"hack/krew":           {"", "0.1.0", "0.1.0;id", "0.1.0/x"},
		"hack/chart":          {"", "name", "x|;1e id #:a", "x:a b", "x:a&", "-x:a", "x:a\nb"},
	} {
		for _, value := range values {
			command := exec.Command(filepath.Join(folder, script), value)
			output, err := command.CombinedOutput()
			if exit, is := err.(*exec.ExitError); !is || exit.ExitCode() != 2 {
				t.Errorf("%s %q: %v: %s", script, value, err, output)
			}
		}
	}
}

// The step of release.yml that checks the tag, on tags of a repository that is made here.
func TestATagIsReleasedFromMainAlone(t *testing.T) {
	check := ""
	for _, step := range workflows(t)["release.yml"].Jobs["check"].Steps {
		if step.ID == "tag" {
			check = step.Run
		}
	}
	folder, _ := workspace(t)
	git := func(arguments ...string) string {
		command := exec.Command("git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com"}, arguments...)...)
		command.Dir = folder
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", arguments, err, output)
		}
		return strings.TrimSpace(string(output))
	}
	version, err := os.ReadFile(filepath.Join(folder, "charts/podset-operator/Chart.yaml"))
	must(t, err)
	tag := "v" + string(regexp.MustCompile(`(?m)^version: (.*)$`).FindSubmatch(version)[1])
	changelog := "## " + tag[1:] + " (2026-01-01)\n\n- All of it.\n"
	must(t, os.WriteFile(filepath.Join(folder, "CHANGELOG.md"), []byte(changelog), 0o600))
	// Between releases, the CRDs may differ from those of the last one.
	for _, file := range files(t, "config/crd/bases/*.yaml") {
		must(t, os.WriteFile(filepath.Join(folder, "tests/data/releases", tag[1:], filepath.Base(file)), []byte(read(t, file)), 0o600))
	}
	git("init", "--quiet", "--initial-branch=main")
	git("add", "--all")
	git("commit", "--quiet", "--message=on main")
	onMain := git("rev-parse", "HEAD")
	git("update-ref", "refs/remotes/origin/main", onMain)
	git("commit", "--quiet", "--allow-empty", "--message=elsewhere")
	elsewhere := git("rev-parse", "HEAD")
	for _, each := range []struct {
		tag, commit string
		passes      bool
	}{
		{tag, onMain, true},
		{tag, elsewhere, false},
		{"v9.9.9", onMain, false},
		{tag + ";id>canary", onMain, false},
		{"$(id>canary)", onMain, false},
	} {
		command := exec.Command("bash", "-e", "-o", "pipefail", "-c", check)
		command.Dir = folder
		command.Env = append(os.Environ(), "GITHUB_REF_NAME="+each.tag, "GITHUB_SHA="+each.commit)
		output, err := command.CombinedOutput()
		if (err == nil) != each.passes {
			t.Errorf("%q at %s: %v: %s", each.tag, each.commit, err, output)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "canary")); err == nil {
		t.Error("a tag was run")
	}
}

// An expression in a script is put into it as text, and so as code.
func TestScriptsOfWorkflowsHaveNoExpressions(t *testing.T) {
	for file, workflow := range workflows(t) {
		for name, job := range workflow.Jobs {
			for _, step := range job.Steps {
				if strings.Contains(step.Run, "${{") {
					t.Errorf("%s, %s: an expression is in the script %q: give it by env", file, name, step.Run)
				}
			}
		}
	}
}

// Where a job may sign, or write the release, neither the repository is checked out nor anything built or tested.
func TestJobsThatSignOnlySign(t *testing.T) {
	signing := []string{}
	own := regexp.MustCompile(`\b(make|cargo|go|npm|pip|bash|sh|docker (build|run|pull)|buildx build)\b|hack/|\./`)
	for file, workflow := range workflows(t) {
		if workflow.Permissions == nil {
			t.Errorf("%s does not say what its jobs may do", file)
		}
		for name, job := range workflow.Jobs {
			if job.Permissions["id-token"] == "" && job.Permissions["attestations"] == "" && job.Permissions["contents"] != "write" {
				continue
			}
			signing = append(signing, file+" "+name)
			// The rights of a call are the most that the jobs of the called workflow may take. They are in this loop as well.
			if job.Uses == builder {
				continue
			}
			if job.Uses != "" || len(job.Steps) == 0 {
				t.Errorf("%s, %s: its steps are elsewhere", file, name)
			}
			compares := false
			for _, step := range job.Steps {
				compares = compares || strings.Contains(step.Run, `sha256sum --check --strict <<<"$SUMS  SHA256SUMS"`)
				if strings.HasPrefix(step.Uses, "actions/checkout@") || strings.HasPrefix(step.Uses, "./") || own.MatchString(step.Run) {
					t.Errorf("%s, %s: %q%q does not belong to a job that signs", file, name, step.Uses, step.Run)
				}
			}
			if !compares {
				t.Errorf("%s, %s: it takes files that another job of the run may have written", file, name)
			}
		}
	}
	slices.Sort(signing)
	if wanted := []string{"build.yml sign", "release.yml build", "release.yml release"}; !slices.Equal(signing, wanted) {
		t.Errorf("%q may sign or write, not %q", signing, wanted)
	}
}

// What makes the provenance that of level 3 of SLSA: nobody but a release calls the builder, nobody tells it anything, its jobs share
// nothing with other runs, and every user verifies that it was this one.
func TestReleasesAreBuiltApart(t *testing.T) {
	text := read(t, ".github/workflows/build.yml")
	if !regexp.MustCompile(`(?m)^on:\n  workflow_call: .*\n    outputs:\n(      .*\n)+\n`).MatchString(text) {
		t.Error("build.yml starts by something else than a call, or takes inputs or secrets")
	}
	if found := regexp.MustCompile(`\b(secrets|inputs|vars|github\.event)\.`).FindString(text); found != "" {
		t.Errorf("build.yml depends on %s", found)
	}
	for name, job := range workflows(t)["build.yml"].Jobs {
		if job.Permissions == nil {
			t.Errorf("build.yml, %s: it has the rights of its caller", name)
		}
		for _, step := range job.Steps {
			if regexp.MustCompile(`cache|/setup-`).MatchString(step.Uses + step.Run) {
				t.Errorf("build.yml, %s: %q%q may use a cache, which other runs write", name, step.Uses, step.Run)
			}
		}
	}
	for file, workflow := range workflows(t) {
		for name, job := range workflow.Jobs {
			if job.Uses == builder && file+" "+name != "release.yml build" {
				t.Errorf("%s, %s builds releases too", file, name)
			}
		}
	}
	installing := read(t, "docs/installing.md")
	identities := regexp.MustCompile(`--certificate-identity \S+`).FindAllString(installing, -1)
	signer := "OWNER/REPOSITORY/.github/workflows/build.yml"
	for _, identity := range identities {
		if !strings.HasPrefix(identity, "--certificate-identity https://github.com/"+signer+"@refs/tags/v") {
			t.Errorf("docs/installing.md verifies that another workflow signed: %s", identity)
		}
	}
	verified := strings.Count(installing, "gh attestation verify ")
	if len(identities) == 0 || verified == 0 || strings.Count(installing, "--signer-workflow "+signer) < verified {
		t.Error("docs/installing.md does not verify who built")
	}
}

func TestActionsArePinned(t *testing.T) {
	pinned := regexp.MustCompile(`^ *(- )?uses: (\./\S+|\S+@[0-9a-f]{40} # v[0-9.]+)$`)
	for _, file := range files(t, ".github/workflows/*.yml") {
		for _, line := range strings.Split(read(t, file), "\n") {
			if strings.Contains(line, "uses:") && !pinned.MatchString(line) {
				t.Errorf("%s: %s", file, line)
			}
		}
	}
}

// By digest: a tag is whatever its owner makes of it tomorrow.
func TestImagesArePinned(t *testing.T) {
	digest := regexp.MustCompile(`@sha256:[0-9a-f]{64}\b`)
	from := regexp.MustCompile(`(?m)^FROM .*$`)
	for _, file := range []string{"Dockerfile", "hack/olm/catalog.Dockerfile"} {
		for _, line := range from.FindAllString(read(t, file), -1) {
			if !strings.HasPrefix(line, "FROM scratch") && !digest.MatchString(line) {
				t.Errorf("%s: %s", file, line)
			}
		}
	}
	found := 0
	for _, file := range append(files(t, ".github/workflows/*.yml"), "Makefile") {
		for _, image := range regexp.MustCompile(`docker\.io/\S+`).FindAllString(read(t, file), -1) {
			found++
			if !digest.MatchString(image) {
				t.Errorf("%s: %s", file, image)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d images were found, not those of the builder and of the SBOM", found)
	}
	ci, harness := read(t, ".github/workflows/ci.yml"), read(t, "e2e/src/cluster/k3s.rs")
	versions := regexp.MustCompile(`- k3s: (\S+)\n +digest: (sha256:[0-9a-f]{64})\n`).FindAllStringSubmatch(ci, -1)
	if len(versions) < 2 || len(versions) != strings.Count(ci, "- k3s: ") {
		t.Errorf("CI tests these k3s by digest: %v", versions)
	}
	newest := versions[len(versions)-1]
	if !strings.Contains(harness, newest[1]+"@"+newest[2]) {
		t.Errorf("the scenarios take another k3s by default than %v", newest)
	}
}

// BuildKit sets these arguments. A default in the Dockerfile would take the place of its value, for every platform.
func TestTheDockerfileHasNoDefaultPlatform(t *testing.T) {
	text := read(t, "Dockerfile")
	if found := regexp.MustCompile(`(?m)^ARG (TARGET|BUILD)(PLATFORM|OS|ARCH|VARIANT)=.*`).FindString(text); found != "" {
		t.Error(found)
	}
}

// docs/installing.md says which versions of Kubernetes are supported. CI tests each of them, and the first one is the oldest everywhere.
func TestSupportedVersionsAreTested(t *testing.T) {
	find := func(file, pattern string) string {
		found := regexp.MustCompile(pattern).FindStringSubmatch(strings.Join(strings.Fields(read(t, file)), " "))
		if found == nil {
			t.Fatalf("%s does not match %s", file, pattern)
		}
		return found[1]
	}
	minor := func(version string) string { return regexp.MustCompile(`1\.\d+`).FindString(version) }
	built := find("hack/cluster/go.mod", `k8s\.io/kubernetes (v[0-9.]+)`)
	tested := map[string]bool{minor(built): true}
	for _, job := range workflows(t)["ci.yml"].Jobs {
		for _, version := range job.Strategy.Matrix.Kubernetes {
			tested[minor(version)] = true
		}
		for _, version := range job.Strategy.Matrix.Include {
			tested[minor(version.K3s)] = true
		}
	}
	versions := slices.Sorted(maps.Keys(tested))
	if said := strings.FieldsFunc(find("docs/installing.md", `CI tests ([0-9., and]+)\. `), func(r rune) bool { return strings.ContainsRune(", and", r) }); !slices.Equal(said, versions) {
		t.Errorf("CI tests %v, and docs/installing.md says %v", versions, said)
	}
	for file, pattern := range map[string]string{
		"docs/installing.md":                `You need Kubernetes (\S+) or newer`,
		"README.md":                         `with Kubernetes (\S+) or newer`,
		"crates/leadership/README.md":       `Kubernetes is (\S+) or newer`,
		"charts/podset-operator/Chart.yaml": `kubeVersion: ">=(1\.\d+)\.0-0"`,
	} {
		if oldest := find(file, pattern); oldest != versions[0] {
			t.Errorf("%s says %s, and the oldest version that CI tests is %s", file, oldest, versions[0])
		}
	}
	if !strings.Contains(read(t, "e2e/src/cluster/k3s.rs"), built+"-k3s") {
		t.Errorf("hack/cluster builds %s, and the scenarios run on another k3s", built)
	}
}

func TestEveryFuzzTargetRunsAtNight(t *testing.T) {
	names := []string{}
	for _, file := range files(t, "fuzz/fuzz_targets/*.rs") {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".rs"))
	}
	matrix := "target: [" + strings.Join(names, ", ") + "]\n"
	if !strings.Contains(read(t, ".github/workflows/nightly.yml"), matrix) {
		t.Errorf("nightly.yml has another matrix than %s", matrix)
	}
}

// A copy of what make needs, so that nothing is written here, and a PATH on which other programs are called first.
func workspace(t *testing.T) (folder, path string) {
	t.Helper()
	folder, bin := t.TempDir(), t.TempDir()
	for _, name := range []string{"hack", "charts", "config", "tests/data"} {
		must(t, os.CopyFS(filepath.Join(folder, name), os.DirFS(filepath.Join(root, name))))
	}
	for _, name := range []string{"Makefile", "Cargo.toml", "Cargo.lock", "CHANGELOG.md", "Dockerfile"} {
		must(t, os.WriteFile(filepath.Join(folder, name), []byte(read(t, name)), 0o600))
	}
	for name, script := range stubs {
		must(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	}
	return folder, bin + ":" + os.Getenv("PATH")
}

func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	all := map[string]workflow{}
	for _, file := range files(t, ".github/workflows/*.yml") {
		var parsed workflow
		must(t, yaml.Unmarshal([]byte(read(t, file)), &parsed))
		if len(parsed.Jobs) == 0 {
			t.Fatalf("%s has no jobs", file)
		}
		all[filepath.Base(file)] = parsed
	}
	return all
}

// Files of the repository, by a pattern.
func files(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, pattern))
	must(t, err)
	if len(found) == 0 {
		t.Fatalf("nothing is at %s", pattern)
	}
	for i := range found {
		found[i], err = filepath.Rel(root, found[i])
		must(t, err)
	}
	return found
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	must(t, err)
	return string(text)
}
