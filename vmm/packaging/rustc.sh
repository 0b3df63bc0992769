#!/bin/sh
# A RUSTC_WRAPPER that makes output independent of the repository's folder, PVTICKET_ROOT.
#
# Symbols contain a hash, `-C metadata`, into which cargo includes the absolute path of the crate's folder. Crates of
# this repository use their unique names instead.
set -eu

is_ours() {
    case ${CARGO_MANIFEST_DIR:-}/ in
    "$PVTICKET_ROOT"/*) ;;
    *) return 1 ;;
    esac
}

left=$#
while [ "$left" -gt 0 ]; do
    word=$1
    shift
    case $word in
    metadata=*)
        # A library and a program may share a name.
        if is_ours; then word=metadata=$CARGO_PKG_NAME-$CARGO_CRATE_NAME${CARGO_BIN_NAME:+-program}; fi
        ;;
    esac
    set -- "$@" "$word"
    left=$((left - 1))
done
exec "$@"
