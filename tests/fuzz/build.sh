#!/bin/sh
# Builds the fuzz targets with libFuzzer and prints the path of the binary. The stable toolchain has no option
# for sanitizers, so each LLVM pass that counts edges and compared values is enabled separately. COVERAGE=1
# builds a second binary, with profiles for llvm-cov.
set -eu
cd "$(dirname "$0")"
level=2
CARGO=${CARGO:-$(sh ../../guest-kernel-config/setup.sh --cargo)}
target=$(cd ../.. && pwd)/target/fuzz
if [ -n "${COVERAGE:-}" ]; then
    flags="--cfg fuzzing -Cinstrument-coverage"
    target=$target-coverage
    # Each input runs once: compile time dominates.
    level=0
else
    flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
        -Cllvm-args=-sanitizer-coverage-trace-compares"
fi
# The profile has overflow checks and assertions: an overflow is a finding.
export CARGO_PROFILE_DEV_OPT_LEVEL=$level CARGO_PROFILE_DEV_DEBUG=line-tables-only CARGO_PROFILE_DEV_STRIP=none \
    CARGO_PROFILE_DEV_PANIC=abort CARGO_PROFILE_DEV_INCREMENTAL=false
RUSTFLAGS=$(echo $flags) CARGO_TARGET_DIR=$target $CARGO build --locked --quiet --package fuzz \
    --features libfuzzer --bin pvticket-fuzz --target x86_64-unknown-linux-gnu
echo "$target/x86_64-unknown-linux-gnu/debug/pvticket-fuzz"
