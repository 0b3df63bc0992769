#!/bin/sh
# Prints the crates that are linked into the program, and each distinct licence text with its crates, in the
# syntax of a field of Debian's copyright file.
set -eu
export LC_ALL=C

registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Formats text for a field: indented, with a dot for each empty line.
indented() { tr -d '\f\r' | sed 's/[[:space:]]*$//; s/^$/./; s/^/ /'; }

# Lines `name version licence` of the linked crates, without the crates of this repository.
cargo tree --locked --package pvticket --edges normal --target x86_64-unknown-linux-gnu --prefix none \
    --format '{p}|{l}' | sed -n 's/^\([^ ]*\) v\([^ |]*\)\( (proc-macro)\)\{0,1\}|\([^(]*\)\( (\*)\)\{0,1\}$/\1 \2 \4/p' |
    sort -u >"$work/crates"
[ -s "$work/crates" ] || {
    echo "licences: cargo tree names no crates" >&2
    exit 1
}

while read -r name version licence; do
    echo " $name $version: $licence"
    for file in "$registry"/*/"$name-$version"/LICEN[CS]E* "$registry"/*/"$name-$version"/COPYING* \
        "$registry"/*/"$name-$version"/COPYRIGHT* "$registry"/*/"$name-$version"/NOTICE*; do
        [ -f "$file" ] || continue
        # Debian provides this text; one crate has it in addition to a shorter licence.
        case $file in *APACHE*) continue ;; esac
        sum=$(sha256sum <"$file" | cut -c 1-64)
        cp "$file" "$work/$sum.text"
        echo "$name" >>"$work/$sum.names"
    done
done <"$work/crates"
for text in "$work"/*.text; do
    echo " ."
    echo " ---- of $(sort -u "${text%.text}.names" | tr '\n' ' ')----"
    echo " ."
    indented <"$text"
done
