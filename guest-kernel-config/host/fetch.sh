#!/bin/sh
# Fetches a kernel for the emulated host: a stock Debian cloud kernel with its KVM and virtio modules.
# Nothing is installed, and root is not needed: packages are only downloaded and unpacked.
#
#   fetch.sh                        once; prints one line if it is present already
#   fetch.sh --refresh              also if it is present
#   HOST_DEB=PLACE fetch.sh         from local packages: a file, or a folder of *.deb; or a kernel's build directory
#   HOST_KERNEL=7 fetch.sh ...      the newest 7.x of trixie-backports, stored in addition to 6.1
#   HOST_KERNEL=own HOST_NAME=NAME HOST_DEB=PLACE fetch.sh   a kernel of the user, unless PLACE is unchanged
set -eu

wanted="virtio_pci virtio_console kvm-amd"
suite=trixie-backports
case ${HOST_KERNEL:-6.1} in
6.1) name=host meta=linux-image-cloud-amd64 ;;
7) name=host-7 meta=linux-binary-7.*-cloud-amd64 ;;
own) name=host-own-${HOST_NAME:?} meta= ;;
*)
    echo "host: HOST_KERNEL=$HOST_KERNEL: unknown kernel; there are 6.1 and 7" >&2
    exit 2
    ;;
esac
. "$(dirname "$0")/cache.sh"
. "$(dirname "$0")/../apt.sh"

say() { echo "host: $*"; }

by_hand() {
    case $name in
    host)
        cat <<HELP
host: to do it by hand, get the package that $meta depends on from a Debian mirror
host: (pool/main/l/linux-signed-amd64/linux-image-*-cloud-amd64_*_amd64.deb), then
host:     HOST_DEB=that.deb make host
HELP
        ;;
    *)
        cat <<HELP
host: to do it by hand, get three packages of one version from a Debian mirror into one folder
host: ($suite: linux-binary-7.*, linux-modules-7.* and linux-base-7.*, each *-cloud-amd64_*_amd64.deb), then
host:     HOST_KERNEL=7 HOST_DEB=that-folder sh guest-kernel-config/host/fetch.sh
HELP
        ;;
    esac
}

fail() {
    keep_reason "host: $*"
    echo "host: $*" >&2
    [ -z "$meta" ] || {
        by_hand
        cat <<HELP
host: or, without dpkg-deb, put these files in $cache/by-hand
host:     vmlinuz  and  modules/NAME.ko  for $wanted and all that they depend on
host:     and modules.builtin, the kernel's list of modules that are a part of it
host: and make a link to it: ln -sfn by-hand $cache/current
HELP
    } >&2
    exit 1
}

# A module's name as a pattern that matches both its spellings.
spellings() { echo "$1" | sed 's/[-_]/[-_]/g'; }

# Prints the path of a module in the tree $1, regardless of spelling and compression.
find_module() {
    find "$1" -name "$(spellings "$2").ko" -o -name "$(spellings "$2").ko.[gxz]*" 2>/dev/null | head -n 1
}

# Whether the module $2 is built into the kernel, by its list $1 of built-in modules.
is_built_in() {
    [ -f "$1" ] && grep -q "/$(spellings "$2")\.ko\$" "$1"
}

unpacked() {
    case $1 in
    *.ko) cat "$1" ;;
    *.xz) xz -dc "$1" ;;
    *.zst) zstd -dcq "$1" ;;
    *.gz) gzip -dc "$1" ;;
    esac
}

# Copies a module and its dependencies from the tree $1 to the folder $2/modules, except for the modules
# in $2/modules.builtin.
take_module() {
    if [ -e "$2/modules/$3.ko" ] || is_built_in "$2/modules.builtin" "$3"; then return 0; fi
    source=$(find_module "$1" "$3")
    [ -n "$source" ] || fail "the packages have no module $3"
    unpacked "$source" >"$2/modules/$3.ko" || fail "cannot unpack $source"
    for needed in $(tr '\0' '\n' <"$2/modules/$3.ko" | sed -n 's/^depends=//p' | tr ',' ' '); do
        (take_module "$1" "$2" "$needed") || exit 1
    done
}

number() { od -An -tu"$3" -j"$2" -N"$3" "$1" | tr -d ' '; }

# Extracts the ELF kernel in the bzImage $1 to $2: it starts a second sooner than the bzImage, which
# unpacks itself on an emulated CPU. Fields of the setup header: Documentation/arch/x86/boot.rst.
extract_elf() {
    start=$(($(number "$1" 584 4) + ($(number "$1" 497 1) + 1) * 512))
    size=$(number "$1" 588 4)
    tail -c +$((start + 1)) "$1" | head -c "$size" >"$2.packed"
    # Except for gzip, the unpacked size follows.
    case $(od -An -tx1 -N4 "$2.packed" | tr -d ' ') in
    1f8b*) tool="gzip -dcq" && tail=0 ;;
    02214c18) tool="lz4 -dcq" && tail=4 ;;
    28b52ffd) tool="zstd -dcq" && tail=4 ;;
    fd377a58) tool="xz -dcq" && tail=4 ;;
    *) tool=none && tail=0 ;;
    esac
    if command -v "${tool%% *}" >/dev/null; then
        head -c $((size - tail)) "$2.packed" | $tool >"$2" 2>/dev/null || true
    fi
    rm -f "$2.packed"
    if [ "$(od -An -tx1 -N4 "$2" 2>/dev/null | tr -d ' ')" != 7f454c46 ]; then
        rm -f "$2"
        say "${tool%% *} is missing, so the kernel is not unpacked: it will start a second slower"
    fi
}

# Sets $packages to the kernel's packages, and $options for apt.
find_packages() {
    options=
    case $name in
    host)
        packages=$(real_package)
        # If the system's package lists do not contain it, uses separate lists, which need no root either.
        if [ -z "$packages" ]; then
            own_lists || true
            packages=$(real_package)
            [ -n "$packages" ] || ! grep -q '^[EW]: ' apt.log ||
                fail "no package lists for $meta: $(apt_reason apt.log)"
        fi
        [ -n "$packages" ] || fail "apt has no package $meta, which Debian provides"
        ;;
    *)
        from=$(mirror "$(codename)")
        [ -n "$from" ] || fail "apt's sources name no mirror of this system's Debian, which would have $suite"
        lists_of_suite $suite "$from" || fail "no package lists of $suite: $(apt_reason apt.log)"
        release=$(newest_release)
        [ -n "$release" ] || fail "$suite has no $meta"
        packages="linux-binary-$release linux-modules-$release linux-base-$release"
        ;;
    esac
}

codename() { sed -n 's/^VERSION_CODENAME=//p' /etc/os-release 2>/dev/null; }

# shellcheck disable=SC2086
real_package() {
    apt-cache $options depends "$meta" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -n 1
}

# The release of the newest 7.x, as in `7.3.4+deb13-cloud-amd64`.
# shellcheck disable=SC2086
newest_release() {
    apt-cache $options pkgnames linux-binary-7. | sed -n 's/^linux-binary-\(.*-cloud-amd64\)$/\1/p' | sort -V | tail -n 1
}

# Downloads the packages into the current folder.
download() {
    command -v apt-get >/dev/null || fail "apt-get is missing"
    find_packages
    # shellcheck disable=SC2086
    apt-get $options -qq -o APT::Sandbox::User=root download $packages >apt.log 2>&1 ||
        fail "apt-get download $packages failed: $(apt_reason apt.log)"
}

# Unpacks the packages in the arguments to the folder tree, and sets $version to the kernel's.
unpack() {
    command -v dpkg-deb >/dev/null || fail "dpkg-deb is missing: cannot unpack $*"
    version=
    for deb; do
        dpkg-deb -x "$deb" tree || fail "$deb is not a Debian package"
        package=$(dpkg-deb -f "$deb" Package)
        case $package in
        linux-image-* | linux-binary-*)
            version=${package#linux-*-}_$(dpkg-deb -f "$deb" Version | tr ':' '-')
            ;;
        esac
    done
    kernel=$(find tree/boot tree/usr/lib/modules -name 'vmlinuz*' 2>/dev/null | head -n 1)
    if [ -z "$version" ] || [ -z "$kernel" ]; then fail "no kernel in $*"; fi
}

case ${HOST_DEB:-} in
'' | /*) at_hand=${HOST_DEB:-} ;;
*) at_hand=$PWD/$HOST_DEB ;;
esac
[ -z "$at_hand" ] || [ -e "$at_hand" ] || fail "$at_hand: no such file or directory"

# Identifies the state of the files that are used in the package, folder or build directory.
state() {
    [ -z "$at_hand" ] || find "$at_hand" -maxdepth 1 \( -type f -o -type d \) -printf '%p %s %T@\n' | sort | sha256sum
    [ ! -d "$at_hand/arch/x86" ] ||
        find "$at_hand/arch/x86/boot/bzImage" "$at_hand/arch/x86/kvm" \( -name bzImage -o -name '*.ko' \) -printf '%p %s %T@\n' | sort
}

refresh=${1:-}
is_there() {
    [ "$refresh" != --refresh ] && [ -e "$cache/current/vmlinuz" ] || return 1
    if [ -z "$meta" ]; then
        [ "$(state)" = "$(cat "$cache/current/state" 2>/dev/null)" ]
    else
        [ -z "${HOST_DEB:-}" ] && say "$(basename "$(readlink "$cache/current")") is in $cache"
    fi
}

unless_there
begin_work
cd "$work"
if [ -z "$at_hand" ]; then
    download
    at_hand=$work
fi
if [ -d "$at_hand/arch/x86" ]; then
    kernel=$at_hand/arch/x86/boot/bzImage
    [ -f "$kernel" ] || fail "there is no $kernel: build it (make bzImage modules)"
    version=$(cat "$at_hand/include/config/kernel.release")
    ln -s "$at_hand" tree
elif [ -d "$at_hand" ]; then
    unpack "$at_hand"/*.deb
else
    unpack "$at_hand"
fi

mkdir -p new/modules
cp "$kernel" new/vmlinuz
state >new/state
builtin=$(find tree/ -name modules.builtin | head -n 1)
if [ -n "$builtin" ]; then cp "$builtin" new/; fi
for module in $wanted; do take_module tree/ new "$module"; done
extract_elf new/vmlinuz new/vmlinux
put_in_place "$version"
