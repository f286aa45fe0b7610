# make test is the one command that passes all tests. It installs what they need beside Go (scripts/prepare).
export PATH := $(CURDIR)/bin/node/bin:$(PATH)

.PHONY: build test e2e lint fuzz bench

build:
	go build -o bin/ ./cmd/...

test:
	scripts/prepare
	failed=0; go test -race ./... || failed=1; (cd e2e && go test ./...) || failed=1; exit $$failed

e2e:
	scripts/prepare
	cd e2e && go test -v ./...

lint:
	scripts/lint

# How long each fuzz target runs.
FUZZTIME ?= 10s

fuzz:
	scripts/fuzz $(FUZZTIME)

bench:
	go test -run '^$$' -bench . -benchmem ./...
