# Asks fish what it would complete.
complete -C 'pvticket comp'
complete -C 'pvticket compare --pol'
