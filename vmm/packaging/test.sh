#!/bin/sh
# `make package-test`: tests the Debian package on a clean Debian 12, in a root that debootstrap creates from apt's mirror.
# Needs root (chroot), debootstrap and the mirror. Takes 15 minutes, mainly for the guest kernel.
#
#   test.sh [DEB]      default: the package in target/dist
#
# TEST_ROOT=DIR: use the root DIR; create it if it does not exist, and keep it.
set -eu
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
deb=${1:-$(echo "$here"/../../target/dist/pvticket_*_amd64.deb)}

. "$here/../../guest-kernel-config/apt.sh"

say() { printf '== %s\n' "$*"; }
fail() {
    echo "package-test: $*" >&2
    exit 1
}

[ -f "$deb" ] || fail "no package $deb: run make dist"
[ "$(id -u)" = 0 ] || fail "a chroot needs root"
# Unmounts at exit.
[ -n "${IN_NAMESPACE:-}" ] || exec env IN_NAMESPACE=1 unshare --mount --pid --fork sh "$0" "$deb"

root=${TEST_ROOT:-$(mktemp -d)}
[ -n "${TEST_ROOT:-}" ] || trap 'umount --lazy -R "$root/proc" "$root/dev" || true; rm -rf --one-file-system "$root"' EXIT
if [ ! -x "$root/usr/bin/apt-get" ]; then
    command -v debootstrap >/dev/null || fail "no debootstrap here: apt-get install debootstrap"
    from=$(mirror bookworm)
    [ -n "$from" ] || fail "no mirror for Debian 12: add bookworm to apt's sources"
    say "a root with Debian 12"
    debootstrap --variant=minbase bookworm "$root" "$from" >/dev/null
fi
# mktemp permits only root, but this folder is the / of a plain user.
chmod 755 "$root"
mkdir -p "$root/dev" "$root/proc"
mount --rbind /dev "$root/dev"
mount --make-rslave "$root/dev"
mount -t proc proc "$root/proc"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
cp "$deb" "$root/tmp/pvticket.deb"

inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C TERM=dumb DEBIAN_FRONTEND=noninteractive "$@"; }
# Runs a command as an unprivileged user.
plainly() { inside setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/home/plain "$@"; }
# Files left by packages, without the records of apt and dpkg.
files() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./tmp -o -path ./var/lib/dpkg -o -path ./var/lib/apt \
        -o -path ./var/cache -o -path ./var/log -o -path ./home \) -prune -o -print | sort)
}

say "install, use, purge: without any other package"
files >"$root/tmp/before"
inside dpkg -i /tmp/pvticket.deb >/dev/null
inside pvticket --version
inside pvticket compare --vcpus 1x,2x --runs 2 --seconds 0.2
! inside pvticket boot --host emulated -- true 2>"$root/tmp/why" || fail "a guest booted before setup"
grep 'pvticket setup' "$root/tmp/why" || fail "no advice: $(cat "$root/tmp/why")"
inside pvticket setup --list
inside dpkg -P pvticket >/dev/null
files | diff "$root/tmp/before" - || fail "a purge leaves files, or removes others"

say "lintian"
inside apt-get -qq update
inside apt-get -qq -y --no-install-recommends install lintian man-db bash-completion zsh fish >/dev/null 2>&1
inside lintian --allow-root --fail-on error,warning /tmp/pvticket.deb

say "with the packages that it recommends"
inside apt-get -qq -y --no-install-recommends install /tmp/pvticket.deb >/dev/null 2>&1
inside id plain >/dev/null 2>&1 || inside useradd --create-home --uid 1000 plain
say "what is missing is named"
! plainly pvticket setup kernel 2>"$root/tmp/why" || fail "a kernel without a compiler"
grep 'gcc' "$root/tmp/why" || fail "no advice: $(cat "$root/tmp/why")"
recommended=$(inside dpkg-query -W -f '${Recommends}' pvticket | tr -d ,)
# shellcheck disable=SC2086 # a list
inside apt-get -qq -y --no-install-recommends install $recommended >/dev/null 2>&1

say "man pages"
for page in $(inside dpkg -L pvticket | sed -n 's|.*/man1/\(.*\)\.1\.gz$|\1|p'); do
    inside man -Pcat "$page" 2>&1 | grep -q SYNOPSIS || fail "no man page $page"
    inside lexgrog -m "/usr/share/man/man1/$page.1.gz" >/dev/null || fail "whatis does not find $page"
done
say "completions"
cp "$here"/complete.* "$root/tmp/"
for shell in bash zsh fish; do
    inside "$shell" "/tmp/complete.$shell" >"$root/tmp/completed" 2>&1 || true
    for word in compare --policy; do
        grep -q -- "$word" "$root/tmp/completed" || fail "$shell does not complete $word: $(cat "$root/tmp/completed")"
    done
    echo "$shell: $(tr '\n' ' ' <"$root/tmp/completed" | cut -c 1-100)"
done

say "setup and boot, not as root, and without package lists of the system"
rm -rf "$root"/var/lib/apt/lists/*
plainly pvticket setup >"$root/tmp/sums"
cat "$root/tmp/sums"
plainly sha256sum --check --quiet /tmp/sums
plainly pvticket boot --host emulated --cpus 2 -- sh -c 'uname -r; nproc; dmesg | grep pvticket:'
say "all is well"
