"""Which request headers become parameters: the regular expressions of the forwarding options."""

import re
import warnings

from inferd.errors import InvalidConfig

# RE2, in which Triton's users write patterns, takes this anywhere; Python's re only knows it with a
# group, so it is read here.
_CASE_MATTERS = "(?-i)"


def read_header_pattern(where: str, text: str) -> re.Pattern[str]:
    """Return `text` compiled; case matters only if it begins with (?-i).

    Raises InvalidConfig, beginning with `where`, if it is not a regular expression.
    """
    # Names of headers have no case (RFC 9110, section 5.1); HTTP/2 and gRPC send them in lower
    # case.
    flags = re.IGNORECASE
    if text.startswith(_CASE_MATTERS):
        text, flags = text.removeprefix(_CASE_MATTERS), re.NOFLAG
    try:
        with warnings.catch_warnings():
            # re only warns of "[[", so the warning is made an error.
            warnings.simplefilter("error", FutureWarning)
            return re.compile(text, flags)
    except FutureWarning as error:  # Triton's RE2 knows [[:alpha:]]; here it would match nothing
        msg = f"{where}: '{text}' has a set within a set, such as [[:alpha:]]; write [a-z]"
        raise InvalidConfig(msg) from error
    except (re.error, RecursionError, OverflowError) as error:
        msg = f"{where}: '{text}' is not a regular expression: {error}"
        raise InvalidConfig(msg) from error
