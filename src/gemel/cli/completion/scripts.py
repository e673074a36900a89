"""The scripts that connect a shell with `gemel completion SHELL -- WORD…`.

The command prints a line for each candidate, with its meaning behind a tab. Where it prints nothing, the shell completes names
of files.
"""

from __future__ import annotations

BASH = r"""# Completion of gemel for bash: eval "$(gemel completion bash)"
_gemel() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <("$1" completion bash -- "$COMP_WORDBREAKS" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null </dev/null)
    if [[ ${#COMPREPLY[@]} -gt 0 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace
    fi
}
complete -o bashdefault -o default -F _gemel gemel
"""

ZSH = r"""#compdef gemel
# Completion of gemel for zsh: eval "$(gemel completion zsh)", or this text as a file _gemel in a folder of $fpath
_gemel() {
    local line
    local -a spaced joined program=(${~${(Q)words[1]}} completion zsh --)
    for line in "${(@f)$($program "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null </dev/null)}"; do
        [[ -n $line ]] || continue
        if [[ ${line%%$'\t'*} == *= ]]; then
            joined+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        else
            spaced+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        fi
    done
    if (( $#spaced + $#joined == 0 )); then
        compset -P '*=@'
        _files
        return
    fi
    (( $#spaced )) && _describe -t words word spaced
    (( $#joined )) && _describe -t arguments argument joined -S ''
}
if [[ $funcstack[1] == _gemel ]]; then
    _gemel "$@"
else
    compdef _gemel gemel
fi
"""

FISH = r"""# Completion of gemel for fish: gemel completion fish > ~/.config/fish/completions/gemel.fish
function __gemel_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines (eval $words[1] completion fish -- (string escape -- $words[2..-1] "$current") 2>/dev/null </dev/null)
    if test (count $lines) -gt 0
        printf '%s\n' $lines
    else
        __fish_complete_path "$current"
    end
end
complete -c gemel -f -a '(__gemel_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
