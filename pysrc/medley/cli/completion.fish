# Completion of medley for fish, made by: medley completion fish

function __medley_hosts
    sh -c @HOSTS@
end

# Is the verb that was typed so far this one?
function __medley_at
    set -l verb
    for word in (commandline -opc)[2..-1]
        set -l longer (string trim -- "$verb $word")
        contains -- $longer @PATHS@; and set verb $longer
    end
    test "$verb" = "$argv[1]"
end

complete -c medley -f
