# Functions shared by scripts that fill one folder of the cache. They source this file and apt.sh, with $name set to that
# folder, and define is_there, which reports whether the part is present and stays. Each version is created in a separate
# folder next to its destination and moved there in one step.

cache=${PVTICKET_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME, XDG_CACHE_HOME or PVTICKET_CACHE}/.cache}/pvticket}/$name

# Ends the script if the part is present. Removes the remains of killed scripts in any case.
unless_there() {
    is_there || return 0
    [ ! -d "$cache" ] || take_folder "$cache" --try 2>/dev/null || true
    exit 0
}

# Creates that folder, $work, which is removed at every exit.
begin_work() {
    take_folder "$cache" || cannot_write
    # Another script may have created it in the meantime.
    if is_there; then exit 0; fi
    work=$(mktemp -d "$cache/.new-XXXXXX") || cannot_write
    trap 'end_work $?' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# Exits with an error: the cache is not writable.
cannot_write() {
    why="cannot write to $cache: let this user write there, or name another folder in PVTICKET_CACHE"
    if is_full "${cache%/*}"; then why=$(full_disk "${cache%/*}"); fi
    keep_reason "$name: $why"
    say "$why" >&2
    exit 1
}

# $1 is the status. On a full disk, programs fail with various messages.
end_work() {
    if [ "$1" != 0 ] && is_full "$cache"; then
        keep_reason "$name: $(full_disk "$cache")"
        say "$(full_disk "$cache")" >&2
    fi
    remove_work "$work"
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
