_cfljax() {
  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" key="" words="" values=""
  if [ "$current" = "=" ]; then  # bash takes key=value for three words
    key="$before=" current="" before="${COMP_WORDS[COMP_CWORD-2]}"
  elif [ "$before" = "=" ]; then
    key="${COMP_WORDS[COMP_CWORD-2]}=" before="${COMP_WORDS[COMP_CWORD-3]}"
  fi
  if [ "$before" = "--set" ]; then
    COMPREPLY=($(cfljax completion words "$key$current"))
    COMPREPLY=("${COMPREPLY[@]#"$key"}")
    if [ -z "$key" ]; then compopt -o nospace 2>/dev/null; fi
    return
  fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="@COMMANDS"
  else
    case "${COMP_WORDS[1]} $before" in
@VALUES
    esac
    case "${COMP_WORDS[1]}" in
@WORDS
    esac
  fi
  if [ -n "$values" ]; then words="$values"; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [ "$COMP_CWORD" -gt 1 ] && [ -z "$values" ]; then COMPREPLY+=($(compgen -f -- "$current")); fi
}
complete -o filenames -F _cfljax cfljax
