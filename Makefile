# Everything there is to do with the source. "make" prints this list.

.DEFAULT_GOAL := help
SHELL := bash

# Where "make build" puts the binary.
BIN ?= bin
# How long "make soak" goes on, in seconds, and how long each round's chaos in a cluster.
SOAK ?= 3600
CHAOS ?= 10m
# How long each fuzz target runs in "make test-all".
FUZZTIME ?= 5s
# The -bench pattern, and how often each benchmark runs.
BENCH ?= .
BENCHCOUNT ?= 6
# How often "make compare" takes each measure, and which: parts or measures.
RUNS ?= 3
ONLY ?= bulk,bulk-redis,topic,topic-cluster,room

# These packages wait more than they work: begun first, others work meanwhile.
WAITING := ./e2e ./topic/natsstore ./bulk/redisstore

LINT := go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the binary, bin/sluice
	go build -trimpath -o $(BIN)/sluice ./cmd/sluice

# -count=1: of tests that build the binary, go does not know what they depend on. It
# is built here first: in their time it would take minutes where nothing is cached.
.PHONY: test
test: need-race need-kcat need-redis need-ip ## Vet and test everything with the race detector: some 12 minutes on 2 cores
	go build -o /dev/null ./cmd/sluice
	go vet -race ./...
	go test -race -vet=off -count=1 -p 3 -timeout 20m $(WAITING) ./...

.PHONY: test-all
test-all: lint need-race need-kcat need-redis need-ip need-clients need-browser need-peers ## Lint, longer tests and fuzzing: some 50 minutes on 2 cores
	SLUICE_LONG=1 go test -race -count=1 -p 3 -timeout 45m $(WAITING) ./...
	cd bench && go vet ./... && go test -race -count=1 -timeout 10m ./...
	cd e2e/clients && go vet ./... && go test -race -count=1 -timeout 10m ./...
	cd e2e/clients && SLUICE_NODES=3 go test -count=1 -timeout 10m ./...
	cd e2e/browser && go vet ./... && go test -race -count=1 -timeout 10m ./...
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: soak
soak: need-race need-kcat need-redis need-ip ## Repeat the longer tests and fuzzing, each round with new seeds, for SOAK=3600 seconds
	@end=$$(( $$(date +%s) + $(SOAK) )); round=0; \
	while (( $$(date +%s) < end )); do \
		round=$$(( round + 1 )); echo "round $$round"; \
		SLUICE_LONG=1 SLUICE_CHAOS=$(CHAOS) go test -race -count=1 -timeout 60m ./... || exit 1; \
		scripts/fuzz.sh 60s || exit 1; \
	done; \
	echo "$$round rounds passed"

.PHONY: bench
bench: need-peers ## Run the benchmarks, and those beside the peers (BENCH=pattern)
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(BENCHCOUNT) -timeout 60m ./...
	cd bench && go test -run '^$$' -bench '$(BENCH)' -count $(BENCHCOUNT) -timeout 60m ./...

.PHONY: compare
compare: need-peers ## Compare the parts with their peers, side by side, in RUNS=3 runs (ONLY=topic)
	cd bench && go run ./cmd/compare -runs $(RUNS) -only $(ONLY)

.PHONY: lint
lint: ## Check the source with the linters of .golangci.yml
	$(LINT) run ./...
	cd bench && $(LINT) run ./...
	cd e2e/clients && $(LINT) run ./...
	cd e2e/browser && $(LINT) run ./...

.PHONY: fmt
fmt: ## Format the source
	$(LINT) fmt ./...
	cd bench && $(LINT) fmt ./...
	cd e2e/clients && $(LINT) fmt ./...
	cd e2e/browser && $(LINT) fmt ./...

.PHONY: generate
generate: ## Write again what is generated from the code
	go run ./cmd/sluice config --reference > docs/settings.md.new
	mv docs/settings.md.new docs/settings.md

# The race detector links with a C compiler.
.PHONY: need-race
need-race:
	@scripts/need.sh build-essential=gcc

# The Kafka client that e2e/ runs.
.PHONY: need-kcat
need-kcat:
	@scripts/need.sh kcat

# What e2e/cluster/ makes networks with.
.PHONY: need-ip
need-ip:
	@scripts/need.sh iproute2=ip

# The server that tests of stores on Redis run; Valkey does as well.
.PHONY: need-redis
need-redis:
	@scripts/need.sh redis-server=$(firstword $(foreach server,redis-server valkey-server,$(shell command -v $(server))) redis-server)

# What e2e/clients/ compiles with and runs.
.PHONY: need-clients
need-clients:
	@scripts/need.sh build-essential=gcc librdkafka-dev=/usr/include/librdkafka/rdkafka.h nodejs=node npm

# What e2e/browser/ runs, with a font that has Korean.
.PHONY: need-browser
need-browser:
	@scripts/need.sh chromium fonts-noto-cjk=/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc

# The peers that bench/ measures beside. Debian keeps PostgreSQL outside PATH.
.PHONY: need-peers
need-peers:
	@scripts/need.sh redis-server postgresql=$(firstword $(wildcard /usr/lib/postgresql/*/bin/initdb) initdb)
