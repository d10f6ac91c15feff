# Everything there is to do with the source. "make" prints this list.

.DEFAULT_GOAL := help
SHELL := bash

# Where "make build" puts the binary.
BIN ?= bin
# How long "make soak" goes on, in seconds.
SOAK ?= 3600
# How long each fuzz target runs in "make test-all".
FUZZTIME ?= 10s
# The -bench pattern, and how often each benchmark runs.
BENCH ?= .
BENCHCOUNT ?= 6

LINT := go tool -modfile=tools/go.mod golangci-lint

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the binary, bin/sluice
	go build -trimpath -o $(BIN)/sluice ./cmd/sluice

.PHONY: test
test: need-race ## Vet and test everything with the race detector: at most 10 minutes on 2 cores
	go vet ./...
	go test -race -timeout 10m ./...

.PHONY: test-all
test-all: lint need-race ## Lint, longer tests and fuzzing: at most 40 minutes on 2 cores
	SLUICE_LONG=1 go test -race -count=1 -timeout 30m ./...
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: soak
soak: need-race ## Repeat the longer tests and fuzzing, each round with new seeds, for SOAK=3600 seconds
	@end=$$(( $$(date +%s) + $(SOAK) )); round=0; \
	while (( $$(date +%s) < end )); do \
		round=$$(( round + 1 )); echo "round $$round"; \
		SLUICE_LONG=1 go test -race -count=1 -timeout 60m ./... || exit 1; \
		scripts/fuzz.sh 60s || exit 1; \
	done; \
	echo "$$round rounds passed"

.PHONY: bench
bench: ## Run the benchmarks, and those beside the peers where bench/ exists (BENCH=pattern)
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(BENCHCOUNT) -timeout 60m ./...
	@if [[ -f bench/go.mod ]]; then cd bench && \
		go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(BENCHCOUNT) -timeout 60m ./...; fi

.PHONY: lint
lint: ## Check the source with the linters of .golangci.yml
	$(LINT) run ./...

.PHONY: fmt
fmt: ## Format the source
	$(LINT) fmt ./...

.PHONY: generate
generate: ## Write again what is generated from the code
	go run ./cmd/sluice config --reference > docs/settings.md.new
	mv docs/settings.md.new docs/settings.md

# The race detector links with a C compiler.
.PHONY: need-race
need-race:
	@scripts/need.sh build-essential=gcc
