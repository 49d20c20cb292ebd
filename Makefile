# What a newcomer needs: `make setup`, `make demo`, `make test`. `make help` lists all.

GO         ?= go
GOLANGCI   := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@latest
MODULES    := . test/compose examples/order bench

.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-12s %s\n", $$1, $$2}'

.PHONY: setup
setup: ## Install what the tests need beside Go: PostgreSQL and Chromium (Debian, Ubuntu), and the Go modules.
	@sh scripts/setup.sh
	@for m in $(MODULES); do $(GO) -C $$m mod download || exit 1; done

.PHONY: build
build: ## Build the commands into bin/.
	$(GO) build -trimpath=false -o bin/ ./cmd/...

.PHONY: demo
demo: ## The main job: deliveries, a killed worker, its takeover; pages on 127.0.0.1:8080.
	$(GO) run ./cmd/worker demo

.PHONY: test
test: tools ## All tests, browser tests included; with the race detector, but for those that wait for other processes.
	$(GO) vet ./...
	@status=0; \
	$(GO) test -race -p 1 -timeout 30m $$($(GO) list ./... | grep -v -e /test/browser -e /test/fleet -e /branch/pgtemplate) || status=1; \
	$(GO) test -p 1 -timeout 30m ./test/browser ./test/fleet ./workers/branch/pgtemplate || status=1; \
	exit $$status
	$(MAKE) test-modules

.PHONY: test-modules
test-modules: ## The tests of the modules that are not part of the library.
	@for m in $(filter-out .,$(MODULES)); do $(GO) run ./internal/postgres/withdb $(GO) -C $$m test -timeout 20m ./... || exit 1; done

.PHONY: test-matrix
test-matrix: ## The tests that are near the database, on PostgreSQL 14 to 18, which npm fetches. Not part of `make test`.
	$(GO) run ./internal/matrix

.PHONY: race
race: tools ## The tests of what runs concurrently, three times.
	$(GO) test -race -count 3 -timeout 60m ./internal/fencing/... ./internal/receipts/... ./internal/doorbell/... ./jobs/... ./workers/...

.PHONY: tools
tools:
	@sh scripts/setup.sh --check

.PHONY: generate
generate: ## Write what is generated: docs/state-machines.md, docs/configuration.md, docs/session-states.md, the pages' bundle.
	$(GO) generate ./...
	$(GO) test ./cmd/worker -run TestConfigurationDoc -update

.PHONY: mutants
mutants: tools ## Remove each guard in turn; its test must fail.
	$(GO) run ./internal/mutants

.PHONY: drill-mutants
drill-mutants: tools ## Remove guards in turn; the drill must fail. About ten minutes.
	$(GO) run ./internal/mutants -drill

.PHONY: types
types: ## Check the types of what runs in the browser. Needs npm.
	npx --yes --package typescript@7.0.2 -- tsc -p web

.PHONY: lint
lint: ## golangci-lint, import arrows included. Its first build takes minutes.
	$(GO) run $(GOLANGCI) run ./...

.PHONY: fmt
fmt: ## Format.
	$(GO) run mvdan.cc/gofumpt@v0.12.0 -w $$(git ls-files '*.go')
