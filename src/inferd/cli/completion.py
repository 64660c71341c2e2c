"""inferd completion: the script by which a shell completes verbs and options.

What is completed is what --help shows: a verb's options are read from its help, so that no list of
them has to be kept beside it.
"""

import io
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout

from inferd.cli.verbs import VERBS, run_verb

HELP = """\
inferd completion SHELL

Prints the script by which a shell completes what follows inferd: verbs, options, files. SHELL is
bash, zsh or fish. To have it in each shell that you open from now on:

  bash  inferd completion bash > ~/.local/share/bash-completion/completions/inferd
  zsh   inferd completion zsh > ~/.zfunc/_inferd, with "fpath=(~/.zfunc $fpath)" in ~/.zshrc before
        "autoload -U compinit && compinit"
  fish  inferd completion fish > ~/.config/fish/completions/inferd.fish

or in this one: source <(inferd completion bash). Write it anew after an update.
"""

# What may stand before and behind the long name, as argparse and our own texts write it.
_SHORT = r"(?:-\w(?: [A-Z]\S*)?, )?"
_VALUE = r"(?:[ =](?:[^\s\d-]|\d+\|)\S*)?"  # not the 8080 of an example
_LATER = r"(?:,? -\w(?: [A-Z]\S*)?)?"  # a short name behind the long one; Python 3.13 has one value
_OPTION = re.compile(rf"^ *{_SHORT}--([a-z][a-z0-9-]*){_VALUE}{_LATER}(?: +([^\s\d-].*)|)$")
_ABOUT = re.compile(r"^  inferd ([a-z|]+) .*? {2,}(\S.*)$")


Options = Mapping[str, Mapping[str, str]]
"""The options of each verb by name, with the beginning of what its help says of them."""


def run(arguments: Sequence[str]) -> int:
    """Print the script of a shell. Return 0, or 2 for wrong arguments."""
    if len(arguments) != 1 or arguments[0] not in _SHELLS:
        sys.stderr.write("inferd completion: name a shell: bash, zsh or fish\n")
        return 2
    options = {verb: options_of_help(help_of(verb)) for verb in abouts()}
    sys.stdout.write(_SHELLS[arguments[0]](options, abouts()))
    return 0


def abouts() -> dict[str, str]:
    """Return what `inferd --help` says of each verb."""
    from inferd.cli.help import MAIN

    found = dict.fromkeys(VERBS, "")
    for line in MAIN.splitlines():
        if matched := _ABOUT.match(line):
            for verb in matched[1].split("|"):
                found[verb] = found.get(verb) or matched[2]
    return found


def help_of(verb: str) -> str:
    """Return what `inferd VERB --help` prints, each option in one line."""
    said = io.StringIO()
    # argparse prints its help; nothing else gives it as text.
    with redirect_stdout(said), redirect_stderr(said):
        run_verb(verb, ["--help"])
    return said.getvalue()


def options_of_help(text: str) -> dict[str, str]:
    """Return the options that a help explains, in its order, and how it does."""
    found: dict[str, str] = {}
    lines = text.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if matched := _OPTION.match(line):
            about = matched[2] or following.strip()
            # The first time an option is explained counts; later ones are examples.
            found.setdefault(matched[1], about.rstrip(".,;:"))
    # An option without words is one that a sentence mentions.
    return {name: about for name, about in found.items() if about}


def _bash(options: Options, _abouts: Mapping[str, str]) -> str:
    cases = "\n".join(
        f"        {verb}) words='{' '.join(f'--{name}' for name in known)}' ;;"
        for verb, known in options.items()
    )
    return f"""\
# Completes inferd in bash. Written by: inferd completion bash
_inferd() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        words='{" ".join(options)} --help --version'
    elif [[ $word == -* ]]; then
        case ${{COMP_WORDS[1]}} in
{cases}
        esac
    fi
    [ -z "$words" ] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}}
complete -o default -F _inferd inferd
"""


def _zsh(options: Options, abouts: Mapping[str, str]) -> str:
    verbs = " ".join(_quoted(f"{verb}:{_plain(abouts[verb])}") for verb in options)
    cases = ""
    for verb, known in options.items():
        words = " ".join(_quoted(f"--{name}:{_plain(about)}") for name, about in known.items())
        cases += f"    {verb}) known=({words}) ;;\n"
    return f"""\
#compdef inferd
# Completes inferd in zsh. Written by: inferd completion zsh
_inferd() {{
  local -a known
  if (( CURRENT == 2 )); then
    known=({verbs})
    _describe -t commands command known
    return
  fi
  if [[ $words[CURRENT] != -* ]]; then
    _files
    return
  fi
  case $words[2] in
{cases}  esac
  _describe -t options option known
}}
if [ "$funcstack[1]" = _inferd ]; then _inferd "$@"; else compdef _inferd inferd; fi
"""


def _fish(options: Options, abouts: Mapping[str, str]) -> str:
    lines = ["# Completes inferd in fish. Written by: inferd completion fish"]
    for verb, known in options.items():
        about = _quoted(_plain(abouts[verb]))
        lines.append(f"complete -c inferd -f -n __fish_use_subcommand -a {verb} -d {about}")
        seen = _quoted(f"__fish_seen_subcommand_from {verb}")
        for name, said in known.items():
            lines.append(f"complete -c inferd -n {seen} -l {name} -d {_quoted(_plain(said))}")
    return "\n".join(lines) + "\n"


_SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def _plain(about: str) -> str:
    """Return a text without what shells read as something else."""
    return re.sub(r"[\\:'\"`$]", "", about)[:80]


def _quoted(text: str) -> str:
    return f"'{text}'"
