# make test is scripts/test: the one command that passes all tests, and installs what they need beside Go.
export PATH := $(CURDIR)/bin/node/bin:$(PATH)

.PHONY: build test e2e lint fuzz bench

build:
	go build -o bin/ ./cmd/...

test:
	scripts/test

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
