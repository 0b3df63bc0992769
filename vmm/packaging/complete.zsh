# Types into a zsh of its own, and prints what that completes.
zmodload zsh/zpty
zpty -b shell zsh -f -i
zpty -w shell "PS1= RPS1= ; unsetopt prompt_sp; autoload -U compinit; compinit -u -d /tmp/zcompdump; echo read''y"
zpty -r -m shell answer '*ready*'
for words in 'pvticket compar' 'pvticket compare --polic'; do
    zpty -n -w shell "$words"$'\t'
    sleep 3
    zpty -r -t shell answer
    print -r -- "${answer}"
    zpty -n -w shell $'\x15'
done
zpty -d shell
