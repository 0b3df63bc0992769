#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Builds the guest kernel of one flavour, or of several one after the other from
# one unpacked source, and puts it into the cache:
#
#   $XDG_CACHE_HOME/pvticket/kernel/<hash>/{vmlinux,bzImage,System.map,config,build.log}
#   $XDG_CACHE_HOME/pvticket/kernel/<flavour>-<version>  -> <hash>     (6.1, 6.12 or 7: what pvticket boots)
#   $XDG_CACHE_HOME/pvticket/kernel/<flavour>  -> <hash>     (of the default version, 6.12)
#   $XDG_CACHE_HOME/pvticket/kernel/current    -> <hash>     (flavour pvticket of that)
#
# The hash covers everything that decides the result: source, our files, patches, header, configuration,
# flavour, compiler, and the recipe's number: increment it when a change of this script changes the
# result. See the Makefile for the variables.
#
# The source's package stays in the cache, with its SHA-256 next to it. The sum comes from apt's
# lists, which are signed; the package is checked against it before each use.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
header=$here/../../hypercalls/include/pvticket_abi.h
read -ra flavours <<<"${FLAVOUR:-pvticket}"
cache=${PVTICKET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pvticket}
kernels=$cache/kernel
# The version without another name, as GuestKernel's default in vmm/base/src/guest_kernel.rs.
usual=6.12
version=${KERNEL:-$usual}
own_config=${KERNEL_CONFIG:-}
# A user's lines may enable any driver.
excludes=$here/source.excludes
[ -z "$own_config" ] || excludes=/dev/null
recipe=2
# For apt, on systems without package lists.
options=
# The patched source, once a flavour needs it, and the build folders.
source=
works=()
# The folder of separate package lists, and the process that reports progress.
lists=$kernels/.new-lists
teller=
# Whether the reason for the exit has been printed.
told=

. "$here/../apt.sh"

say() { printf 'kernel: %s\n' "$*"; }

# Exits with the reason; on a full disk that is the reason, regardless of the failed step.
fail() {
    local why=$*
    if is_full "$cache"; then why=$(full_disk "$cache"); fi
    told=1
    keep_reason "kernel: $why"
    printf 'kernel: %s\n' "$why" >&2
    exit 1
}

choose_flavour() {
    flavour=$1
    fragments=("$here/config/base.config" "$here/config/linux-$version.config" "$here/config/$flavour.config")
    [ -z "$own_config" ] || fragments+=("$own_config")
    case $flavour in
    pvticket | stock-pvqspinlock) ;;
    *) fail "unknown flavour '$flavour': use pvticket or stock-pvqspinlock" ;;
    esac
}

# Sets package, the Debian package of the source: empty for Linux 7, whose newest package is in the lists.
choose_version() {
    [ -z "${KERNEL_SRC:-}" ] || version=$(version_of_tree)
    case $version in
    6.1 | 6.12) package=linux-source-$version ;;
    7) package= ;;
    *) fail "unknown Linux '$version': use 6.1, 6.12 or 7, or a tree of 6.1 or newer as KERNEL_SRC=dir" ;;
    esac
}

# The configuration for the tree in KERNEL_SRC: the newest version's that is not newer than the tree.
version_of_tree() {
    local major minor
    major=$(sed -n 's/^VERSION = //p' "$KERNEL_SRC/Makefile" 2>/dev/null)
    minor=$(sed -n 's/^PATCHLEVEL = //p' "$KERNEL_SRC/Makefile" 2>/dev/null)
    case ${major:-6} in
    # None: the caller reports it.
    [0-5]) echo "$major.$minor" ;;
    6) if [ "${minor:-1}" -lt 12 ]; then echo 6.1; else echo 6.12; fi ;;
    *) echo 7 ;;
    esac
}

# Prints the missing Debian packages.
missing_tools() {
    local need tool
    for need in gcc:gcc ld:binutils make:make flex:flex bison:bison bc:bc \
        perl:perl patch:patch xz:xz-utils lz4:lz4 tar:tar; do
        tool=${need%%:*}
        command -v "$tool" >/dev/null || echo "${need#*:}"
    done
    # Programs of the build itself run here.
    echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1 || echo libc6-dev
    # objtool, which static branches need, reads ELF files with libelf.
    echo '#include <gelf.h>' | gcc -E - >/dev/null 2>&1 || echo libelf-dev
}

check_tools() {
    local missing
    missing=$(missing_tools | tr '\n' ' ')
    [ -z "$missing" ] || fail "missing packages for building a kernel: ${missing% }" \
        "(on Debian: apt-get install ${missing% })"
}

# The newest package in the cache.
cached_package() {
    [ -d "$cache/source" ] || return 0
    find "$cache/source" -name "${package:-linux-source-7.*}_*_all.deb" | sort -V | tail -n 1
}

# The file that apt would download: its name, or with $1=3 its size.
# shellcheck disable=SC2086 # a list of options
offered() {
    apt-get $options download --print-uris "$package" 2>/dev/null |
        awk -v field="${1:-2}" '{ print $field; exit }' || true
}

# Sets deb to the file that apt would download, by the system's lists or, if they do not contain it, by separate lists,
# which need no root.
find_package() {
    command -v apt-get >/dev/null ||
        fail "apt-get, which fetches the source, is missing: pass a Linux tree as KERNEL_SRC=dir"
    [ -z "$package" ] || deb=$(offered)
    [ -z "$deb" ] || return 0
    mkdir -p "$lists"
    pushd "$lists" >/dev/null
    if [ -n "$package" ]; then
        own_lists -o Acquire::Languages=none || true
        # Debian 13's own Linux is 6.12; Debian 12 has it only among its security updates.
        [ "$version" != 6.12 ] || [ -n "$(offered)" ] || lists_beside_own trixie || true
    else
        lists_of_newest || true
    fi
    deb=$(offered)
    [ -n "$deb" ] || ! grep -q '^[EW]: ' apt.log || fail "no package lists for ${package:-linux-source-7}: $(apt_reason apt.log)"
    popd >/dev/null
}

# Creates lists of the suite $1 on the mirror of this system's Debian.
lists_beside_own() {
    local from
    # shellcheck disable=SC1091
    from=$(mirror "$(. /etc/os-release && echo "$VERSION_CODENAME")")
    [ -n "$from" ] || return 1
    lists_of_suite "$1" "$from"
}

# Creates lists of the backports to Debian 13, which have Linux 7, and sets package to the newest there.
# shellcheck disable=SC2086
lists_of_newest() {
    lists_beside_own trixie-backports || return 1
    package=$(apt-cache $options search '^linux-source-7[0-9.]*$' | cut -d ' ' -f 1 | sort -V | tail -n 1)
}

# The SHA-256 of the package file $1 in apt's lists; empty if apt does not know that version.
# shellcheck disable=SC2086
listed_sum() {
    apt-cache $options show "$package" 2>/dev/null | awk -v RS= -v FS='\n' -v file="/$1" '{
        name = sum = ""
        for (i = 1; i <= NF; i++) {
            if ($i ~ /^Filename: /) name = $i
            if ($i ~ /^SHA256: /) sum = substr($i, 9)
        }
        if (substr(name, length(name) - length(file) + 1) == file) { print sum; exit }
    }'
}

# The expected sum of the package $1: from apt's lists or, if they do not contain it (they are missing
# or newer), the sum stored when it was fetched.
expected_sum() {
    local sum
    sum=$(listed_sum "${1##*/}")
    [ -n "$sum" ] || [ ! -f "$1.sha256" ] || sum=$(cut -c 1-64 "$1.sha256")
    echo "$sum"
}

# Copies the package to the file $1, which no other user can change. Fails if it does not match the sum in apt's lists.
take_package() {
    cp "$deb" "$1"
    echo "$deb_sum  $1" | sha256sum --check --status ||
        fail "$deb does not have the SHA-256 of apt's lists, $deb_sum: remove the file and run this again"
}

# Sets source_id, which identifies the source in the hash, without unpacking it.
identify_source() {
    if [ -n "${KERNEL_SRC:-}" ]; then
        [ -f "$KERNEL_SRC/Kbuild" ] && [ -d "$KERNEL_SRC/arch/x86" ] ||
            fail "KERNEL_SRC=$KERNEL_SRC is not a Linux source tree"
        source_id=tree:$(find "$KERNEL_SRC" -name .git -prune -o -type f \
            -printf '%P %s %T@\n' | sort | sha256sum)
        return
    fi
    deb=$(cached_package)
    [ -n "$deb" ] || find_package
    [ -n "$deb" ] || fail "apt knows no package ${package:-linux-source-7} (do its sources have Debian 12 or 13, and its mirror trixie and trixie-backports?);" \
        "or give a Linux tree as KERNEL_SRC=dir"
    [ -n "$package" ] || { package=${deb##*/} && package=${package%%_*}; }
    deb_sum=$(expected_sum "$deb")
    [ -n "$deb_sum" ] || fail "no SHA-256 to check $deb by: apt's lists do not have this version" \
        "(remove the file to fetch the version that they have, or give a Linux tree as KERNEL_SRC=dir)"
    source_id=deb:${deb##*/}:$deb_sum
}

hash_inputs() {
    {
        echo "$source_id" "$flavour" "$recipe"
        gcc --version | head -n 1
        # Only the diff of a patch counts, not its message.
        sed -s -n '/^diff --git /,$p' "$here"/patches/*.patch
        (cd "$here" && find arch -type f | sort | xargs sha256sum)
        cat "$header" "${fragments[@]}" "$excludes"
    } | sha256sum | cut -c 1-16
}

# shellcheck disable=SC2086
fetch_package() {
    [ -f "$deb" ] && return
    say "downloading $package ($(($(offered 3) / 1000000)) MB)"
    mkdir -p "$cache/source/partial"
    (cd "$cache/source/partial" && rm -f ./*.deb &&
        apt-get $options -qq -o APT::Sandbox::User=root download "$package" >apt.log 2>&1) ||
        fail "apt-get download $package failed: $(apt_reason "$cache/source/partial/apt.log")"
    mv "$cache/source/partial"/*.deb "$cache/source/"
    deb=$(cached_package)
}

# Fetches the package unless it is present, copies it to the file $1, and stores its sum in case apt's lists are removed.
provide_package() {
    fetch_package
    take_package "$1"
    echo "$deb_sum  ${deb##*/}" >"$deb.sha256"
}

# Fills $1 with the needed part of the source, as a clean tree: of KERNEL_SRC, or of the package $2.
unpack_source() {
    mkdir -p "$1"
    if [ -n "${KERNEL_SRC:-}" ]; then
        tar -C "$KERNEL_SRC" --exclude-from="$excludes" \
            --exclude='*/.git' --exclude='*.o' --exclude='*.cmd' --exclude=./.config --exclude=./include/config \
            --exclude='*/include/generated' -cf - . | tar -C "$1" -xf -
        return
    fi
    dpkg --fsys-tarfile "$2" | tar -xOf - "./usr/src/$package.tar.xz" | xz -dcT0 |
        tar -C "$1" --strip-components=1 --exclude-from="$excludes" -xf -
}

# Puts our files into the tree $1, and the hooks that lead to them. A hunk that does not fit exactly is rejected: patch
# would put some hunks in the wrong place.
add_ours() {
    local file log=$1.patch.log
    for file in "$here"/patches/{hooks,locktorture,acpi-without-pci}.patch; do
        # A user's tree may have it.
        ! patch -d "$1" -p1 -R -f -s --dry-run <"$file" >/dev/null 2>&1 || continue
        patch -d "$1" -p1 -f --fuzz=0 --no-backup-if-mismatch <"$file" >"$log" 2>&1 ||
            { cat "$log" && does_not_apply "$file" "$log" >"$1.reason"; return 1; }
    done &&
        cp -r "$here/arch" "$1/" &&
        cp "$header" "$1/arch/x86/include/asm/pvticket_abi.h"
}

# Prints the rejected hunk of the patch $1, by the log $2, and the remedy.
does_not_apply() {
    local hunk
    hunk=$(awk '/^patching file/ { file = $3 } /^Hunk #[0-9]+ FAILED/ { print file ", hunk " $2; exit }
        /^\|\+\+\+ b\// { print "no " substr($2, 3); exit }' "$2")
    echo "patches/${1##*/} does not fit this tree ($hunk): change the patch until it does, and run this again"
}

# The requests of the fragments: the last line for each symbol.
wanted_config() {
    cat "${fragments[@]}" | awk '
        /^(# )?CONFIG_/ && match($0, /CONFIG_[A-Za-z0-9_]+/) { last[substr($0, RSTART, RLENGTH)] = $0 }
        END { for (symbol in last) print last[symbol] }'
}

# If a line of a fragment is not in the result, this is not the requested kernel.
check_config() {
    local line bad=0
    while read -r line; do
        case $line in
        CONFIG_*) grep -qxF -- "$line" "$1" || { echo "configuration: missing $line"; bad=1; } ;;
        '# CONFIG_'*' is not set')
            line=${line#\# }
            ! grep -q "^${line% is not set}=" "$1" || { echo "configuration: still set: ${line% is not set}"; bad=1; } ;;
        esac
    done < <(wanted_config)
    return $bad
}

configure() {
    local src=$1 obj=$2
    mkdir -p "$obj" &&
        make -s -C "$src" O="$obj" tinyconfig &&
        # It creates a temporary file in the current folder, which may not be writable.
        (cd "$obj" && "$src/scripts/kconfig/merge_config.sh" -m -O "$obj" "$obj/.config" "${fragments[@]}") >/dev/null &&
        make -s -C "$src" O="$obj" olddefconfig &&
        check_config "$obj/.config"
}

# Equal inputs give equal kernels, regardless of builder and time.
compile() {
    make -C "$1" O="$2" -j"$(nproc)" LOCALVERSION="-$flavour" \
        KBUILD_BUILD_TIMESTAMP='1 January 2026' KBUILD_BUILD_USER=pvticket \
        KBUILD_BUILD_HOST=pvticket vmlinux bzImage
}

# Called under `if`, where bash ignores -e: hence the chains of &&. Objects are separate from the
# source, so that it is clean for the next flavour.
prepare_source() {
    [ -n "$source" ] && return
    unpack_source "$1" "$1.deb" && add_ours "$1" && source=$1
}

build_steps() {
    local obj=$1/obj
    prepare_source "$1/src" && configure "$source" "$obj" && compile "$source" "$obj"
}

collect() {
    local work=$1
    mkdir "$work/out"
    cp "$work/obj/arch/x86/boot/bzImage" "$work/obj/System.map" "$work/build.log" "$work/out/"
    cp "$work/obj/.config" "$work/out/config"
    # Symbols stay (a VMM may look them up); sections that only a linker needs are removed.
    strip --strip-debug -o "$work/out/vmlinux" "$work/obj/vmlinux"
    mv "$work/out" "$kernels/$hash"
}

# Prints the progress of the build with the log $1 every 30 s.
tell_progress() {
    # It outlives this function when that is killed, and must not keep the output open.
    while sleep 30 >/dev/null 2>&1; do
        say "$(grep -c '^  CC ' "$1") files compiled after $((SECONDS - began)) s"
    done
}

build() {
    local work=$kernels/.build-$hash began=$SECONDS failed=
    rm -rf "$work"
    works+=("$work")
    mkdir -p "$work"
    [ -z "${KEEP_BUILD:-}" ] || touch "$work/kept"
    [ -n "$source" ] || [ -n "${KERNEL_SRC:-}" ] || provide_package "$work/src.deb"
    say "building flavour $flavour of Linux $version (a few minutes; log: $work/build.log)"
    tell_progress "$work/build.log" 9>&- &
    teller=$!
    build_steps "$work" >"$work/build.log" 2>&1 || failed=1
    kill "$teller"
    wait "$teller" 2>/dev/null || true
    teller=
    if [ -n "$failed" ]; then
        cp "$work/build.log" "$kernels/failed-$flavour.log" || true
        [ ! -f "$work/src.reason" ] || fail "$(cat "$work/src.reason")"
        tail -n 20 "$work/build.log" >&2
        fail "flavour $flavour did not build; complete log: $kernels/failed-$flavour.log"
    fi
    collect "$work"
    if [ -n "${KEEP_BUILD:-}" ]; then
        say "source and objects are in $source and $work/obj"
    else
        rm -rf "$work/obj"
    fi
    say "built $kernels/$hash in $((SECONDS - began)) s"
}

# Replaced in one step: a reader finds the old kernel or the new one.
link() {
    ln -sfn "$hash" "$kernels/.$1.new"
    mv -fT "$kernels/.$1.new" "$kernels/$1"
}

clean_up() {
    # The failed step has printed a message, but not the remedy.
    if [ "$1" != 0 ] && [ -z "$told" ] && is_full "$cache"; then (fail) || true; fi
    [ -z "$teller" ] || kill "$teller" 2>/dev/null || true
    rm -rf "$lists"
    [ -n "${KEEP_BUILD:-}" ] || rm -rf "${works[@]}"
}

make_flavour() {
    hash=$(hash_inputs)
    if [ -f "$kernels/$hash/vmlinux" ]; then
        say "flavour $flavour is built: $kernels/$hash"
    else
        check_tools
        build
    fi
    # For a user's configuration, the path has been printed.
    [ -z "$own_config" ] || return 0
    link "$flavour-$version"
    if [ "$version" = "$usual" ]; then
        link "$flavour"
        [ "$flavour" != pvticket ] || link current
    fi
}

choose_version
[ -z "$own_config" ] || [ -r "$own_config" ] || fail "KERNEL_CONFIG=$own_config: cannot be read"
for name in "${flavours[@]}"; do choose_flavour "$name"; done
take_folder "$kernels" || fail "cannot write to $kernels: let this user write there, or name another folder in PVTICKET_CACHE"
trap 'clean_up $?' EXIT
for left in "$kernels"/.build-*; do
    [ -e "$left/kept" ] || rm -rf "$left"
done
command -v gcc >/dev/null || check_tools
identify_source
for name in "${flavours[@]}"; do
    choose_flavour "$name"
    make_flavour
done
