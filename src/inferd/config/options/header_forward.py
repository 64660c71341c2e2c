"""Which request headers become parameters: the regular expressions of the forwarding options."""

import re
import warnings

from inferd.errors import InvalidConfig

_CASE_MATTERS = "(?-i)"


def read_header_pattern(where: str, text: str) -> re.Pattern[str]:
    """Return `text` compiled; case matters only if it begins with (?-i).

    Raises InvalidConfig, beginning with `where`, if it is not a regular expression.
    """
    flags = re.IGNORECASE
    if text.startswith(_CASE_MATTERS):
        text, flags = text.removeprefix(_CASE_MATTERS), re.NOFLAG
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            return re.compile(text, flags)
    except FutureWarning as error:  # Triton's RE2 knows [[:alpha:]]; here it would match nothing
        msg = f"{where}: '{text}' has a set within a set, such as [[:alpha:]]; write [a-z]"
        raise InvalidConfig(msg) from error
    except (re.error, RecursionError, OverflowError) as error:
        msg = f"{where}: '{text}' is not a regular expression: {error}"
        raise InvalidConfig(msg) from error
