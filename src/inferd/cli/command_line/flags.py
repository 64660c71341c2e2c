"""Flags as people and Triton's scripts write them, read into option values.

Both --flag value and --flag=value work, and so does any unambiguous beginning of a flag, as in
Triton's parser. Underscores may take the place of hyphens, as in KServe's servers. A boolean may
stand alone: only a word that means true or false is taken for its value, so that
`--exit-on-error models/` leaves the path alone. This is why no parser library is used: they either
demand the value or consume the path.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inferd.config.options.option import Option, options_of
from inferd.config.server import ServerConfig
from inferd.config.sources import GivenFlag, nearest
from inferd.errors import InvalidConfig


@dataclass(slots=True)
class CommandLine:
    """What followed the verb. `wants_help` is set by --help or -h."""

    flags: list[GivenFlag] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    wants_help: bool = False


@dataclass(frozen=True, slots=True)
class _Spelling:
    option: Option
    template: str = ""  # of a deprecated spelling
    is_switch: bool = False  # a deprecated spelling whose `template` is what true stands for


_HELP = "--help"
_MAX_SHOWN = 12

_SWITCH = Option(
    name="", kind=bool, default=False, help="", group="", word="true|false", shown="", bare="true"
)


def read_command_line(arguments: Sequence[str], kind: type = ServerConfig) -> CommandLine:
    """Read flags and paths; a path counts as one more --model-repository, in its place.

    Raises InvalidConfig for an unknown flag or a missing value.
    """
    spellings = _spellings(options_of(kind))
    line = CommandLine()
    rest = deque(arguments)
    while rest:
        argument = rest.popleft()
        # After it all are paths, also those that begin with a hyphen.
        if argument == "--":
            line.flags += [_path(each) for each in rest]
            break
        if argument == "-h":
            line.wants_help = True
        # A hyphen alone is a path by convention.
        elif argument.startswith("-") and argument != "-":
            begun, equals, text = argument.partition("=")
            spelled = _whole(begun, spellings)
            if spelled == _HELP:
                line.wants_help = True
                continue
            found = spellings[spelled]
            if not equals:
                text = _value(spelled, _SWITCH if found.is_switch else found.option, rest)
            _add(line, spelled, found, text)
        else:
            line.flags.append(_path(argument))
    return line


def _value(spelled: str, option: Option, rest: deque[str]) -> str:
    if option.bare:
        # A word that could be its value is taken; a path behind a switch is not.
        return rest.popleft() if rest and option.is_value(rest[0]) else option.bare
    # What begins with two hyphens is the next flag; one hyphen may begin a negative number.
    if not rest or rest[0].startswith("--"):
        raise InvalidConfig(f"{spelled} needs a value: {spelled} {option.word}")
    return rest.popleft()


def _add(line: CommandLine, spelled: str, found: _Spelling, text: str) -> None:
    """Add the option that a flag stands for; nothing for a deprecated switch that is false."""
    if found.is_switch and not _SWITCH.read_text(text, spelled):
        line.warnings.append(f"{spelled} is deprecated, leave it out where it is false")
        return
    if found.template:
        text = found.template.format(text)
        line.warnings.append(f"{spelled} is deprecated, use {found.option.flag}={text}")
    line.flags.append(GivenFlag(found.option.name, text, spelled))


def _path(text: str) -> GivenFlag:
    return GivenFlag("model_repository", text, "PATH")


def _whole(begun: str, spellings: Mapping[str, _Spelling]) -> str:
    """Return the flag that `begun` is, or is the beginning of. Raises InvalidConfig.

    Of several, one that all the others begin with is meant: --model-repo is --model-repository, not
    --model-repository-links.
    """
    # KServe's own servers take underscores.
    begun = begun.replace("_", "-")
    if begun in spellings or begun == _HELP:
        return begun
    known = [*spellings, _HELP]
    # The shortest first: if one is the beginning of all others, it is that.
    fitting = sorted((one for one in known if one.startswith(begun)), key=len)
    # "--" with nothing behind it is the beginning of everything.
    if not fitting or not begun[2:]:
        raise InvalidConfig(f"there is no option {begun}{nearest(begun, known)}")
    shortest = fitting[0]
    if not all(one.startswith(shortest) for one in fitting):
        shown = ", ".join(sorted(fitting)[:_MAX_SHOWN])
        shown += f" and {len(fitting) - _MAX_SHOWN} more" if len(fitting) > _MAX_SHOWN else ""
        raise InvalidConfig(f"{begun} may be {shown}: write more of it")
    return shortest


def _spellings(options: Mapping[str, Option]) -> dict[str, _Spelling]:
    found = {}
    for option in options.values():
        for name in (option.key, *option.aliases):
            found[f"--{name}"] = _Spelling(option)
        for name, template in option.old_flags.items():
            found[f"--{name}"] = _Spelling(option, template)
        for name, value in option.old_switches.items():
            found[f"--{name}"] = _Spelling(option, value, is_switch=True)
    return found
