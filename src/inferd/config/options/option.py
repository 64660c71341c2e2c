"""Option: how one server setting is declared, and how its value is read from text or TOML."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any

from inferd.errors import InvalidConfig

# Triton's words for booleans in any case; MappingProxyType, since every module reads this one.
BOOLEANS = MappingProxyType(
    {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
)
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,100}")  # int() has its own error for thousands of digits

_TYPE_NAMES = MappingProxyType(
    {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        tuple: "a list of texts",
    }
)

_WORDS = MappingProxyType(
    {
        "address": "ADDRESS",
        "bytes": "BYTES",
        "cert": "FILE",
        "config": "SETTING",
        "directory": "PATH",
        "file": "FILE",
        "key": "FILE",
        "model": "NAME",
        "name": "NAME",
        "pattern": "REGEX",
    }
)
"""What help prints for the value of an option, by the last word of its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One server setting. `kind` is bool, int, float, str or tuple (of str: may be repeated).

    `shown` is what help prints as the default when the value alone would not tell. `word` is what
    help prints for the value; without one, the name and type say it. `bare` is the text a flag
    without a value stands for, "" if it needs one. `old_flags` are deprecated spellings; the
    template beside each turns its value into one of this option; `old_switches` are such flags that
    are true or false, each with the value that true is. A value below the `minimum` of an option
    that `is_raised` means the minimum. `acted_on` is false for what is accepted, for the sake of
    existing command lines, and changes nothing. `also` is a variable with which a cloud platform,
    or another server's set-up, says the same.
    """

    name: str
    kind: type
    default: Any
    help: str
    group: str
    word: str
    shown: str
    bare: str
    choices: tuple[object, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    is_raised: bool = False
    aliases: tuple[str, ...] = ()
    old_flags: Mapping[str, str] = field(default_factory=dict)
    old_switches: Mapping[str, str] = field(default_factory=dict)
    acted_on: bool = True
    also: str = ""

    @property
    def key(self) -> str:
        """The name in a TOML file: http-port."""
        return self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        """The flag: --http-port."""
        return f"--{self.key}"

    @property
    def variable(self) -> str:
        """The environment variable: INFERD_HTTP_PORT."""
        return f"INFERD_{self.name.upper()}"

    def read_text(self, text: str, where: str) -> Any:
        """Return the value that `text` stands for; for a repeatable option, one of its values.

        Raises InvalidConfig, which begins with `where`.
        """
        if self.kind is bool:
            value: Any = BOOLEANS.get(text.lower())
        elif self.kind is int:
            value = self._whole_number(text)
        elif self.kind is float:
            value = finite_number(text)
        else:
            value = self._choice(text)
        if value is None:
            words = " (or on, off, 1, 0)" if self.kind is bool else ""
            raise self._wrong(text, where, words)
        return self._checked(value, where)

    def read_toml(self, value: object, where: str) -> Any:
        """Return `value`, from tomllib, checked and converted. Raises as read_text does."""
        if self.kind is tuple:
            texts = [value] if isinstance(value, str) else value
            if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                raise self._wrong(value, where)
            return tuple(texts)
        # TOML has its own booleans, and Python's are ints.
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.kind is float and number:
            if not math.isfinite(finite := float(str(value))):
                raise self._wrong(value, where)
            return self._checked(finite, where)
        # `log-verbose = true` says what the bare flag says.
        if self.kind is int and self.bare and isinstance(value, bool):
            return int(value)
        # Not isinstance: True would pass for an int.
        if type(value) is not self.kind:
            raise self._wrong(value, where)
        return self._checked(self._choice(value) if isinstance(value, str) else value, where)

    # Triton's flags take "--log-info false" in two words, but "--log-info --http-port" must not eat
    # the second flag.
    def is_value(self, text: str) -> bool:
        """Tell whether `text` after the bare flag is its value and not the next argument."""
        return text.lower() in BOOLEANS or (
            self.kind is int and bool(_WHOLE_NUMBER.fullmatch(text))
        )

    def _whole_number(self, text: str) -> int | None:
        if self.bare and text.lower() in BOOLEANS:
            return int(BOOLEANS[text.lower()])
        return int(text) if _WHOLE_NUMBER.fullmatch(text) else None

    def _choice(self, text: str) -> str:
        """Return the choice that equals `text` in any case, as in Triton, or else `text`."""
        # In lower case in neither table nor text: some choices are written in capitals.
        words = (one for one in self.choices if isinstance(one, str))
        return next((one for one in words if one.lower() == text.lower()), text)

    def _checked(self, value: Any, where: str) -> Any:
        if self.choices and value not in self.choices:
            msg = f"{where}: {value!r} is none of {', '.join(map(str, self.choices))}"
            raise InvalidConfig(msg)
        if self.minimum is not None and value < self.minimum:
            if self.is_raised:
                # Keeps the type: a float's minimum may be declared as an int.
                return self.kind(self.minimum)
            raise InvalidConfig(f"{where}: {value} is too small, the least is {self.minimum:g}")
        if self.maximum is not None and value > self.maximum:
            raise InvalidConfig(f"{where}: {value} is too large, the most is {self.maximum:.15g}")
        return value

    def _wrong(self, value: object, where: str, words: str = "") -> InvalidConfig:
        return InvalidConfig(f"{where}: {value!r} is not {_TYPE_NAMES[self.kind]}{words}")


def option(default: object, help: str, **more: object) -> Any:
    """Return the dataclass field of one option; `more` are other fields of Option.

    `after` names the option that it is listed after, in that one's group; otherwise options are in
    the order of their fields.
    """
    return field(default=default, metadata={"help": help, **more})


# Read at every start for flags, variables, file and help; the classes never change.
@cache
def options_of(config_class: type) -> Mapping[str, Option]:
    """Return the options declared by the fields of `config_class`, by name, in their order."""
    found: dict[str, Option] = {}
    for each in _in_order(fields(config_class)):
        more = dict(each.metadata)
        if after := more.pop("after", ""):
            more["group"] = found[after].group
        kind = _kind(each.type)
        more.setdefault("word", _word(each.name, kind, more.get("choices", ())))
        more.setdefault("shown", _shown(each.default))
        more.setdefault("bare", "true" if kind is bool else "")
        found[each.name] = Option(name=each.name, kind=kind, default=each.default, **more)
    return MappingProxyType(found)


def _in_order(declared: Iterable[Field[Any]]) -> list[Field[Any]]:
    """Return the fields with each one that says so behind the one that it comes after."""
    order: list[Field[Any]] = []
    for each in declared:
        names = [one.name for one in order]
        after = each.metadata.get("after")
        # Options without effect are declared together, but help lists each beside what it
        # resembles.
        order.insert(names.index(after) + 1 if after else len(order), each)
    return order


def groups_of(config_class: type) -> Mapping[str, list[Option]]:
    """Return the options of `config_class` by their groups, in the order of the declaration."""
    found: dict[str, list[Option]] = {}
    for each in options_of(config_class).values():
        found.setdefault(each.group, []).append(each)
    return found


def _kind(annotation: Any) -> type:
    if isinstance(annotation, UnionType):
        # `int | None` is an option of ints that need not be set.
        [annotation] = [part for part in annotation.__args__ if part is not type(None)]
    kind: type = getattr(annotation, "__origin__", annotation)
    return kind


def _word(name: str, kind: type, choices: tuple[object, ...]) -> str:
    if choices:
        return "|".join(map(str, choices))
    if kind is bool:
        return "true|false"
    usual = "N" if kind in (int, float) else "TEXT"
    return _WORDS.get(name.rpartition("_")[2], usual)


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return f"{default:g}"
    return "" if default in (None, ()) else str(default)


def finite_number(text: str) -> float | None:
    """Return the number that `text` spells, None if it is none, or not finite."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


LONGEST = 2**31 - 1
"""The limit of system timers and of Triton's options."""

# What options of one kind share: their limits, and the word that help prints for the value.
PORT: dict[str, Any] = {"minimum": 0, "maximum": 65535, "word": "PORT"}
SECONDS: dict[str, Any] = {"minimum": 0, "maximum": LONGEST, "word": "SECONDS"}
TIMEOUT: dict[str, Any] = {"minimum": 0.1, "maximum": LONGEST, "word": "SECONDS"}
MILLISECONDS: dict[str, Any] = {"minimum": 0, "maximum": LONGEST, "word": "MILLISECONDS"}
COUNT: dict[str, Any] = {"minimum": 1}
PINGS: dict[str, Any] = {"minimum": 0, "maximum": LONGEST, "is_raised": True}
HEAD: dict[str, Any] = {"minimum": 1024, "maximum": LONGEST}
"""The least that clients send is some hundred bytes; HTTP/2 tells clients the limit in 32 bits."""
