#!/bin/sh
# Fetches a QEMU for the emulated host if this system's own is older than 8.1.
#
#   qemu.sh              once; prints one line if there is nothing to do
#   qemu.sh --refresh    also if it is present
#
# Until 8.1 QEMU's TCG did not lock a page of code during its translation, so that code which
# another CPU changed concurrently was translated incorrectly, permanently ("accel/tcg: Always lock pages
# before translation"). Kernels change their own code: about one in thirty boots of Linux guests
# with four vCPUs died, and the emulated host froze about as often (measured with 7.2).
#
# Nothing is installed, and root is not needed: Debian 12's backports have a newer QEMU, whose
# emulator and firmware are unpacked into the cache; it uses the libraries of Debian 12.
set -eu

wanted=8.1
name=qemu
. "$(dirname "$0")/cache.sh"
. "$(dirname "$0")/../apt.sh"
program=qemu-system-x86_64
firmware="bios-256k.bin kvmvapic.bin linuxboot.bin linuxboot_dma.bin"

say() { echo "qemu: $*"; }

# A failure to fetch a newer QEMU is not an error: with supervision the old one usually works.
give_up() {
    say "$*" >&2
    say "the emulated host will use this system's $(version_of $program || echo "QEMU, which is missing")" >&2
    say "for one that is newer than $wanted, name it in PVTICKET_QEMU" >&2
    exit 0
}

version_of() {
    "$1" --version 2>/dev/null | sed -n 's/^QEMU emulator version \([0-9]*\.[0-9]*\.[0-9]*\).*/\1/p' | grep .
}

at_least() {
    major=${1%%.*} rest=${1#*.}
    [ "$major" -gt "${wanted%.*}" ] ||
        { [ "$major" -eq "${wanted%.*}" ] && [ "${rest%%.*}" -ge "${wanted#*.}" ]; }
}

# Downloads packages into the current folder from the mirror $1, using separate package lists.
download() {
    lists_of_suite bookworm-backports "$1" || return 1
    shift
    # shellcheck disable=SC2086 # a list of options
    apt-get $options -qq download "$@" >apt.log 2>&1
}

own=$(version_of $program || true)
if [ -n "$own" ] && at_least "$own"; then
    say "this system's own is $own"
    exit 0
fi
refresh=${1:-}
is_there() {
    [ "$refresh" != --refresh ] && cached=$(version_of "$cache/current/bin/$program") && say "$cached is in $cache"
}

unless_there
# Its libraries are installed with the system's own QEMU, which setup.sh installs.
case $(cat /etc/debian_version 2>/dev/null) in
12*) ;;
*) give_up "QEMU ${own:-(none)} is older than $wanted, and this is not Debian 12, whose backports have a newer one" ;;
esac
command -v apt-get >/dev/null && [ -e $keys ] || give_up "cannot fetch a newer QEMU: apt-get or $keys is missing"

from=$(mirror bookworm)
[ -n "$from" ] || give_up "no mirror to fetch a newer QEMU from: apt's sources have no entry for Debian 12" \
    "(\"deb MIRROR bookworm main\" in /etc/apt/sources.list, then apt-get update)"
begin_work
cd "$work"
download "$from" qemu-system-x86 qemu-system-data seabios ||
    give_up "cannot fetch a newer QEMU from Debian's backports: $(tail -n 1 apt.log)"
for package in ./*.deb; do
    dpkg-deb -x "$package" tree || give_up "cannot unpack $package"
done
mkdir -p new/bin new/share/qemu
# QEMU looks for its firmware relative to its binary (`../share/qemu`).
mv "tree/usr/bin/$program" new/bin/
for file in $firmware; do
    cp tree/usr/share/*/"$file" new/share/qemu/ || give_up "the newer QEMU's packages have no $file"
done
version=$(version_of "new/bin/$program") ||
    give_up "the newer QEMU does not run here: $("new/bin/$program" --version 2>&1 | head -n 1)"
put_in_place "$version"
