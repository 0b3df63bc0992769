# Functions for scripts that fetch Debian packages without installing them; they are sourced.

# Makes separate package lists in the current folder, and sets $options for them: that needs no
# root, and changes nothing in the system. The arguments are further options.
own_lists() {
    mkdir -p lists/partial archives/partial
    options="-o Dir::State::lists=$PWD/lists -o Dir::Cache=$PWD -o Debug::NoLocking=1 $*"
    # shellcheck disable=SC2086 # a list of options
    apt-get $options -qq update >apt.log 2>&1
}

keys=/usr/share/keyrings/debian-archive-keyring.gpg

# The mirror that this system's apt uses for Debian $1 (a codename); it has Debian's other suites,
# too.
mirror() {
    # shellcheck disable=SC2016 # apt's own placeholders
    apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        sed -n "s/^$1 //p" | head -n 1
}

# Makes separate package lists as own_lists does, of the suite $1 on the mirror $2 only.
lists_of_suite() {
    echo "deb [signed-by=$keys] $2 $1 main" >sources.list
    own_lists -o "Dir::Etc::sourcelist=$PWD/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Acquire::Languages=none -o APT::Sandbox::User=root
}
