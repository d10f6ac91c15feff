# Everything there is to do with the source. "make" prints this list.

.DEFAULT_GOAL := help
SHELL := bash

# Where "make build" puts the binary.
BIN ?= bin
# The bytes that the stripped binary may have.
SIZE := 60000000
# How long "make soak" and "make repeat" go on, in seconds, and how long each round's chaos in a cluster.
SOAK ?= 3600
CHAOS ?= 10m
# How long each fuzz target runs in "make test-all".
FUZZTIME ?= 2s
# The -bench pattern, and how often each benchmark runs.
BENCH ?= .
BENCHCOUNT ?= 6
# How often "make compare" takes each measure, and which: parts or measures.
RUNS ?= 3
ONLY ?= bulk,bulk-redis,topic,topic-cluster,room

MODULE := github.com/sluice-project/sluice

# Without its path in what is compiled, a new clone or worktree finds it in the build cache.
export GOFLAGS := $(shell go env GOFLAGS) -trimpath

# The build tags of tests that need more than Go. Each is passed where what it needs
# is there: redis (redis-server or valkey-server), kcat, cluster (root and ip, for
# network namespaces), proxies (nginx with its Lua, HAProxy, Caddy and Node.js), long (SLUICE_LONG=1 and time).
ALL_TAGS := redis,kcat,cluster,proxies,long
REDIS := $(firstword $(foreach server,redis-server valkey-server,$(shell command -v $(server))) redis-server)
PROXIES := nginx haproxy caddy libnginx-mod-http-lua=/usr/lib/nginx/modules/ngx_http_lua_module.so nodejs=node
TAGS ?= $(if $(filter /%,$(REDIS)),redis),$(if $(shell command -v kcat),kcat),$(if $(shell scripts/need.sh --report $(PROXIES) | grep "^passed; make"),proxies)
# "make test COUNT=-count=1" runs tests again whose results go test remembers.
COUNT ?=

# Tests in virtual time and of pure policies need the processor only, and the clusters of
# natsstore elect no leader without it: the race detector checks them at their short size.
VIRTUAL := $(addprefix $(MODULE)/,topic/natsstore bulk bulk/engine bulk/storetest room room/engine room/storetest sim \
	topic topic/broker topic/delay topic/group topic/storetest topic/view)
# These tests build the binary, or read the whole repository: go test cannot know what
# they depend on.
BINARY := $(addprefix $(MODULE)/,deploy e2e e2e/cluster tidy)
# The other packages.
WAITING := $(addprefix $(MODULE)/,bulk/redisstore room/redisstore)
# "make test" begins with the packages that take the longest, so that none is left alone at the end; most of them wait.
FIRST := $(addprefix $(MODULE)/,bulk/redisstore topic/natsstore topic/kafka internal/testkit/redistest internal/cli/demo bulk/engine topic/broker \
	room/redisstore examples/topic-transactions bulk/pebblestore sim)
# Their tests that kill servers run with the race detector only.
KILLED := $(addprefix $(MODULE)/,e2e e2e/cluster)
# The tests of e2e/clients that a cluster of three nodes runs: those of Kafka clients.
REPLICATED := Sarama|KafkaGo|KafkaJS|Librdkafka|Python
# With SLUICE_LONG=1, and without the race detector, whose size is the short one: the stores and what they
# pass, and in other packages the tests whose size varies (a rule in tidy/ looks for their files).
LONG := $(BINARY) $(WAITING) $(addprefix $(MODULE)/,bulk/pebblestore room/pebblestore topic/filestore topic/natsstore topic/compact \
	bulk/storetest room/storetest topic/storetest)
SIZED := $(addprefix $(MODULE)/,access room/engine sim topic/broker topic/group)
SIZED_TESTS := Model|Agree|OnlyAdd|Promises|AutoF|TenMillion|Throttling
OTHERS = $(WAITING) $(filter-out $(VIRTUAL) $(BINARY) $(WAITING),$(shell go list ./...))

# The first run compiles it for some minutes. It runs the lister of modules in dist/, which is no
# module, and so by its path.
RELEASE_TOOL := go tool -modfile=$(CURDIR)/tools/release.mod
GORELEASER = CYCLONEDX_GOMOD=$$($(RELEASE_TOOL) -n cyclonedx-gomod) $(RELEASE_TOOL) goreleaser
# Further flags of "make snapshot", such as --skip=sbom.
RELEASE_FLAGS ?=

# The modules besides that of the root.
MODULES := bench outbox e2e/clients e2e/browser deploy/kubernetes docs/site

LINT := go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the binary, bin/sluice
	go build -o $(BIN)/sluice ./cmd/sluice

# Vetting also compiles what the binary has: within a test that would take minutes where
# nothing is cached.
.PHONY: test
test: ## Vet and test what this machine has the programs for: 2 to 7 minutes on 2 cores
	go vet -tags $(ALL_TAGS) ./...
	$(MAKE) --no-print-directory -j2 test-packages test-binary
	@scripts/need.sh --report redis-server=$(REDIS) kcat $(PROXIES)

# To collect garbage less often saves a tenth of the processor time, for some memory.
.PHONY: test-packages
test-packages:
	@GOGC=400 go test -vet=off $(COUNT) -tags '$(TAGS)' -p 6 -parallel 4 -timeout 30m $(FIRST) $(filter-out $(FIRST),$(VIRTUAL) $(OTHERS))

.PHONY: test-binary
test-binary:
	@go test -vet=off -count=1 -tags '$(TAGS)' -parallel 6 -timeout 30m $(BINARY)

.PHONY: test-all
test-all: need-all lint ## Lint, and every test: race detector, all sizes, clusters, clients, browser, fuzzing: 25 to 30 minutes on 2 cores
	go build -ldflags '-s -w' -o $(BIN)/sluice ./cmd/sluice
	@size=$$(wc -c < $(BIN)/sluice); (( size <= $(SIZE) )) || { echo "$(BIN)/sluice has $$size bytes, want at most $(SIZE)"; exit 1; }
	@go test -race -vet=off -count=1 -tags $(ALL_TAGS) -p 3 -timeout 60m $(OTHERS)
	go test -race -vet=off -count=1 -tags $(ALL_TAGS) -timeout 60m $(VIRTUAL)
	$(MAKE) --no-print-directory --output-sync=line -j2 test-long test-beside
	@git cat-file -e "$$(sed -n 's/^const earlierRevision = "\(.*\)"/\1/p' e2e/cluster/earlier_test.go)" 2>/dev/null || \
		echo "no cluster was upgraded from an earlier version: get the history with git fetch --unshallow --tags"

# The longer tests wait half of the time, and leave the processor to others. Nothing is vetted here: the
# linters have done it.
.PHONY: test-long
test-long:
	SLUICE_LONG=1 go test -vet=off -count=1 -tags $(ALL_TAGS) -p 3 -parallel 5 -timeout 60m $(filter-out $(KILLED),$(LONG))
	SLUICE_LONG=1 go test -vet=off -count=1 -tags $(ALL_TAGS) -timeout 60m -run '$(SIZED_TESTS)' $(SIZED)
	SLUICE_LONG=1 go test -vet=off -count=1 -tags $(ALL_TAGS) -p 1 -parallel 5 -timeout 60m -skip 'Kill' ./e2e ./e2e/cluster
	go test -race -vet=off -count=1 -tags $(ALL_TAGS) -p 1 -parallel 5 -timeout 60m -run 'Kill' ./e2e ./e2e/cluster

.PHONY: test-beside
test-beside:
	cd bench && go test -vet=off -count=1 -parallel 4 -timeout 60m ./...
	cd outbox && SLUICE_LONG=1 go test -vet=off -count=1 -timeout 60m ./...
	cd e2e/clients && go test -vet=off -count=1 -timeout 60m ./...
	cd e2e/clients && SLUICE_NODES=3 go test -vet=off -count=1 -timeout 60m -run '$(REPLICATED)' ./...
	cd e2e/browser && go test -vet=off -tags proxies -count=1 -timeout 60m ./...
	cd deploy/kubernetes && go test -vet=off -count=1 ./...
	cd docs/site && go test -vet=off -count=1 .
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: soak
soak: ## All parts together, with faults of every kind, for SOAK=3600 seconds
	go test -count=1 -tags long -run TestSoak -v -timeout 0 -ldflags '-X $(MODULE)/e2e.soakSeconds=$(SOAK)' ./e2e

.PHONY: repeat
repeat: need-race need-kcat need-redis need-ip need-proxies ## Repeat the longer tests and fuzzing, each round with new seeds, for SOAK=3600 seconds
	@end=$$(( $$(date +%s) + $(SOAK) )); round=0; \
	while (( $$(date +%s) < end )); do \
		round=$$(( round + 1 )); echo "round $$round"; \
		SLUICE_LONG=1 SLUICE_CHAOS=$(CHAOS) go test -race -count=1 -tags $(ALL_TAGS) -timeout 60m ./... || exit 1; \
		scripts/fuzz.sh 60s || exit 1; \
	done; \
	echo "$$round rounds passed"

.PHONY: bench
bench: need-redis need-peers ## Run the benchmarks, and those beside the peers (BENCH=pattern)
	go test -tags redis -run '^$$' -bench '$(BENCH)' -benchmem -count $(BENCHCOUNT) -timeout 60m ./...
	cd bench && go test -run '^$$' -bench '$(BENCH)' -count $(BENCHCOUNT) -timeout 60m ./...

.PHONY: compare
compare: need-peers ## Compare the parts with their peers, side by side, in RUNS=3 runs (ONLY=topic)
	cd bench && go run ./cmd/compare -runs $(RUNS) -only $(ONLY)

.PHONY: lint
lint: ## Check the source with the linters of .golangci.yml
	$(LINT) run --build-tags $(ALL_TAGS) ./...
	@for module in $(MODULES); do (set -x; cd $$module && $(LINT) run --build-tags proxies ./...) || exit 1; done

.PHONY: vuln
vuln: ## Look for known vulnerabilities in the code that is called; needs the network
	go tool -modfile=$(CURDIR)/tools/go.mod govulncheck ./...

.PHONY: fmt
fmt: ## Format the source
	$(LINT) fmt ./...
	@for module in $(MODULES); do (set -x; cd $$module && $(LINT) fmt ./...) || exit 1; done

.PHONY: generate
generate: ## Write again what is generated from the code
	go run ./cmd/sluice config --reference > docs/settings.md.new
	mv docs/settings.md.new docs/settings.md
	go run ./cmd/sluice demo --top 3 | go run ./internal/termsvg -title 'sluice demo --top 3' > docs/demo.svg.new
	mv docs/demo.svg.new docs/demo.svg
	go test ./internal/manpages -run Reference -update
	go test ./e2e -run HTTPReference -update
	go test ./access -run RolesInTheDocs -update
	go test ./internal/edge -run Types -update
	go test -tags long ./tidy -run Notices -update
	cd deploy/kubernetes && go test . -run Chart -update

.PHONY: fixture
fixture: ## Make the data of an earlier version that upgrades are tested with (OF=tag)
	go test -count=1 -tags redis -run TestUpgradeFixture ./e2e -fixture $(OF)

.PHONY: site
site: ## Make a web site of the documents: dist/site/
	cd docs/site && go run .

.PHONY: snapshot
snapshot: ## Build what a release consists of, and publish nothing: dist/
	$(GORELEASER) release --snapshot --clean $(RELEASE_FLAGS)

.PHONY: release
release: ## Build the release of the tag that is checked out, and upload it as a draft
	$(GORELEASER) release --clean

# What "make test-all" runs with.
.PHONY: need-all
need-all: need-packages need-race need-kcat need-redis need-ip need-proxies need-clients need-browser need-postgres need-peers

# The race detector links with a C compiler.
.PHONY: need-race
need-race:
	@scripts/need.sh build-essential=gcc

# The Kafka client that e2e/ runs.
.PHONY: need-kcat
need-kcat:
	@scripts/need.sh kcat

# What deploy/ checks packages and the unit with.
.PHONY: need-packages
need-packages:
	@scripts/need.sh systemd=systemd-analyze rpm

# What e2e/cluster/ makes networks with.
.PHONY: need-ip
need-ip:
	@scripts/need.sh iproute2=ip

# The proxies that e2e/ puts in front of a gate, and what runs deploy/edge.
.PHONY: need-proxies
need-proxies:
	@scripts/need.sh $(PROXIES)

# The server that tests of stores on Redis run; Valkey does as well.
.PHONY: need-redis
need-redis:
	@scripts/need.sh redis-server=$(REDIS)

# What e2e/clients/ compiles with and runs.
.PHONY: need-clients
need-clients:
	@scripts/need.sh build-essential=gcc librdkafka-dev=/usr/include/librdkafka/rdkafka.h nodejs=node npm \
		python3-kafka=/usr/lib/python3/dist-packages/kafka/__init__.py \
		python3-confluent-kafka=/usr/lib/python3/dist-packages/confluent_kafka/__init__.py

# What e2e/browser/ runs, with a font that has Korean.
.PHONY: need-browser
need-browser:
	@scripts/need.sh chromium fonts-noto-cjk=/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc

# What outbox/ tests with. Debian keeps it outside PATH.
.PHONY: need-postgres
need-postgres:
	@scripts/need.sh postgresql=$(firstword $(wildcard /usr/lib/postgresql/*/bin/initdb) initdb)

# The peers that bench/ measures beside.
.PHONY: need-peers
need-peers: need-postgres
	@scripts/need.sh redis-server
