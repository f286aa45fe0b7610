#!/bin/sh
# Compares idmux with nginx, HAProxy and no proxy; see README.md.
# bench/run.sh --help lists the flags, --quick takes less than a minute.
set -eu
cd "$(dirname "$0")/.."
mkdir -p bin
go build -o bin/bench ./bench
exec bin/bench speed "$@"
