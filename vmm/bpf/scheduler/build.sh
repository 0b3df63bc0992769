#!/bin/sh
# Compiles the scheduler to the file $1 (default: scheduler.bpf.o here, which the loader includes).
# Needs a clang with the target bpf: PVTICKET_CLANG, clang-19 (used for the checked-in object), or clang. The
# output depends only on the version of clang.
set -eu
cd "$(dirname "$0")"
exec "${PVTICKET_CLANG:-$(command -v clang-19 || echo clang)}" -target bpf -mcpu=v3 -O2 -g -fdebug-compilation-dir=. \
    -I../../../hypercalls/include -Wall -Wextra -Werror -Wno-unused-parameter -c scheduler.bpf.c -o "${1:-scheduler.bpf.o}"
