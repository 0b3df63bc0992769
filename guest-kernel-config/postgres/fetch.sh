#!/bin/sh
# Makes the guest disk of the workload `pgbench`: PostgreSQL of Debian's packages, the libraries that it needs, and an empty
# database, as a cpio archive for the guest's root:
#
#   $XDG_CACHE_HOME/pvticket/guest-disk/<hash>/{root.cpio,packages,recipe}
#   $XDG_CACHE_HOME/pvticket/guest-disk/current -> <hash>
#
# The hash covers the packages' versions and the recipe: this script and postgresql.conf.
#
#   fetch.sh             once; says so in one line when it is there already
#   fetch.sh --refresh   also when it is there: of the versions that apt offers now
#
# Nothing is installed, and no root is needed: the packages are only downloaded and unpacked. The database is made by
# their own initdb, which runs here, with their libraries and this system's C library.
set -eu
umask 022
export LC_ALL=C

name=guest-disk
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../host/cache.sh"
. "$here/../apt.sh"

programs="postgres pgbench pg_isready"
# Who owns the database here when root makes it, as PostgreSQL refuses to run as root: nobody.
unprivileged=65534

say() { echo "guest-disk: $*"; }

fail() {
    echo "guest-disk: $*" >&2
    exit 1
}

# ---- packages ------------------------------------------------------------------------------

# The first of each list of alternatives, from what `apt-cache depends` says.
first_choices() {
    awk '/Depends:/ { if (!further) print $2; further = /\|/ }'
}

# Sets $packages: the server, its programs, and the libraries that these depend on, but for those of the
# just-in-time compiler and of psql.
find_packages() {
    # shellcheck disable=SC2086 # lists
    server=$(apt-cache $options depends postgresql 2>/dev/null |
        sed -n 's/^ *Depends: \(postgresql-[0-9]*\)$/\1/p' | head -n 1)
    [ -n "$server" ] || return 1
    version=${server#postgresql-}
    packages="$server postgresql-client-$version"
    new=$packages
    while [ -n "$new" ]; do
        # shellcheck disable=SC2086
        found=$(apt-cache $options depends $new | first_choices | sort -u)
        new=
        for package in $found; do
            case $package in
            libllvm* | libreadline*) continue ;;
            lib* | zlib1g) ;;
            *) continue ;;
            esac
            case " $packages " in
            *" $package "*) ;;
            *) packages="$packages $package" new="$new $package" ;;
            esac
        done
    done
}

# Sets $identity: the packages as files, with versions.
identify() {
    find_packages || return 1
    # shellcheck disable=SC2086
    identity=$(apt-get $options -qq download --print-uris $packages 2>apt.log | awk '{ print $2 }' | sort)
    [ -n "$identity" ]
}

# shellcheck disable=SC2086
download() {
    rm -f ./*.deb
    apt-get $options -qq -o APT::Sandbox::User=root download $packages >apt.log 2>&1
}

# Lists of our own, where the system has none, or old ones that name packages that are gone.
use_own_lists() {
    own_lists -o Acquire::Languages=none && identify
}

unpack() {
    for deb in ./*.deb; do
        # Not where initdb will look for libraries: it runs with this system's C library.
        case $deb in
        ./libc6_*) into=libc ;;
        *) into=tree ;;
        esac
        mkdir -p $into
        dpkg-deb --fsys-tarfile "$deb" | tar -C $into -xf - --exclude='./usr/share/doc*' \
            --exclude='./usr/share/man' --exclude='./usr/share/locale' --exclude='*/bitcode' \
            --exclude='*/llvmjit.so' || fail "cannot unpack $deb"
        rm "$deb"
    done
}

# ---- the guest's root ----------------------------------------------------------------------

# Prints the libraries of the program or library $1, as files of the packages.
libraries_of() {
    "$loader" --inhibit-cache --library-path "$own_libraries:$c_library" --list "$1" |
        sed -n 's/^[[:space:]]*\(lib.*\) => \(.*\)$/\1 \2/p' | while read -r library file _; do
        case $file in
        "$stage"/*) echo "$file" ;;
        *) fail "no package has the $library that $(basename "$1") needs" ;;
        esac
    done
}

# All libraries go into one folder, one of those where the loader looks by itself. The guest's root has /usr and
# /usr/bin already: nothing may lie in /bin, /sbin or /usr/bin.
select_files() {
    bin=usr/lib/postgresql/$version/bin
    lib=usr/lib/postgresql/$version/lib
    share=usr/share/postgresql/$version
    libraries=usr/lib/x86_64-linux-gnu
    mkdir -p root/$bin root/$lib root/$share/extension root/$libraries root/lib64
    for program in $programs; do cp "tree/$bin/$program" root/$bin/; done
    cp tree/$lib/pg_prewarm.so root/$lib/
    cp tree/$share/extension/pg_prewarm* root/$share/extension/
    cp -R tree/$share/timezonesets root/$share/
    cp "$loader" root/lib64/ld-linux-x86-64.so.2
    for file in root/$bin/* root/$lib/*; do libraries_of "$stage/$file" >>needed || exit 1; done
    sort -u needed | while read -r file; do cp -L "$file" root/$libraries/; done
}

as_unprivileged() {
    if [ "$(id -u)" = 0 ]; then
        setpriv --reuid=$unprivileged --regid=$unprivileged --clear-groups "$@"
    else
        "$@"
    fi
}

# Small segments of the log, as a first one is always there.
make_database() {
    mkdir database
    [ "$(id -u)" != 0 ] || chown $unprivileged:$unprivileged database
    as_unprivileged env -i LC_ALL=C PATH=/usr/bin:/bin "LD_LIBRARY_PATH=$own_libraries" \
        "$stage/tree/$bin/initdb" --pgdata="$stage/database" --username=postgres --auth=trust --encoding=UTF8 \
        --locale=C --wal-segsize=1 --no-sync --no-instructions >initdb.log 2>&1 || {
        cat initdb.log >&2
        fail "initdb failed; see above"
    }
    mkdir -p root/var/lib/postgresql
    cp -R database root/var/lib/postgresql/
    cp "$here/postgresql.conf" root/var/lib/postgresql/database/
}

# Owned by root: the workload gives the database to the server's user.
pack() {
    (cd root && find . -mindepth 1 -printf '%P\n' | sort |
        cpio --quiet -o -H newc -R 0:0 --reproducible) >"$work/new/root.cpio"
}

# ---- main ----------------------------------------------------------------------------------

recipe=$(cat "$here/fetch.sh" "$here/postgresql.conf" | sha256sum | cut -c 1-16)
refresh=${1:-}
is_there() {
    [ "$refresh" != --refresh ] && [ -e "$cache/current/root.cpio" ] &&
        [ "$(cat "$cache/current/recipe")" = "$recipe" ] &&
        say "PostgreSQL $(sed -n 's/^postgresql-[0-9]*_\([^_]*\)_.*/\1/p' "$cache/current/packages") is in $cache"
}

unless_there
for tool in apt-get dpkg-deb cpio setpriv; do
    command -v $tool >/dev/null || fail "there is no $tool here: the guest disk is made of Debian's packages"
done

begin_work
# Not in the cache: the one who makes the database must be able to get there. (Its name is as random as that of $work.)
stage=${TMPDIR:-/tmp}/pvticket-guest-disk-${work##*-}
echo "$stage" >"$work/elsewhere"
mkdir "$stage"
chmod 755 "$stage"
cd "$stage"

options=
identify || use_own_lists || fail "apt knows no postgresql: $(tail -n 1 apt.log)"
say "fetching $server and the libraries that it needs"
download || { why=$(tail -n 1 apt.log) && use_own_lists && download; } || fail "apt-get download failed: $why"
unpack
loader=$(find "$stage/libc" -name ld-linux-x86-64.so.2 -type f | head -n 1)
[ -n "$loader" ] || fail "libc6 has no loader"
c_library=$(dirname "$loader")
own_libraries=$stage/tree/lib/x86_64-linux-gnu:$stage/tree/usr/lib/x86_64-linux-gnu
select_files
make_database
mkdir "$work/new"
pack
echo "$identity" >"$work/new/packages"
echo "$recipe" >"$work/new/recipe"
put_in_place "$({ echo "$recipe" && echo "$identity"; } | sha256sum | cut -c 1-16)"
