# Flotilla. `make` lists the targets. Everything is built from Go modules: Go, make, git and a C compiler suffice.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The local fleet: how many members, how many simulated nodes in each, and where it lives.
MEMBERS ?= 3
NODES ?= 5
FLEET_DIR ?= .fleet
# Flags for the manager of `make run` and `make demo`.
MANAGER_ARGS ?=
# Tests, drills and fuzz targets to run, as a pattern of go test -run.
RUN ?= .
# Plain tests share the packages that `make build` compiles, go test caches their results, and `make lint` vets them. Three
# packages at a time keep two cores busy: many tests wait more than they work.
RACE ?=
GOTEST := $(if $(RACE),go test -race -shuffle=on,CGO_ENABLED=0 go test -trimpath -vet=off -p 3)
# How long each fuzz target of `make drill` runs.
FUZZTIME ?= 5m
# Phases of `make bench` as in a,b,x (all), how often each system has its turn, and whether the fleet stays.
BENCH ?=
ROUNDS ?= 3
KEEP ?= false
# Where the pictures of `make screenshots` go.
SCREENSHOTS ?= .screenshots
# What `manager --version` tells, the name of the image of `make image`, and the repository of that of a release.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
IMAGE ?= flotilla-dev/flotilla-manager:$(VERSION)
REPOSITORY ?= flotilla-dev/flotilla-manager
export MEMBERS NODES FLEET_DIR MANAGER_ARGS

CONTROL_PLANE := kube-apiserver kube-controller-manager kube-scheduler kubectl etcd kwok kwokctl
GENERATORS := controller-gen crd-ref-docs
MODULES := . test/bench test/dashboard test/e2e test/gitops $(patsubst %/go.mod,%,$(wildcard hack/*/go.mod))

##@ See it

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: control-plane build ## Build and start everything: hub, members, manager, samples; then show it.
	@hack/demo.sh

.PHONY: picture
picture: control-plane build ## Draw docs/demo.svg, the terminal in README.md, from the demo.
	@hack/picture.sh

##@ Local fleet

.PHONY: fleet-up
fleet-up: control-plane ## Start a hub and MEMBERS=3 clusters with NODES=5 simulated nodes; kubeconfigs in .fleet/kubeconfigs.
	@hack/fleet.sh up

.PHONY: fleet-down
fleet-down: ## Stop the manager and remove the fleet.
	@hack/fleet.sh down

.PHONY: register
register: build ## Register the members of the fleet on its hub.
	@hack/register.sh hub
	@hack/register.sh members

.PHONY: run
run: build ## Run the manager from source in the foreground against the fleet; MANAGER_ARGS= adds flags.
	@hack/register.sh hub
	@hack/manager.sh run $(MANAGER_ARGS)

##@ Test

.PHONY: test
test: control-plane build ## Run unit and integration tests, on real API servers; RACE=1 adds the race detector and random order.
	MANAGER_ID=$$(go tool buildid bin/manager) $(GOTEST) -parallel 8 -timeout 20m -skip '^TestPromtool_' ./api/... ./cmd/... ./config/... ./hack/... ./internal/...
	$(GOTEST) -count=1 ./docs
	$(GOTEST:go=go -C hack/image) .
	$(GOTEST:go=go -C test/bench) .

.PHONY: test-fleet
test-fleet: control-plane build ## Run the manager as a process, with a hub, three members and simulated nodes.
	go test -race -timeout 20m ./test/fleet/...

.PHONY: test-modules
test-modules: control-plane ## Test the chart with Helm, and what users install with the engine of Argo CD.
	CGO_ENABLED=0 go -C hack/chart test -trimpath .
	CGO_ENABLED=0 go -C test/gitops test -trimpath .

.PHONY: dashboard-test
dashboard-test: control-plane ## Test kubectl flotilla dashboard in Chromium, which root has installed by apt-get if it is missing.
	@hack/dashboard.sh test || [ $$? = 75 ]

.PHONY: screenshots
screenshots: control-plane ## Make pictures of all screens of the dashboard in SCREENSHOTS=.screenshots, and those in docs/.
	@hack/dashboard.sh screenshots '$(SCREENSHOTS)'

.PHONY: drill
drill: control-plane build ## Run the long drills on local fleets, and fuzz for FUZZTIME=5m each; RUN= picks some of all of these.
	@FUZZTIME=$(FUZZTIME) hack/drill.sh '$(RUN)'

.PHONY: ha
ha: ## Break Redis of mode Sentinel as processes in network namespaces, on each engine of Debian; RUN= picks scenarios; needs root on Linux.
	@hack/ha.sh '$(RUN)'

##@ Measure

.PHONY: bench
bench: MEMBERS = 4
bench: control-plane build ## Measure Flotilla beside a plain program and bare writes; BENCH=a,b picks phases; ROUNDS=3, MEMBERS=4, KARMADA=<checkout, built>.
	@CGO_ENABLED=0 go -C test/bench build -trimpath -buildvcs=false -o ../../bin/ . ./baseline
	@CGO_ENABLED=0 go test -c -trimpath -tags drill -o bin/scale.test ./test/scale
	@bin/bench --members $(MEMBERS) --rounds $(ROUNDS) --phases '$(BENCH)' --karmada '$(KARMADA)' --keep=$(KEEP)

.PHONY: bench-smoke
bench-smoke: control-plane build ## Run the benchmark small and once, and fail when there are more writes or reads than expected.
	@CGO_ENABLED=0 go -C test/bench build -trimpath -buildvcs=false -o ../../bin/ . ./baseline
	@bin/bench --smoke

##@ Real nodes

.PHONY: e2e-up
e2e-up: build ## Start a hub and two members with real nodes (containerd, kubelet) in E2E_DIR=.e2e; needs root on Linux.
	@hack/e2e.sh up

.PHONY: e2e-down
e2e-down: ## Remove the clusters of e2e-up.
	@hack/e2e.sh down

.PHONY: e2e
e2e: build ## Run real Redis on real nodes through what goes wrong, RUN= picks some; or on clusters given as E2E_HUB= E2E_MEMBERS=a,b.
	@hack/e2e-suite.sh '$(RUN)'

##@ Develop

.PHONY: build
build: ## Build bin/manager and bin/kubectl-flotilla.
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o bin/ ./cmd/manager ./cmd/kubectl-flotilla
	@install -m 755 hack/kubectl_complete-flotilla bin/

.PHONY: image
image: ## Pack the manager as IMAGE= for amd64 and arm64 in dist/flotilla-manager.tar, without a container engine.
	@hack/build.sh image
	@hack/image.sh '$(IMAGE)' '$(VERSION)' '$(COMMIT)'

.PHONY: generate
generate: ## Generate deep copies, schemas and docs/api.md from api/, and dist/ and charts/ from config/.
	@hack/build.sh $(GENERATORS) kubectl
	bin/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/...
	bin/controller-gen crd paths=./api/... output:crd:dir=config/crd/bases
	hack/quantities.sh config/crd/bases/*.yaml
	bin/crd-ref-docs --source-path=api --config=hack/crd-ref-docs.yaml --renderer=markdown --output-path=docs/api.md >/dev/null
	hack/dist.sh

.PHONY: fmt
fmt: ## Format the code.
	@hack/build.sh golangci-lint
	bin/golangci-lint fmt
	cd test/bench && ../../bin/golangci-lint fmt
	cd test/dashboard && ../../bin/golangci-lint fmt
	cd test/e2e && ../../bin/golangci-lint fmt
	cd test/gitops && ../../bin/golangci-lint fmt

.PHONY: lint
lint: ## Run the linters.
	@hack/build.sh golangci-lint
	bin/golangci-lint run
	bin/golangci-lint run --build-tags ha ./test/ha
	cd test/bench && ../../bin/golangci-lint run
	cd test/dashboard && ../../bin/golangci-lint run
	cd test/e2e && ../../bin/golangci-lint run --build-tags e2e
	cd test/gitops && ../../bin/golangci-lint run

.PHONY: tidy
tidy: ## Tidy every module.
	@for module in $(MODULES); do echo "go mod tidy in $$module" && GOWORK=off go -C $$module mod tidy; done

.PHONY: alerts
alerts: ## Test the alerts and the dashboard with promtool.
	@hack/build.sh promtool
	go test ./config/prometheus

.PHONY: verify
verify: generate tidy fmt lint alerts ## Generate, tidy, format, lint, test the alerts; fail if the tree is then dirty.
	@changes=$$(git status --porcelain); if [ -n "$$changes" ]; then \
		printf 'error: the tree is dirty; commit what is generated, or undo:\n%s\n' "$$changes" >&2; git diff --stat >&2; exit 1; fi

##@ Release

.PHONY: release
release: ## Make everything that a release consists of in dist/release/: VERSION=v1.2.3 REPOSITORY=the image's, in its registry.
	@hack/release.sh '$(VERSION)' '$(REPOSITORY)'

.PHONY: release-drill
release-drill: ## Do what the README says in ten minutes with the files in dist/release/ alone, on bare clusters with real nodes.
	@hack/release-drill.sh

.PHONY: push
push: ## Push the image in dist/release/ to REPOSITORY=, by the credentials of docker login.
	@hack/push.sh '$(VERSION)' '$(REPOSITORY)'

##@ Tools

.PHONY: control-plane
control-plane: ## Build etcd, the Kubernetes control plane, kubectl and kwok into bin/, or link those of KUBEBUILDER_ASSETS.
	@hack/build.sh $(CONTROL_PLANE)

.PHONY: tools
tools: control-plane ## Build everything into bin/, generators and linter included.
	@hack/build.sh $(GENERATORS) golangci-lint promtool
