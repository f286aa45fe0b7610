#!/bin/sh
# Compares what 10,000 idle clients cost in idmux and nginx; see README.md.
# bench/idle.sh --help lists the flags.
set -eu
cd "$(dirname "$0")/.."
mkdir -p bin
go build -o bin/bench ./bench
exec bin/bench idle "$@"
