"""Hosts: the names by which browsers may reach the dashboard, and pages of which origin may act.

A page anywhere can have its own name resolve to this server's address (DNS rebinding); then the
browser takes the two for one site, and only the name in Host tells them apart. An address in Host
is nobody's name.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Callable, Iterable

from inferd.aio.thread import in_daemon_thread
from inferd.errors import Forbidden
from inferd.http.message import HttpRequest

LOOKUP_S = 2.0
"""How long a request waits for the system to tell the machine's full name."""

# URLs allow more in a host (RFC 3986, section 3.2.2), but no host that serves this page has it.
_AUTHORITY = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(:[0-9]{0,5})?")
_ORIGIN = re.compile(rb"https?://([^/?#]+)", re.IGNORECASE)
_SHOWN = 200
# "none" is a URL that was typed, or a bookmark.
_OWN_SITES = (b"same-origin", b"none")


class Hosts:
    """Knows which names are this server's: `names`, of which *.NAME is any that ends in .NAME.

    localhost, the names below it, and IP addresses always are, as is `machine`, and the full name
    that `lookup` returns for it, which is asked for when it is first of use. `certified` are those
    of the server's certificate, and may be replaced.
    """

    def __init__(
        self,
        names: Iterable[str] = (),
        machine: str | None = None,
        lookup: Callable[[], str] = socket.getfqdn,
    ) -> None:
        self.certified: frozenset[str] = frozenset()
        self._given = frozenset(names)
        own = (socket.gethostname() if machine is None else machine).lower()
        # With its domain and without it.
        self._own = {own, own.partition(".")[0]} - {""}
        self._lookup = lookup
        self._looking: asyncio.Task[None] | None = None

    async def check(self, request: HttpRequest) -> None:
        """Raise Forbidden unless the request says that it is for this server.

        A target in absolute form says it, too, and before Host (RFC 9112, section 3.2.2).
        """
        host = request.headers.get(b"host", b"")
        if not request.target.startswith(b"/"):
            host = request.target.partition(b"://")[2].partition(b"/")[0]
        name = _name_in(host)
        if name is None:
            raise Forbidden(f"the request names no host: {_shown(host)}")
        if not (self._is_known(name) or await self._is_full_name(name)):
            msg = f"this server does not know the name {_shown(host)}; --ui-hosts can tell it"
            raise Forbidden(msg)

    def check_origin(self, request: HttpRequest) -> None:
        """Raise Forbidden if a page that is not this server's own made a browser send the request.

        What is no browser says nothing of pages. A name of --ui-hosts may be that of a proxy, which
        has told this server another host.
        """
        headers = request.headers
        site = headers.get(b"sec-fetch-site")
        # Sent by browsers alone, and no page can set it (Fetch Metadata).
        if site is not None and site not in _OWN_SITES:
            raise Forbidden("pages of other sites may not ask this")
        origin = headers.get(b"origin")
        if origin is None:
            # curl and scripts send none: no page has made them send anything.
            return
        found = _ORIGIN.fullmatch(origin)
        if found is not None:
            if found[1].lower() == headers.get(b"host", b"").lower():
                return
            name = _name_in(found[1])
            if name is not None and _is_among(self._given, name):
                return
        raise Forbidden(f"pages of the origin {_shown(origin)} may not ask this")

    def _is_known(self, name: str) -> bool:
        if name == "localhost" or name.endswith(".localhost"):  # RFC 6761, section 6.3
            return True
        if _is_address(name) or name in self._own:
            return True
        return _is_among(self._given, name) or _is_among(self.certified, name)

    async def _is_full_name(self, name: str) -> bool:
        """Tell whether `name` is the machine's full name, which may take some time."""
        # Once for the process: names of machines do not change, and DNS may take seconds.
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        # Not `wait_for`, which would cancel the look that others wait for, too.
        await asyncio.wait((self._looking,), timeout=LOOKUP_S)
        return name in self._own

    async def _look(self) -> None:
        try:
            self._own.add((await in_daemon_thread(self._lookup, name="inferd-ui")).lower())
        except OSError:  # then it has no other name
            return


def _name_in(authority: bytes) -> str | None:
    """Return the host in HOST:PORT, in lower case, None if it is none."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    # A name may end with the root's dot.
    return found[1].decode().lower().strip("[]").removesuffix(".") or None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_among(names: frozenset[str], name: str) -> bool:
    """Tell whether `names` have `name`, or a *.NAME that it ends in."""
    if name in names:
        return True
    return any(f"*.{'.'.join(name.split('.')[n:])}" in names for n in range(1, name.count(".") + 1))


def _shown(text: bytes) -> str:
    return f"'{text[:_SHOWN].decode('latin-1')}'"
