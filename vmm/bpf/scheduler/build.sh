#!/bin/sh
# Compiles the scheduler and the observer to the folder $1 (default: here, where the loader includes them).
# Needs a clang with the target bpf: PVTICKET_CLANG, clang-19 (used for the checked-in objects), or clang. The
# output depends only on the version of clang.
set -eu
cd "$(dirname "$0")"
for program in scheduler observer; do
    "${PVTICKET_CLANG:-$(command -v clang-19 || echo clang)}" -target bpf -mcpu=v3 -O2 -g -fdebug-compilation-dir=. \
        -I../../../hypercalls/include -Wall -Wextra -Werror -Wno-unused-parameter -Wno-unused-function \
        -c $program.bpf.c -o "${1:-.}/$program.bpf.o"
done
