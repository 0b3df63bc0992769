#!/bin/sh
# rustc as cargo calls it (RUSTC_WRAPPER), so that equal sources give equal bytes in whatever folder PVTICKET_ROOT they are.
#
# The symbols of a crate contain a hash, `-C metadata`, into which cargo takes the absolute path of the crate's folder. The
# crates of this repository have their names instead, which are unique.
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
