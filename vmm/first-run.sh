#!/bin/sh
# `make run`: builds, measures, and prints the answer last. The Makefile calls it.
#
# The payload needs no kernel: it is measured before the guest kernel is compiled, which would disturb it.
#
# Interrupted runs can be resumed: the next call continues in the newest directory runs/first-* without a page, or in
# RUN_DIR. Each step prints its purpose and its duration on two CPUs. Variables:
#
#   RUN_DIR      directory of the results
#   MAKE         the make to build with
#   PVTICKET     the binary
set -eu

pvticket=${PVTICKET:-target/x86_64-unknown-linux-gnu/release/pvticket}
cache=${PVTICKET_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/pvticket}
kernel=$cache/kernel/pvticket-6.12/vmlinux
steps=5

. "$(dirname "$0")/../guest-kernel-config/apt.sh"

# Prints the header of the next step: $1 is its purpose, $2 its duration; further arguments are lines of explanation.
step() {
    number=$((${number:-0} + 1))
    printf '\n== %s/%s %s (%s) ==\n' "$number" "$steps" "$1" "$2"
    shift 2
    [ $# = 0 ] || printf '%s\n' "$@"
}

# Exits with one line: $1 is the failed step, $2 the reason or the remedy.
give_up() {
    what=$1 why=$2
    if is_full "$cache"; then
        why=$(full_disk "$cache")
    elif is_full .; then
        why="the disk of $PWD is full: make room, then run this again"
    fi
    printf '\nmake run: %s: %s\n' "$what" "$why" >&2
    exit 1
}

# Sets $dir. A run with a page is complete.
choose_dir() {
    dir=${RUN_DIR:-}
    [ -z "$dir" ] || return 0
    for dir in runs/first-*; do :; done
    if [ ! -d "$dir" ] || [ -e "$dir/report.html" ]; then
        dir=runs/first-$(date -u +%Y-%m-%dT%H-%M-%S)
    fi
}

# Builds these targets, two in parallel, since each leaves a CPU idle for part of its time.
build() {
    failed=$(mktemp)
    PVTICKET_FAILED=$failed "$make" --no-print-directory -j2 "$@" || {
        why=$(tail -n 1 "$failed")
        rm -f "$failed"
        give_up "not built" "${why:-see the first error above; mend that, then run this again}"
    }
    rm -f "$failed"
}

# Prints the duration of a step: $2 if the file $1 exists, otherwise $3.
how_long() {
    if [ -e "$1" ]; then echo "$2"; else echo "$3"; fi
}

# Runs or resumes a comparison with results in $dir/$1. Further arguments are its options.
measure() {
    name=$1
    shift
    store=$dir/$name/cells.jsonl
    # A resumed run keeps its failures.
    if grep -qs '"status":"failed"' "$store"; then
        mv "$dir/$name" "$dir/$name-failed-$(date -u +%H-%M-%S)"
    fi
    if [ -e "$store" ]; then
        set -- compare --resume "$dir/$name"
    else
        set -- compare --dir "$dir/$name" "$@"
    fi
    "$pvticket" "$@" || give_up "step $number failed" "see what pvticket says above; make run goes on in $dir"
}

# Makes one page and one answer from the completed runs.
answer() {
    set -- "$dir/report.html"
    for name in payload schedules linux; do
        [ ! -e "$dir/$name/cells.jsonl" ] || set -- "$@" "$dir/$name"
    done
    "$pvticket" report --brief --html "$@" || give_up "no answer" "see what pvticket says above; the results are in $dir"
}

make=${MAKE:-make}
choose_dir
trap 'printf "\nmake run: stopped; make run goes on in %s\n" "$dir" >&2; exit 130' INT
trap 'exit 143' TERM

step "Build pvticket" "$(how_long "$pvticket" seconds "2 to 3 min")"
build build host busybox
# Until step 4 compiles the guest kernel, doctor's advice is to compile it.
facts=$("$pvticket" doctor --brief) || {
    printf '%s\n' "$facts"
    give_up "no guest can run here" "pvticket doctor says what to change"
}
printf '%s\n' "$facts" | if [ -e "$kernel" ]; then cat; else sed '/^next:/d'; fi

step "Native and PV ticketlocks in a small guest without a kernel, the ring-3 payload" "20 s" \
    "24 runs of 0.5 s: 6 of each lock with 1 and with 2 vCPUs for each CPU"
measure payload --guest payload --vcpus 1x,2x --runs 6

step "The same under schedules of pvticket" "25 s" \
    "36 runs of 0.5 s with 2 vCPUs for each CPU, 6 of each lock under each schedule: rr, each vCPU in turn, blind to" \
    "locks; deferred, no slice ends while a lock is held; kick-boost, a vCPU that is kicked runs next"
measure schedules --guest payload --vcpus 2x --runs 6 --policy rr,deferred,kick-boost

step "A Linux guest, and native and PV ticketlocks in its kernel" \
    "$(how_long "$kernel" "40 s" "4 min: its kernel is compiled first")" \
    "It boots with 4 vCPUs, then 12 runs of 0.8 s: 6 of each lock with 2 vCPUs for each CPU"
build kernel
"$pvticket" boot --cpus 4 -- sh -c 'uname -r; echo "CPUs: $(nproc)"; dmesg | grep pvticket:' ||
    give_up "the Linux guest did not boot" "see what pvticket says above; make run goes on in $dir"
measure linux --guest linux --vcpus 2x --runs 6

step "The answer" "seconds"
answer
