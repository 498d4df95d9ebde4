# `make` lists the targets. Each is a command or two that can be given by hand as well.

# These come from outside, so they are data. Make takes their text as it stands and does not expand it; a recipe reads them from its
# environment, as "$$NAME", so that no shell reads them as code (the last line exports them). KUBECTL is the exception: it is a command.
OUTSIDE = ADVISORIES ARGS BENCH CLUSTER CONFIG FROM IMG REVISION SEED SEEDS SOURCE TAG VERSION
$(foreach name,$(OUTSIDE),$(if $(filter command environment,$(origin $(name))),$(eval override $(name) := $$(value $(name)))))
# Which local cluster cluster-up and cluster-down mean.
CLUSTER ?= podset
# The operator's image.
IMG ?= podset-operator:latest
# What `make deploy` and `make undeploy` are about: config/namespaced for an operator of one namespace.
CONFIG ?= config/default
# The kubectl on the PATH, else the one that was built for the local cluster.
KUBECTL ?= $(or $(shell command -v kubectl 2>/dev/null),$(shell hack/cluster/cluster bin)/kubectl)

# A step of a pipe that fails, fails the command.
SHELL = bash
.SHELLFLAGS = -e -o pipefail -c

SCRIPTS = hack/lib.sh hack/chart hack/demo hack/govulncheck hack/render hack/trace-demo hack/verify-release hack/cluster/cluster hack/image/build \
  hack/image/compile hack/image/test hack/prometheus/check .ci/run

.DEFAULT_GOAL := help
.NOTPARALLEL: # cargo uses all cores by itself, and of tests only one kind shall print at a time

##@ General

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## "; print "Usage: make TARGET" } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## See it work: local cluster, three replicas, a tour of both; KEEP=1 leaves them up
	@hack/demo

.PHONY: trace-demo
trace-demo: ## A user's change as one trace in Jaeger: operator, API server and etcd; KEEP=1 leaves all up
	@hack/trace-demo

##@ Development

.PHONY: build
build: ## Build the operator: target/debug/podset-operator
	cargo build

# Free ports of this machine alone, so that a second one can stand by; a flag in ARGS or a variable of the environment wins.
.PHONY: run
run: export PODSET_OPERATOR_HEALTH_PROBE_BIND_ADDRESS ?= 127.0.0.1:0
run: export PODSET_OPERATOR_METRICS_BIND_ADDRESS ?= 127.0.0.1:0
run: export PODSET_OPERATOR_METRICS_SECURE ?= false
run: ## Run the operator on this machine (ARGS=FLAGS); probes and plain metrics at free local ports, see its log
	@set -f; set -x; cargo run -- run $$ARGS

.PHONY: manifests
manifests: ## Write config/crd/bases anew from the Rust types
	UPDATE_MANIFESTS=1 cargo test --test manifests

.PHONY: test
test: lint test-unit test-alerts test-e2e ## Lint, tests, alerts, scenarios: most of what CI checks; CONTRIBUTING.md names the rest

.PHONY: test-unit
test-unit: ## Tests without a cluster: tables, properties, simulation, generated manifests
	cargo test --workspace --exclude e2e

.PHONY: test-alerts
test-alerts: ## Alerts of config/prometheus, by promtool: from the PATH, Debian's, or built from source
	hack/prometheus/check

.PHONY: simulate
simulate: export SIMULATION_SEEDS = $(SEEDS)
simulate: export SIMULATION_FROM = $(FROM)
simulate: export SIMULATION_SEED = $(SEED)
simulate: SEEDS ?= 1000
simulate: ## The operator in SEEDS=1000 worlds full of faults (FROM=0: the first); SEED=7: one of them, told whole
	cargo test --profile simulation -p podset-operator --test simulation -- --exact world::play::whatever_happens_the_promises_hold --nocapture

.PHONY: mutants
mutants: ## The operator with each of its mechanisms taken out: some world must notice
	cargo test --profile simulation -p podset-operator --test simulation -- --exact world::mutants::every_mechanism_is_missed --ignored --nocapture

.PHONY: conformance
conformance: ## Ask a real API server anew what the simulated one must answer, and compare: a change shows in git diff
	@set -e; trap 'hack/cluster/cluster down conformance' EXIT; \
	SIMULATION_KUBECONFIG=$$(NODES=0 hack/cluster/cluster up conformance); export SIMULATION_KUBECONFIG; \
	$(KUBECTL) --kubeconfig "$$SIMULATION_KUBECONFIG" apply -k config/crd; \
	$(KUBECTL) --kubeconfig "$$SIMULATION_KUBECONFIG" wait --for condition=Established -f config/crd/bases; \
	cargo test -p podset-operator --test simulation -- --exact behaviour::conformance::record --ignored; \
	cargo test -p podset-operator --test simulation -- behaviour::conformance

.PHONY: test-e2e
test-e2e: ## Scenarios on a cluster of their own: k3s, or local (e2e/README.md)
	cargo test -p e2e

# What the benchmark is asked: parts, loads and options, as `cargo bench -p e2e -- --help` tells.
BENCH ?= --write

.PHONY: bench
bench: ## Measure the operator beside others, some hours, for docs/benchmarks.md (BENCH='100x10 --write': a part)
	@set -f; set -x; cargo bench -p e2e -- $$BENCH

.PHONY: bench-short
bench-short: ## The part of it that CI runs: requests, pods at any instant, rest; no times
	cargo bench -p e2e -- short

# Not from Go's cache of test results: what is looked at lies outside the module, where that cache does not look.
.PHONY: verify
verify: ## The chart is config/, Argo CD's health checks say what they should, workflows are sound (hack/verify)
	cd hack/verify && GOWORK=off CGO_ENABLED=0 go vet ./... && GOWORK=off CGO_ENABLED=0 go test -count=1 ./...
	cd hack/verify && GOWORK=off CGO_ENABLED=0 go tool actionlint -color $(abspath $(wildcard .github/workflows/*.yml))

# What the image says of itself.
IMAGE_ARGS = --build-arg "VERSION=$$VERSION" --build-arg "REVISION=$$REVISION" $${SOURCE:+--build-arg "SOURCE=$$SOURCE"}
VERSION ?= $(shell sed -n '/^version = /{s/[^"]*"\(.*\)"/\1/p;q;}' Cargo.toml)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# Asked once, not for every recipe.
VERSION := $(VERSION)
REVISION := $(REVISION)

.PHONY: name-of-img
name-of-img:
	@[[ $$IMG =~ ^[A-Za-z0-9][A-Za-z0-9._/:@-]*$$ ]] || { printf 'IMG=%q is not the name of an image\n' "$$IMG" >&2; exit 2; }

.PHONY: docker-build
docker-build: name-of-img ## Build the operator's image (IMG=NAME:TAG)
	docker build $(IMAGE_ARGS) --tag "$$IMG" .

.PHONY: docker-build-local
docker-build-local: name-of-img ## The same where no image can be pulled: compiled on this machine
	hack/image/build "$$IMG" $(IMAGE_ARGS)

# Several platforms make one name, which only a registry can hold. SBOM and provenance are attached to it.
SBOM_GENERATOR = docker.io/docker/buildkit-syft-scanner:1.12.0@sha256:ae4f3b554449e7e25548e7d8ccc029d17357348e30c6e3df01b92bc93654d6a9
BUILD_ALL = docker buildx build $(IMAGE_ARGS) --platform linux/amd64,linux/arm64 --attest type=sbom,generator=$(SBOM_GENERATOR) \
  --provenance=mode=max --metadata-file dist/image.json

.PHONY: docker-push
docker-push: name-of-img ## Build the image for amd64 and arm64, with SBOM and provenance, and push it as IMG (needs docker buildx)
	@mkdir -p dist
	$(BUILD_ALL) --tag "$$IMG" --push .

.PHONY: docker-push-digest
docker-push-digest: name-of-img ## The same without a tag: IMG is NAME alone, and dist/image.json says by which digest it is found
	@mkdir -p dist
	$(BUILD_ALL) --output "type=image,name=$$IMG,push-by-digest=true,name-canonical=true,push=true" .

.PHONY: test-image
test-image: ## Run the image IMG in all ways that need no cluster
	hack/image/test "$$IMG"

.PHONY: lint
lint: ## Format, clippy, rustdoc; dependencies and scripts if cargo-deny and shellcheck are installed
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --document-private-items
	@if cargo deny --version >/dev/null 2>&1; then \
	  echo 'cargo deny --workspace check bans licenses sources'; cargo deny --workspace check bans licenses sources; \
	else echo 'lint: dependencies are not checked: cargo install --locked cargo-deny'; fi
	@if command -v shellcheck >/dev/null; then \
	  echo 'shellcheck $(SCRIPTS)'; shellcheck $(SCRIPTS); \
	else echo 'lint: scripts are not checked: shellcheck is not installed'; fi

# Advisories are a Git repository that grows by the day, and not every machine can fetch it. ADVISORIES=required fails where that is so.
.PHONY: deny
deny: ## Check dependencies: licences, duplicates, sources, and advisories where their database can be fetched (needs cargo-deny)
	cargo deny --workspace check bans licenses sources
	@if cargo deny fetch db; then echo 'cargo deny --workspace check advisories'; cargo deny --workspace check advisories; \
	else echo '**** ADVISORIES ARE NOT CHECKED: their database could not be fetched ****' >&2; [[ $$ADVISORIES != required ]]; fi

.PHONY: govulncheck
govulncheck: ## Look for known vulnerabilities in the Go modules of hack/ (needs jq, and vuln.go.dev)
	hack/govulncheck

.PHONY: package
package: ## Make the crate, and build it from what is in it
	cargo package --locked --package leadership --package operator-kit --package podset-operator

.PHONY: chart
chart: ## Write the chart to dist/, for the image IMG
	hack/chart "$$IMG"

.PHONY: verify-release
verify-release: ## Whether TAG is what all files say that name a version; writes its part of the changelog to dist/NOTES.md
	hack/verify-release "$$TAG"

.PHONY: clean
clean: ## Delete target/; the local cluster's binaries stay (see cluster-up)
	cargo clean

##@ Your cluster: the one of KUBECONFIG

.PHONY: install
install: ## Install or update the CRDs
	$(KUBECTL) apply -k config/crd

.PHONY: uninstall
uninstall: ## Remove the CRDs, and with them every PodSet, its pods, and every MyCustomResource
	$(KUBECTL) delete --ignore-not-found -k config/crd

RENDER = KUBECTL="$(KUBECTL)" hack/render "$$CONFIG"

.PHONY: deploy
deploy: ## Run the operator in it, with its CRDs and rights, from the image IMG (its nodes must have it or be able to pull it)
	$(RENDER) "$$IMG" | $(KUBECTL) apply -f -

.PHONY: undeploy
undeploy: ## Remove the operator; CRDs, PodSets and their pods stay (make uninstall)
	$(RENDER) | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: build-installer
build-installer: ## Write all that `make deploy` installs to dist/install.yaml
	@mkdir -p dist
	$(RENDER) "$$IMG" >dist/install.yaml || { rm -f dist/install.yaml; exit 1; }

##@ A local cluster, without Docker (hack/cluster/README.md)

.PHONY: cluster-up
cluster-up: ## Start it (CLUSTER=NAME: another one) and say how to use it
	@hack/cluster/cluster up "$$CLUSTER"

.PHONY: cluster-down
cluster-down: ## End it and delete its data
	@hack/cluster/cluster down "$$CLUSTER"

export $(foreach name,$(OUTSIDE),$(if $(filter-out undefined,$(origin $(name))),$(name)))
