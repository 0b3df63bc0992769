# What fetch.sh and qemu.sh share: sourced by both, with $name set to the folder in the cache.
# A thing is made in a folder of its own beside its place, and then put there in one step.

cache=${PVTICKET_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME, XDG_CACHE_HOME or PVTICKET_CACHE}/.cache}/pvticket}/$name

# Makes that folder, $work, which is gone at the end, however it comes.
begin_work() {
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/.new-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# Puts $work/new into its place as version $1, the one in use from now on.
put_in_place() {
    chmod -R u=rwX,go=rX "$work/new"
    if [ -e "$cache/$1" ]; then mv -T "$cache/$1" "$work/old"; fi
    mv -T "$work/new" "$cache/$1"
    ln -s "$1" "$work/current"
    mv -T "$work/current" "$cache/current"
    say "$1 is now in $cache ($(du -sh "$cache/$1" | cut -f1))"
}

# Makes package lists of our own in the current folder, and sets $options for them: that needs no
# root, and changes nothing of the system's. Further options as arguments.
own_lists() {
    mkdir -p lists/partial archives/partial
    options="-o Dir::State::lists=$PWD/lists -o Dir::Cache=$PWD -o Debug::NoLocking=1 $*"
    # shellcheck disable=SC2086 # a list of options
    apt-get $options -qq update >apt.log 2>&1
}
