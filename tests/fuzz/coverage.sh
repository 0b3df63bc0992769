#!/bin/sh
# Prints a table of the lines that each target's inputs cover in its files. Inputs: the repository's, the
# seeds, and the findings of run.sh.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
found=$root/target/fuzz

# The tools must match the profile format of this compiler: its own tools, or the system's.
tool() {
    own=$(rustc --print sysroot)/lib/rustlib/x86_64-unknown-linux-gnu/bin/$1
    version=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
    if [ -x "$own" ]; then echo "$own"; else command -v "$1-$version"; fi || {
        echo "fuzz-coverage: there is no $1 of LLVM $version: rustup component add llvm-tools, or" \
            "apt-get install llvm-$version" >&2
        exit 2
    }
}
profdata=$(tool llvm-profdata)
cov=$(tool llvm-cov)

# plan/mod.rs is excluded: it plans from a user's options. The file next to it plans from a store.
files() {
    case $1 in
        elf) echo vmm/boot/src/elf.rs vmm/boot/src/image.rs vmm/boot/src/payload.rs ;;
        bzimage) echo vmm/boot/src/bzimage.rs vmm/boot/src/linux.rs ;;
        initrd) echo vmm/boot/src/initrd.rs vmm/boot/src/newc.rs ;;
        cmdline) echo vmm/boot/src/zero_page.rs ;;
        wire) echo vmm/emulated/src/wire/mod.rs ;;
        agent) echo vmm/emulated/src/wire/bytes.rs ;;
        recording) echo vmm/sched/src/recording.rs vmm/sched/src/policy/replay.rs ;;
        trace) echo vmm/report/src/perfetto/read.rs vmm/report/src/perfetto/digest.rs \
            vmm/report/src/perfetto/resume.rs ;;
        store) echo vmm/study/src/store/read.rs vmm/experiment/src/plan/stored.rs ;;
        spec) echo vmm/study/src/spec/form.rs vmm/study/src/spec/matrix.rs \
            vmm/study/src/spec/exclude.rs vmm/study/src/spec/possible.rs ;;
        machine) echo vmm/sim/src/machine/file.rs vmm/sim/src/profile/file.rs ;;
        exits) echo vmm/kvm/src/exit.rs vmm/machine/src/vcpu/step.rs vmm/machine/src/devices/hypercall.rs \
            vmm/machine/src/vcpu/kicks.rs ;;
        core) echo vmm/sched/src/core.rs vmm/sched/src/accounting.rs ;;
        # The binary contains the lock sources twice, and llvm-cov reports the copy that no vCPU runs.
        locks) echo vmm/sim/src/search/scenario.rs vmm/sim/src/search/trial.rs \
            vmm/sim/src/guest/waits.rs ;;
    esac
}

binary=$(COVERAGE=1 "$here/build.sh")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/empty"
export TMPDIR=$work LLVM_PROFILE_FILE=$work/other.profraw
for name in $(PVTICKET_FUZZ=list "$binary" 2>/dev/null); do
    export PVTICKET_FUZZ=$name
    # Given single files, libFuzzer only runs them.
    PVTICKET_FUZZ_SEEDS=$work/seeds/$name "$binary" "$work/empty" >/dev/null 2>&1
    # A copy: a running target may replace inputs by shorter ones.
    cp -r "$found/corpus/$name" "$work/found" 2>/dev/null || :
    find "$work/seeds/$name" "$here/corpus/$name" "$work/found" -type f -print0 2>/dev/null |
        LLVM_PROFILE_FILE=$work/$name-%p.profraw xargs -0 -n 2000 "$binary" >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log" >&2; exit 1; }
    "$profdata" merge -sparse "$work/$name"-*.profraw -o "$work/$name.profdata"
    for file in $(files "$name"); do
        "$cov" export "$binary" -instr-profile "$work/$name.profdata" -format=lcov "$(cd "$root" && pwd)/$file" |
            awk -v name="$name" -v file="$file" -F '[:,]' '
                /^DA:/ { lines++; reached += $3 > 0 }
                END { if (lines) printf "%-10s %-44s %5d of %5d lines %6.1f %%\n", name, file, reached, lines, 100 * reached / lines }'
    done
    rm -rf "$work/found" "$work"/*.prof*
done
