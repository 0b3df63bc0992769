#!/bin/sh
# `make run`: builds, measures, and ends with the answer. The Makefile calls it.
#
#   first-run.sh            all steps
#   first-run.sh --built    said and done when the binary is built, perhaps before the guest kernel is
#
# What is built or measured stays, and another call goes on from there: in the newest directory runs/first-* that has
# no page yet, or in RUN_DIR. Each step says what it does and how long that takes on two CPUs. Variables:
#
#   RUN_DIR      directory of the results
#   RUN_EARLY=1  first figures of the payload while the guest kernel is compiled, which disturbs them
#   MAKE         the make to build with
#   PVTICKET     the binary
set -eu

pvticket=${PVTICKET:-target/x86_64-unknown-linux-gnu/release/pvticket}
cache=${PVTICKET_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/pvticket}
kernel=$cache/kernel/current/vmlinux
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

# The binary, and beside it what guests need: either alone leaves a CPU idle for a part of the time.
build() {
    failed=$(mktemp)
    PVTICKET_FAILED=$failed "$make" --no-print-directory -j2 run-binary run-guests || {
        why=$(tail -n 1 "$failed")
        rm -f "$failed"
        give_up "not built" "${why:-see the first error above; mend that, then run this again}"
    }
    rm -f "$failed"
}

how_long_to_build() {
    if [ -e "$pvticket" ] && [ -e "$kernel" ]; then
        echo "seconds, as they are here"
    elif [ -e "$kernel" ]; then
        echo "about 3 min"
    else
        echo "about 5 min the first time"
    fi
}

# The binary is built, perhaps before the kernel is.
built() {
    [ ! -e "$kernel" ] || return 0
    if [ -z "${RUN_EARLY:-}" ]; then
        echo "pvticket is built; the guest kernel is still being compiled, which takes up to 2 min more"
        return
    fi
    echo "pvticket is built; its first figures, while the guest kernel is compiled, which disturbs them:"
    "$pvticket" compare --guest payload --vcpus 1x,2x --runs 4 ||
        echo "no first figures; the measurement comes when the kernel is compiled"
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

case ${1:-} in
--built)
    built
    exit
    ;;
'') ;;
*)
    echo "first-run.sh: unknown option '$1'; there is --built" >&2
    exit 2
    ;;
esac

make=${MAKE:-make}
choose_dir
trap 'printf "\nmake run: stopped; make run goes on in %s\n" "$dir" >&2; exit 130' INT
trap 'exit 143' TERM

step "Build pvticket, and beside it the guest kernel" "$(how_long_to_build)"
build
"$pvticket" doctor --brief || give_up "no guest can run here" "pvticket doctor says what to change"

step "Native and PV ticketlocks in a small guest without a kernel, the ring-3 payload" "20 s" \
    "24 runs of 0.5 s: 6 of each lock with 1 and with 2 vCPUs for each CPU"
measure payload --guest payload --vcpus 1x,2x --runs 6

step "The same under schedules of pvticket" "25 s" \
    "36 runs of 0.5 s with 2 vCPUs for each CPU, 6 of each lock under each schedule: rr, each vCPU in turn, blind to" \
    "locks; deferred, no turn ends while a lock is held; kick-boost, a vCPU that is kicked runs next"
measure schedules --guest payload --vcpus 2x --runs 6 --policy rr,deferred,kick-boost

step "A Linux guest, and native and PV ticketlocks in its kernel" "40 s" \
    "It boots with 4 vCPUs, then 12 runs of 0.8 s: 6 of each lock with 2 vCPUs for each CPU"
"$pvticket" boot --cpus 4 -- sh -c 'uname -r; echo "CPUs: $(nproc)"; dmesg | grep pvticket:' ||
    give_up "the Linux guest did not boot" "see what pvticket says above; make run goes on in $dir"
measure linux --guest linux --vcpus 2x --runs 6

step "The answer" "seconds"
answer
