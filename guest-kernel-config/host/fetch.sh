#!/bin/sh
# Fetches the emulated host's kernel: a stock Debian cloud kernel with its KVM and virtio modules.
# Nothing is installed, and root is not needed: the package is only downloaded and unpacked.
#
#   fetch.sh                  once; says so in one line when it is there already
#   fetch.sh --refresh        also when it is there
#   HOST_DEB=FILE fetch.sh    from a linux-image-*-cloud-amd64 package that is at hand
set -eu

meta=linux-image-cloud-amd64
wanted="virtio_pci virtio_console kvm-amd"
name=host
. "$(dirname "$0")/cache.sh"

say() { echo "host: $*"; }

fail() {
    echo "host: $*" >&2
    cat >&2 <<HELP
host: to do it by hand, get the package that $meta depends on from a Debian mirror
host: (pool/main/l/linux-signed-amd64/linux-image-*-cloud-amd64_*_amd64.deb), then
host:     HOST_DEB=that.deb make host
host: or, without dpkg-deb, put these files in $cache/by-hand
host:     vmlinuz  and  modules/NAME.ko  for $wanted and all that they depend on
host: and make a link to it: ln -sfn by-hand $cache/current
HELP
    exit 1
}

# Prints the path of a module in the tree $1, whatever its spelling and compression.
find_module() {
    pattern=$(echo "$2" | sed 's/[-_]/[-_]/g')
    find "$1/lib/modules" "$1/usr/lib/modules" -name "$pattern.ko*" 2>/dev/null | head -n 1
}

unpacked() {
    case $1 in
    *.ko) cat "$1" ;;
    *.xz) xz -dc "$1" ;;
    *.zst) zstd -dcq "$1" ;;
    *.gz) gzip -dc "$1" ;;
    esac
}

# Copies a module and its dependencies from the tree $1 to the folder $2.
take_module() {
    [ ! -e "$2/$3.ko" ] || return 0
    source=$(find_module "$1" "$3")
    [ -n "$source" ] || fail "the package has no module $3"
    unpacked "$source" >"$2/$3.ko" || fail "cannot unpack $source"
    for needed in $(tr '\0' '\n' <"$2/$3.ko" | sed -n 's/^depends=//p' | tr ',' ' '); do
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
        say "no tool ${tool%% *} to unpack the kernel with: it will start a second slower"
    fi
}

# Downloads the package into the current folder. If the system's package lists do not have it,
# separate lists do, which needs no root either.
download() {
    command -v apt-get >/dev/null || fail "apt-get is missing here"
    options=
    package=$(real_package)
    if [ -z "$package" ]; then
        own_lists || true
        package=$(real_package)
    fi
    [ -n "$package" ] || fail "apt knows no $meta (it is Debian's; see apt.log if there was one)"
    # shellcheck disable=SC2086
    apt-get $options -qq -o APT::Sandbox::User=root download "$package" >apt.log 2>&1 ||
        fail "apt-get download $package failed: $(tail -n 1 apt.log)"
    set -- "$package"_*.deb
    deb=$PWD/$1
}

# shellcheck disable=SC2086
real_package() {
    apt-cache $options depends "$meta" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -n 1
}

if [ "${1:-}" != --refresh ] && [ -z "${HOST_DEB:-}" ] && [ -e "$cache/current/vmlinuz" ]; then
    say "$(basename "$(readlink "$cache/current")") is in $cache"
    exit 0
fi

begin_work
case ${HOST_DEB:-} in
'') cd "$work" && download ;;
/*) deb=$HOST_DEB ;;
*) deb=$PWD/$HOST_DEB ;;
esac
cd "$work"
command -v dpkg-deb >/dev/null || fail "dpkg-deb is missing here: cannot unpack $deb"
dpkg-deb -x "$deb" tree || fail "$deb is not a Debian package"
version=$(dpkg-deb -f "$deb" Package | sed 's/^linux-image-//')_$(dpkg-deb -f "$deb" Version | tr ':' '-')

mkdir -p new/modules
cp tree/boot/vmlinuz-* new/vmlinuz || fail "$deb has no kernel"
for module in $wanted; do take_module tree new/modules "$module"; done
extract_elf new/vmlinuz new/vmlinux
put_in_place "$version"
