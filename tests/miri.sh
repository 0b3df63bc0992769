#!/bin/sh
# Runs unit tests under Miri, which detects undefined behaviour and races: the lock library, the latches and queues
# of halts, the pages shared with guests, and the scheduler core. Coroutines, tests with system calls that Miri does not
# support, and tests that would take hours are skipped (`--skip` here, `cfg(miri)` in the sources).
# Without Miri (rustup component add miri rust-src --toolchain nightly), prints a note and exits with 0.
set -eu
cd "$(dirname "$0")/.."
CARGO=${CARGO:-$(sh guest-kernel-config/setup.sh --cargo)}
# shellcheck disable=SC2086 # a command with its environment
if ! $CARGO +nightly miri --version >/dev/null 2>&1; then
    echo "miri: skipped: the nightly toolchain has no Miri (rustup component add miri rust-src --toolchain nightly)"
    exit
fi
export MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}" CARGO_TARGET_DIR=target/miri PROPTEST_CASES=4

crate() {
    name=$1
    shift
    # shellcheck disable=SC2086
    $CARGO +nightly miri test --locked --quiet --lib --package "pvticket-$name" -- "$@"
}

crate hypercalls
crate base
crate locks
crate sched --skip core_tests:: --skip share_tests:: --skip waiting_tests:: --skip policy::host::
