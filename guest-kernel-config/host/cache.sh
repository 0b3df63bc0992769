# Functions shared by fetch.sh and qemu.sh, which source this file with $name set to the folder in
# the cache. Each version is made in a separate folder next to its place and moved there in one
# step.

cache=${PVTICKET_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME, XDG_CACHE_HOME or PVTICKET_CACHE}/.cache}/pvticket}/$name

# Makes that folder, $work, which is removed at every exit.
begin_work() {
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/.new-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# Moves $work/new into place as version $1 and makes it the current one.
put_in_place() {
    chmod -R u=rwX,go=rX "$work/new"
    if [ -e "$cache/$1" ]; then mv -T "$cache/$1" "$work/old"; fi
    mv -T "$work/new" "$cache/$1"
    ln -s "$1" "$work/current"
    mv -T "$work/current" "$cache/current"
    say "$1 is now in $cache ($(du -sh "$cache/$1" | cut -f1))"
}
