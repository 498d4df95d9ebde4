# `make` lists the targets. Each runs a command or two that you can also type.

# Users set these, so they are data. Make does not expand their text. A recipe reads them from its environment, as "$$NAME", so that
# no shell runs them as code (the last line exports them). KUBECTL is an exception, because it is a command.
OUTSIDE = ADVISORIES ARGS BASELINE BENCH BUNDLE_IMG CATALOG_IMG CLUSTER CONFIG FROM FUZZ_SECONDS IMG REVISION SEED SEEDS SOURCE TAG TARGET \
  VERSION
$(foreach name,$(OUTSIDE),$(if $(filter command environment,$(origin $(name))),$(eval override $(name) := $$(value $(name)))))
# The name of the local cluster for cluster-up and cluster-down.
CLUSTER ?= podset
# The API of the crate leadership stays compatible with the release before this commit.
BASELINE ?= $(shell git describe --tags --abbrev=0 --match 'v*' HEAD^ 2>/dev/null)
# The operator's image.
IMG ?= podset-operator:latest
# What `make deploy` installs. config/namespaced is an operator for one namespace.
CONFIG ?= config/default
# The kubectl on the PATH, or else the one of the local cluster.
KUBECTL ?= $(or $(shell command -v kubectl 2>/dev/null),$(shell hack/cluster/cluster bin)/kubectl)

# A command fails if any step of its pipe fails.
SHELL = bash
.SHELLFLAGS = -e -o pipefail -c

SCRIPTS = hack/lib.sh hack/chart hack/demo hack/govulncheck hack/krew hack/render hack/trace-demo hack/verify-release \
  hack/cluster/build hack/cluster/cluster hack/image/build hack/image/compile hack/image/test hack/prometheus/check .ci/run

.DEFAULT_GOAL := help
.NOTPARALLEL: # cargo uses all cores, and the output of tests must not mix

##@ General

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## "; print "Usage: make TARGET" } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Start a local cluster and three replicas, scale a PodSet, kill the leader; KEEP=1 leaves everything running
	@hack/demo

.PHONY: trace-demo
trace-demo: ## Show a change as one trace of operator, API server and etcd in Jaeger; KEEP=1 leaves everything running
	@hack/trace-demo

##@ Development

.PHONY: build
build: ## Build the operator: target/debug/podset-operator
	cargo build

# Free ports of this machine, so that a second replica can run. Flags in ARGS and variables of the environment win.
.PHONY: run
run: export PODSET_OPERATOR_HEALTH_PROBE_BIND_ADDRESS ?= 127.0.0.1:0
run: export PODSET_OPERATOR_METRICS_BIND_ADDRESS ?= 127.0.0.1:0
run: export PODSET_OPERATOR_METRICS_SECURE ?= false
run: ## Run the operator on this machine (ARGS=FLAGS), with probes and plain metrics at free local ports that it logs
	@set -f; set -x; cargo run -- run $$ARGS

.PHONY: manifests
manifests: ## Generate docs/reference and the CRDs from the Rust code, and config/manager, config/network-policy and config/rbac from the chart
	UPDATE_MANIFESTS=1 cargo test --test manifests
	UPDATE_REFERENCE=1 cargo test --test reference
	cd hack/verify && GOWORK=off CGO_ENABLED=0 UPDATE_MANIFESTS=1 go test -count=1 -run TestConfigIsRendered ./...

.PHONY: test
test: lint test-unit test-alerts test-e2e ## Run most checks of CI; CONTRIBUTING.md lists the others

.PHONY: test-unit
test-unit: ## Run all tests that need no cluster
	cargo test --workspace --exclude e2e

.PHONY: test-alerts
test-alerts: ## Test the alerts of config/prometheus with promtool
	hack/prometheus/check

.PHONY: simulate
simulate: export SIMULATION_SEEDS = $(SEEDS)
simulate: export SIMULATION_FROM = $(FROM)
simulate: export SIMULATION_SEED = $(SEED)
simulate: SEEDS ?= 1000
simulate: ## Simulate SEEDS=1000 worlds full of faults, starting with FROM=0; SEED=7 runs one and prints all of it
	cargo test --profile simulation -p podset-operator --test simulation -- --exact world::play::the_promises_hold_for_every_seed --nocapture

.PHONY: mutants
mutants: ## Remove each mechanism of the operator in turn: some simulated world must fail
	cargo test --profile simulation -p podset-operator --test simulation -- --exact world::mutants::each_removed_mechanism_makes_a_world_fail --ignored --nocapture

# The flags of cargo-fuzz are unstable. This allows them in the compiler of rust-toolchain.toml, so no second one is needed.
.PHONY: fuzz fuzz-lint
fuzz fuzz-lint: export RUSTC_BOOTSTRAP = 1
fuzz: FUZZ_SECONDS ?= 60
fuzz: ## Fuzz the parsers of untrusted input, each target for FUZZ_SECONDS=60 or TARGET=NAME alone (needs cargo-fuzz; fuzz/README.md)
	@set -f; targets=$${TARGET:-$$(cargo fuzz list)}; for target in $$targets; do \
	  (set -x; cargo fuzz run "$$target" -- "-max_total_time=$$FUZZ_SECONDS" -timeout=10 -print_final_stats=1); \
	done

fuzz-lint: ## Check the fuzz targets with clippy, which builds all dependencies once more
	RUSTFLAGS='--cfg fuzzing' cargo clippy --manifest-path fuzz/Cargo.toml --all-targets -- -D warnings

.PHONY: conformance
conformance: export SIMULATION_SEEDS = $(SEEDS)
conformance: export SIMULATION_FROM = $(FROM)
conformance: SEEDS ?= 100
conformance: FROM ?= 0
conformance: ## Record the answers of a real API server and compare the simulated one, also for random requests (SEEDS=100, FROM=0)
	@set -e; trap 'hack/cluster/cluster down conformance' EXIT; \
	SIMULATION_KUBECONFIG=$$(NODES=0 hack/cluster/cluster up conformance); export SIMULATION_KUBECONFIG; \
	$(KUBECTL) --kubeconfig "$$SIMULATION_KUBECONFIG" apply -k config/crd; \
	for attempt in 1 2 3; do \
	  $(KUBECTL) --kubeconfig "$$SIMULATION_KUBECONFIG" wait --for condition=Established -f config/crd/bases && break; \
	  sleep 1; \
	done; \
	cargo test -p podset-operator --test simulation -- --exact behaviour::conformance::record --ignored; \
	cargo test -p podset-operator --test simulation -- behaviour::conformance; \
	cargo test -p podset-operator --test simulation -- --exact behaviour::conformance::random_requests_get_the_same_answers --ignored

.PHONY: test-e2e
test-e2e: ## Run the end-to-end tests on a cluster of their own: k3s or local (e2e/README.md)
	cargo test -p e2e

# Parts and options of the benchmark: `make bench BENCH=--help`.
BENCH ?= --write

.PHONY: bench
bench: ## Run the benchmark for docs/benchmarks.md, which takes hours (BENCH='100x10 --rounds 1': a part)
	@set -f; set -x; cargo run --profile bench -p bench -- $$BENCH

# Without Go's cache of test results, which does not see files outside the module.
.PHONY: verify
verify: ## Check the chart, Argo CD's health checks, the workflows (hack/verify), and the OLM bundle (hack/olm)
	cd hack/verify && GOWORK=off CGO_ENABLED=0 go vet ./... && GOWORK=off CGO_ENABLED=0 go test -count=1 ./...
	cd hack/verify && GOWORK=off CGO_ENABLED=0 go tool actionlint -color ../../.github/workflows/*.yml
	cd hack/olm && $(OLM_ENV) go vet ./... && $(OLM_ENV) go test -count=1 ./...

# The tag leaves out a library that needs cgo.
OLM_ENV = GOWORK=off CGO_ENABLED=0 GOFLAGS=-tags=containers_image_openpgp

# Labels of the image.
IMAGE_ARGS = --build-arg "VERSION=$$VERSION" --build-arg "REVISION=$$REVISION" $${SOURCE:+--build-arg "SOURCE=$$SOURCE"}
VERSION ?= $(shell sed -n '/^version = /{s/[^"]*"\(.*\)"/\1/p;q;}' Cargo.toml)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# Evaluate them once, not for every recipe.
VERSION := $(VERSION)
REVISION := $(REVISION)
# The images of the OLM bundle and catalog.
BUNDLE_IMG ?= podset-operator-bundle:v$(VERSION)
CATALOG_IMG ?= podset-operator-catalog:v$(VERSION)

is_name = [[ $$$1 =~ ^[A-Za-z0-9][A-Za-z0-9._/:@-]*$$ ]] || { printf '$1=%q is not the name of an image\n' "$$$1" >&2; exit 2; }

.PHONY: name-of-img
name-of-img:
	@$(call is_name,IMG)

.PHONY: docker-build
docker-build: name-of-img ## Build the operator's image (IMG=NAME:TAG)
	docker build $(IMAGE_ARGS) --tag "$$IMG" .

.PHONY: docker-build-local
docker-build-local: name-of-img ## Build the image from a binary that is compiled on this machine; pulls no image
	hack/image/build "$$IMG" $(IMAGE_ARGS)

# Only a registry can hold an image of several platforms. SBOM and provenance are attached to it.
SBOM_GENERATOR = docker.io/docker/buildkit-syft-scanner:1.12.0@sha256:ae4f3b554449e7e25548e7d8ccc029d17357348e30c6e3df01b92bc93654d6a9
BUILD_ALL = docker buildx build $(IMAGE_ARGS) --platform linux/amd64,linux/arm64 \
  --attest type=sbom,generator=$(SBOM_GENERATOR),SELECT_CATALOGERS=+rust-cargo-lock-cataloger \
  --provenance=mode=max --metadata-file dist/image.json

.PHONY: docker-push
docker-push: name-of-img ## Build the image for amd64 and arm64, with SBOM and provenance, and push it as IMG (needs docker buildx)
	@mkdir -p dist
	$(BUILD_ALL) --tag "$$IMG" --push .

.PHONY: docker-push-digest
docker-push-digest: name-of-img ## Push the same image without a tag (IMG=NAME) and write its digest to dist/image.json
	@mkdir -p dist
	$(BUILD_ALL) --output "type=image,name=$$IMG,push-by-digest=true,name-canonical=true,push=true" .

.PHONY: test-image
test-image: ## Test the image IMG without a cluster
	hack/image/test "$$IMG"

.PHONY: lint
lint: ## Check format, clippy and rustdoc, and with cargo-deny and shellcheck also dependencies and scripts
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --document-private-items
	@if cargo deny --version >/dev/null 2>&1; then \
	  echo 'cargo deny --workspace check bans licenses sources'; cargo deny --workspace check bans licenses sources; \
	else echo 'lint: dependencies are not checked: cargo install --locked cargo-deny'; fi
	@if command -v shellcheck >/dev/null; then \
	  echo 'shellcheck $(SCRIPTS)'; shellcheck $(SCRIPTS); \
	else echo 'lint: scripts are not checked: shellcheck is not installed'; fi

# Not every machine can fetch the advisories. ADVISORIES=required fails there.
.PHONY: deny
deny: ## Check licences, duplicates, sources and advisories of the dependencies (needs cargo-deny)
	cargo deny --workspace check bans licenses sources
	@if cargo deny fetch db; then echo 'cargo deny --workspace check advisories'; cargo deny --workspace check advisories; \
	else echo '**** ADVISORIES ARE NOT CHECKED: their database could not be fetched ****' >&2; [[ $$ADVISORIES != required ]]; fi

.PHONY: govulncheck
govulncheck: ## Look for known vulnerabilities in the Go modules of hack/ (needs jq, and vuln.go.dev)
	hack/govulncheck

# A library leaves the version of Kubernetes to the operator that uses it.
.PHONY: package semver
package semver: export K8S_OPENAPI_ENABLED_VERSION = 1.36

.PHONY: package
package: ## Package the crates and build them from their packages
	cargo package --locked --package leadership --package operator-kit --package podset-operator

# Without kube-leader-election: it accepts any newer k8s-openapi, so that, without the Cargo.lock, there are two versions that do not fit.
.PHONY: semver
semver: ## Compare the public API of the crate leadership with that of BASELINE, the last release (needs cargo-semver-checks)
	@if [[ -z $$BASELINE ]]; then echo 'semver: nothing was released yet, so there is no API to compare with'; \
	else set -x; cargo semver-checks --package leadership --only-explicit-features --features testing --baseline-rev "$$BASELINE"; fi

.PHONY: chart
chart: ## Write the chart for the image IMG to dist/ (SOURCE=https://github.com/OWNER/REPOSITORY: the address in its links)
	hack/chart "$$IMG" $${SOURCE:+"$$SOURCE"}

.PHONY: chart-readme
chart-readme: ## Generate README.md of the chart from its values
	cd hack/verify && GOWORK=off CGO_ENABLED=0 go tool helm-docs --chart-search-root ../../charts --sort-values-order file --log-level warning

.PHONY: bundle
bundle: name-of-img ## Write the OLM bundle for the image IMG, and a catalog with it (BUNDLE_IMG), to dist/ and validate them
	@$(call is_name,BUNDLE_IMG)
	cd hack/olm && $(OLM_ENV) go run . "$$OLDPWD/dist"

.PHONY: bundle-build
bundle-build: bundle ## Build the image of the OLM bundle (BUNDLE_IMG=NAME:TAG)
	docker build --file dist/bundle.Dockerfile --tag "$$BUNDLE_IMG" dist

.PHONY: catalog-build
catalog-build: bundle ## Build the image of an OLM catalog that names BUNDLE_IMG (CATALOG_IMG=NAME:TAG)
	@$(call is_name,CATALOG_IMG)
	docker build --file hack/olm/catalog.Dockerfile --tag "$$CATALOG_IMG" dist

.PHONY: verify-release
verify-release: ## Compare TAG with all files that name a version, and write dist/NOTES.md from the changelog
	hack/verify-release "$$TAG"

.PHONY: clean
clean: ## Delete target/, but not the binaries of the local cluster
	cargo clean

##@ Your cluster (KUBECONFIG)

.PHONY: install
install: ## Install or update the CRDs
	$(KUBECTL) apply -k config/crd

.PHONY: uninstall
uninstall: ## Remove the CRDs, and with them every PodSet, its pods and every MyCustomResource
	$(KUBECTL) delete --ignore-not-found -k config/crd

RENDER = KUBECTL="$(KUBECTL)" hack/render "$$CONFIG"

.PHONY: deploy
deploy: ## Install CONFIG with the image IMG, which the nodes have or can pull
	$(RENDER) "$$IMG" | $(KUBECTL) apply -f -

.PHONY: undeploy
undeploy: ## Remove CONFIG except the CRDs; PodSets and their pods stay
	$(RENDER) | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: build-installer
build-installer: ## Write what `make deploy` installs to dist/install.yaml
	@mkdir -p dist
	$(RENDER) "$$IMG" >dist/install.yaml || { rm -f dist/install.yaml; exit 1; }

##@ A local cluster, without Docker (hack/cluster/README.md)

.PHONY: cluster-up
cluster-up: ## Start it (CLUSTER=NAME: another one) and print its kubeconfig
	@hack/cluster/cluster up "$$CLUSTER"

.PHONY: cluster-down
cluster-down: ## Stop it and delete its data
	@hack/cluster/cluster down "$$CLUSTER"

export $(foreach name,$(OUTSIDE),$(if $(filter-out undefined,$(origin $(name))),$(name)))
