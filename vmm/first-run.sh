#!/bin/sh
# `make run`: builds, measures, and ends with the answer. The Makefile calls it.
#
# The payload needs no kernel: its figures come before the guest kernel is compiled, which would disturb them.
#
# What is built or measured stays, and another call goes on from there: in the newest directory runs/first-* that has
# no page yet, or in RUN_DIR. Each step says what it does and how long that takes on two CPUs. Variables:
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

# The next step: what it does, and how long it takes; further arguments are lines that explain it.
step() {
    number=$((${number:-0} + 1))
    printf '\n== %s/%s %s (%s) ==\n' "$number" "$steps" "$1" "$2"
    shift 2
    [ $# = 0 ] || printf '%s\n' "$@"
}

# Ends with one line that says what to do; the arguments are what failed, and why if that is known.
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

# Sets $dir. A run that has its page is over.
choose_dir() {
    dir=${RUN_DIR:-}
    [ -z "$dir" ] || return 0
    for dir in runs/first-*; do :; done
    if [ ! -d "$dir" ] || [ -e "$dir/report.html" ]; then
        dir=runs/first-$(date -u +%Y-%m-%dT%H-%M-%S)
    fi
}

# Builds these targets, two at a time: any of them alone leaves a CPU idle for a part of the time.
build() {
    failed=$(mktemp)
    PVTICKET_FAILED=$failed "$make" --no-print-directory -j2 "$@" || {
        why=$(tail -n 1 "$failed")
        rm -f "$failed"
        give_up "not built" "${why:-see the first error above; mend that, then run this again}"
    }
    rm -f "$failed"
}

# How long a step takes: $2, or $3 where the file $1 is not there yet.
how_long() {
    if [ -e "$1" ]; then echo "$2"; else echo "$3"; fi
}

# A comparison with its results in $dir/$1 and these further options, as far as it is not measured.
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

# The runs that there are, as one page and one answer.
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
# Doctor's advice is to compile the guest kernel until step 4 has done so.
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
