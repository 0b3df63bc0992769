# Functions to be sourced by scripts that fill the cache, mostly from Debian packages, which they do not install.

# Appends the reason for the script's failure, and the remedy, to the file $PVTICKET_FAILED: `make run` ends with it.
keep_reason() {
    [ -z "${PVTICKET_FAILED:-}" ] || printf '%s\n' "$*" >>"$PVTICKET_FAILED" || true
}

# Whether the disk of the folder $1 is full.
is_full() {
    free_kib=$(df -Pk "$1" 2>/dev/null | awk 'NR == 2 { print $4 }')
    [ "${free_kib:-1000000}" -lt 16384 ]
}

# Prints the remedy for a full disk with the folder $1.
full_disk() {
    echo "the disk of $1 is full: make room, or name another folder in PVTICKET_CACHE, then run this again"
}

# Locks the folder $1 of the cache until this script and all its children have ended, and removes the remains of killed
# scripts there. Waits for another script that holds the lock; with --try as $2, returns 75 instead.
take_folder() {
    # Files in the cache are executed: other users may not write there, regardless of this user's umask.
    umask o-w
    # (A redirection of exec that fails ends the shell.)
    mkdir -p "$1" && touch "$1/.lock" || return 1
    exec 9>>"$1/.lock"
    if ! flock -n 9; then
        [ "${2:-}" != --try ] || return 75
        say "another setup works in $1: waiting for it"
        flock 9
    fi
    # (new.*: of earlier versions.)
    for left in "$1"/.new-* "$1"/new.*; do remove_work "$left"; done
}

# Removes the temporary folder $1, and the folders that its file `elsewhere` lists.
remove_work() {
    if [ -e "$1/elsewhere" ]; then
        while read -r place; do rm -rf "$place"; done <"$1/elsewhere"
    fi
    rm -rf "$1"
}

# Prints the reason for apt's failure and the remedy, from its output in the file $1.
apt_reason() {
    if grep -q 'No space left on device\|enough free space' "$1"; then
        echo "the disk is full: make room, then run this again"
    elif grep -q 'Could not resolve\|Temporary failure\|ould not connect\|nable to connect\|unreachable\|timed out' "$1"; then
        echo "no mirror can be reached: check the network, or the mirror in apt's sources, then run this again"
    elif grep -q 'Could not get lock\|Unable to lock\|Unable to acquire' "$1"; then
        echo "another apt is running: wait for its end, then run this again"
    elif grep -q 'dpkg --configure -a' "$1"; then
        echo "an installation was interrupted: run dpkg --configure -a as root, then this again"
    else
        why=$(grep '^E: ' "$1" | tail -n 1 | cut -c 4-)
        echo "${why:-see what apt printed}: mend that, then run this again"
    fi
}

# Creates separate package lists in the current folder, and sets $options for them: this needs no
# root and does not change the system. The arguments are further options.
own_lists() {
    mkdir -p lists/partial archives/partial
    # (Or root's apt would give a folder to another user.)
    options="-o Dir::State::lists=$PWD/lists -o Dir::Cache=$PWD -o Debug::NoLocking=1 -o APT::Sandbox::User=root $*"
    # shellcheck disable=SC2086 # a list of options
    apt-get $options -qq update >apt.log 2>&1
}

keys=/usr/share/keyrings/debian-archive-keyring.gpg

# The mirror that this system's apt uses for Debian $1 (a codename); it has Debian's other suites,
# too.
mirror() {
    # shellcheck disable=SC2016 # apt's own placeholders
    found=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        sed -n "s/^$1 //p" | head -n 1)
    # Only package lists contain codenames. Without them: the mirror that apt would use for the suite of that name.
    [ -n "$found" ] || found=$(apt-get -o Debug::NoLocking=1 update --print-uris 2>/dev/null |
        sed -n "s|^'\(.*/\)dists/$1/InRelease'.*|\1|p" | head -n 1)
    echo "$found"
}

# Creates separate package lists like own_lists, only of the suite $1 on the mirror $2.
lists_of_suite() {
    echo "deb [signed-by=$keys] $2 $1 main" >sources.list
    own_lists -o "Dir::Etc::sourcelist=$PWD/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Acquire::Languages=none
}
