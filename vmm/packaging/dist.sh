#!/bin/sh
# Makes the packages, `make dist`: a tarball and a Debian package in OUT (default: target/dist).
#
#   dist.sh [OUT]
#
# Reproducible: the same commit gives the same bytes in any folder, with the same Rust, C compiler and static libraries.
# Timestamps are from the newest entry of `vmm/packaging/changelog`; build paths are remapped in the program, and
# vmm/packaging/rustc.sh keeps them out of symbols. PVTICKET_BUILD is the target folder (default: OUT/build).
set -eu
umask 022
export LC_ALL=C TZ=UTC

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
out=${1:-target/dist}
mkdir -p "$out"
out=$(cd "$out" && pwd)
target=${PVTICKET_BUILD:-$out/build}

say() { echo "dist: $*"; }
fail() {
    echo "dist: $*" >&2
    exit 1
}

git rev-parse --git-dir >/dev/null 2>&1 || fail "$root is not a git checkout: the packages have what git knows"
[ -z "$(git status --porcelain)" ] || say "warning: the tree has changes that no commit has"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
[ "$(sed -n '1s/^pvticket (\(.*\)) .*/\1/p' vmm/packaging/changelog)" = "$version" ] ||
    fail "vmm/packaging/changelog does not begin with version $version"
SOURCE_DATE_EPOCH=$(date -d "$(sed -n 's/^ -- @MAINTAINER@  //p' vmm/packaging/changelog | head -n 1)" +%s)
export SOURCE_DATE_EPOCH

# ---- the program ---------------------------------------------------------------------------

cargo_home=${CARGO_HOME:-$HOME/.cargo}
sysroot=$(rustc --print sysroot)
commit=$(rustc -vV | sed -n 's/^commit-hash: //p')
remap="'--remap-path-prefix=$root/=', '--remap-path-prefix=$cargo_home/=/cargo/',
    '--remap-path-prefix=$target/=/target/',
    '--remap-path-prefix=$sysroot/lib/rustlib/src/rust/=/rustc/$commit/'"

say "building version $version"
PVTICKET_ROOT=$root RUSTC_WRAPPER=$root/vmm/packaging/rustc.sh cargo build --locked --quiet --release \
    --package pvticket --target-dir "$target" \
    --config "target.x86_64-unknown-linux-gnu.rustflags = [$remap]"
built=$target/x86_64-unknown-linux-gnu/release

# ---- the files, below a prefix -------------------------------------------------------------

stage=$out/stage
name=pvticket-$version
rm -rf "$stage"
prefix=$stage/$name
doc=$prefix/share/doc/pvticket
data=$prefix/share/pvticket
mkdir -p "$prefix/bin" "$doc" "$data"

# copy FOLDER PATTERN...: tracked files, with their folders.
copy() {
    to=$1
    shift
    git ls-files -- "$@" | while read -r file; do
        mkdir -p "$to/$(dirname "$file")"
        cp "$file" "$to/$file"
    done
}

strip --strip-all -o "$prefix/bin/pvticket" "$built/pvticket"
"$built/pvticket-manual" "$prefix"
# Guides and the files that they link to; scripts and sources for `pvticket setup`; sources of the BPF scheduler.
copy "$doc" '*.md' 'vmm/specs/*' 'vmm/sim/*.csv' 'vmm/sim/machines/*' 'vmm/study/published/*'
copy "$data" guest-kernel-config/setup.sh guest-kernel-config/apt.sh 'guest-kernel-config/host/*.sh' \
    guest-kernel-config/linux guest-kernel-config/postgres hypercalls/include vmm/bpf/scheduler ':!*.o'
# Sourced scripts have no #! line.
grep -rlZ '^#!/' "$data" | xargs -0 chmod 755
cp LICENSE-APACHE LICENSE-MIT "$doc/"
maintainer="${DEBFULLNAME:-The pvticket developers} <${DEBEMAIL:-pvticket@localhost}>"
sed "s|@MAINTAINER@|$maintainer|" vmm/packaging/changelog >"$doc/changelog"
sed 's/^$/./; s/^/ /' LICENSE-MIT >"$stage/mit"
sh vmm/packaging/licences.sh >"$stage/third-party"
sed "/^@THIRD_PARTY@$/{
    r $stage/third-party
    d
}
/^@MIT@$/{
    r $stage/mit
    d
}" vmm/packaging/copyright >"$doc/copyright"

# settle FOLDER: sets modes and timestamps, regardless of umask and clock.
settle() {
    chmod -R u=rwX,go=rX "$1"
    find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# ---- the tarball ---------------------------------------------------------------------------

settle "$stage"
tar -C "$stage" --format=ustar --sort=name --owner=0 --group=0 --numeric-owner -cf - "$name" |
    gzip -9n >"$out/$name-x86_64.tar.gz"
say "$out/$name-x86_64.tar.gz"

# ---- the Debian package --------------------------------------------------------------------

command -v dpkg-deb >/dev/null || fail "no dpkg-deb here: the tarball is all"
deb=$stage/deb
mkdir -p "$deb/DEBIAN"
cp -a "$prefix" "$deb/usr"
mv "$deb/usr/share/zsh/site-functions" "$deb/usr/share/zsh/vendor-completions"
# Debian provides the texts of these two licences.
rm "$deb/usr/share/doc/pvticket/LICENSE-APACHE" "$deb/usr/share/doc/pvticket/LICENSE-MIT"
rm "$deb/usr/share/pvticket/guest-kernel-config/linux/COPYING"
gzip -9n "$deb"/usr/share/man/man1/*.1 "$deb/usr/share/doc/pvticket/changelog"
install -D -m 644 vmm/packaging/lintian-overrides "$deb/usr/share/lintian/overrides/pvticket"
size=$(du -sk --apparent-size "$deb/usr" | cut -f1)
sed "s|@VERSION@|$version|; s|@MAINTAINER@|$maintainer|; s|@SIZE@|$size|" vmm/packaging/control >"$deb/DEBIAN/control"
(cd "$deb" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
settle "$deb"
dpkg-deb --root-owner-group -Zxz --build "$deb" "$out/pvticket_${version}_amd64.deb" >/dev/null
say "$out/pvticket_${version}_amd64.deb"
rm -rf "$stage"
(cd "$out" && sha256sum "$name-x86_64.tar.gz" "pvticket_${version}_amd64.deb" | tee SHA256SUMS)
