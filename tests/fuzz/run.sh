#!/bin/sh
# Runs the named fuzz targets, or all: run.sh [TARGET...]. New inputs go to target/fuzz/corpus, crashing
# inputs to target/fuzz/crashes; corpus/ in this folder has the inputs of the repository.
#   FUZZ_S     seconds per target (60)
#   FUZZ_RUNS  executions per target, instead of FUZZ_S
#   FUZZ_LEN   maximum length of an input in bytes (default: the longest initial input)
#   FUZZ_JOBS  targets in parallel (one per CPU)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
found=$here/../../target/fuzz
export PVTICKET_FUZZ

one() {
    PVTICKET_FUZZ=$1
    kept=$found/corpus/$1 seeds=$found/seeds/$1 log=$found/logs/$1
    mkdir -p "$kept" "$found/crashes" "$found/logs" "$here/corpus/$1"
    # Each execution of `store` writes a file.
    TMPDIR=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
    export TMPDIR
    status=0
    # -max_len=0: libFuzzer chooses the length.
    PVTICKET_FUZZ_SEEDS=$seeds "$binary" $limit -max_len="${FUZZ_LEN:-0}" -timeout=25 \
        -artifact_prefix="$found/crashes/$1-" -print_final_stats=1 \
        "$kept" "$seeds" "$here/corpus/$1" >"$log" 2>&1 || status=$?
    rm -rf "$TMPDIR"
    if [ $status != 0 ]; then
        tail -n 30 "$log" >&2
        echo "fuzz: $1 failed; the whole log is $log" >&2
        return 1
    fi
    count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
    edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    printf '%-10s %9s executions %7s per second %7s edges\n' "$1" "$count" "$rate" "$edges"
}

if [ -n "${FUZZ_RUNS:-}" ]; then
    limit=-runs=$FUZZ_RUNS
else
    limit=-max_total_time=${FUZZ_S:-60}
fi

if [ -n "${FUZZ_ONE:-}" ]; then
    one "$1"
    exit
fi
binary=$("$here/build.sh")
export binary
[ $# -gt 0 ] || set -- $(PVTICKET_FUZZ=list "$binary" 2>/dev/null)
export FUZZ_ONE=1
printf '%s\n' "$@" | xargs -n 1 -P "${FUZZ_JOBS:-$(nproc)}" "$0"
