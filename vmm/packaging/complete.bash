# Asks bash what it would complete after `pvticket comp` and `pvticket compare --pol`.
source /usr/share/bash-completion/bash_completion
_completion_loader pvticket
for words in 'pvticket comp' 'pvticket compare --pol'; do
    read -ra COMP_WORDS <<<"$words"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$words COMP_POINT=${#words} COMPREPLY=()
    "$(complete -p pvticket | sed 's/.*-F \([^ ]*\).*/\1/')" pvticket "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf '%s\n' "${COMPREPLY[@]}"
done
