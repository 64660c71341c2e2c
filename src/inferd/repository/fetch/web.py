"""Web: requests over HTTP with timeouts, bounded answers, and credentials for one host alone."""

import base64
import http.client
import logging
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import IO, Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from inferd.errors import NotLoadable
from inferd.repository.fetch.url import shown

T = TypeVar("T")

log = logging.getLogger("inferd.repository")

# Of a socket: it begins anew with each byte, which is why Pace counts, too.
TIMEOUT_S = 30.0
"""For a connection, and for the next bytes."""

WAITS_S = (0.0, 1.0, 3.0, 8.0)
"""Before each further try."""

MAX_DOCUMENT_BYTES = 32 << 20
"""Of an answer that is a document: a listing, a manifest."""

SLOW_S, SLOW_BYTES = 60.0, 60_000
"""Who sends less in that time is given up, as it could go on for ever."""

_MOST_WAIT_S = 30.0
_PIECE_BYTES = 1 << 16
_MOST_DIGITS = 18
# 408, 425 and 429 ask for another try by their definition (RFC 9110, 8470 and 6585); of the 5xx,
# those that a proxy in front of a hub answers while something behind it restarts.
_LAST_FOR_NOW = (408, 425, 429, 500, 502, 503, 504)
_LOGIN_WANTED = 401

Headers = Mapping[str, str]


class NotAnswered(NotLoadable):
    """The other side does not answer, or not now: what was fetched before may serve."""


class TooSlow(NotAnswered):
    """The other side sends so little that a further try would be no better."""


class NotGiven(NotLoadable):
    """The other side answers that it will not."""

    status = 0
    reason = ""  # a word of the hub's, for those who know it


class Login:
    """Credentials: a `value` of Authorization, for requests to the host of `url` alone."""

    def __init__(self, url: str = "", value: str = "") -> None:
        self._origin = origin_of(url)
        self._value = value

    def header(self, url: str) -> str:
        """Return the value of Authorization for a request to `url`, "" for none."""
        return self._value if origin_of(url) == self._origin else ""

    def answer(self, challenge: str) -> bool:
        """Log in as WWW-Authenticate says; return whether another try is worthwhile."""
        return False


class Web:
    """Sends GET requests. `hint` is added to the text of a refusal for want of credentials."""

    def __init__(
        self,
        login: Login | None = None,
        hint: str = "",
        wait: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._login = login or Login()
        self._hint = hint
        self.wait = wait
        self.clock = clock

    def document(self, url: str, headers: Headers | None = None) -> bytes:
        """Return an answer to a GET. Raises NotAnswered, NotGiven, NotLoadable if it is too large.

        What fails for now is tried again.
        """
        waits = iter(WAITS_S)
        while True:
            try:
                with self.open(url, headers or {}) as response:
                    content = self._read(response, url)
                announced = announced_bytes(response)
                # read1 takes a connection that ends early for the end of
                # the answer, without an error.
                if announced is None or len(content) >= min(announced, MAX_DOCUMENT_BYTES):
                    break
                failure = NotAnswered(f"'{shown(url)}' breaks off")
            except TooSlow:
                raise
            except (OSError, http.client.HTTPException) as error:
                failure = NotAnswered(f"'{shown(url)}' breaks off: {reason_of(error)}")
            except NotAnswered as error:
                failure = error
            if (wait_s := next(waits, None)) is None:
                raise failure
            self.wait(wait_s)
        if len(content) > MAX_DOCUMENT_BYTES:
            raise NotLoadable(f"'{shown(url)}' answers with more than {MAX_DOCUMENT_BYTES} bytes")
        return content

    def _read(self, response: Any, url: str) -> bytes:
        """Return the content of a document, and no more than one byte beyond what it may have."""
        pace, pieces, size = Pace(self.clock, url), [], 0
        # One byte too many is enough to know; the rest is never read.
        while size <= MAX_DOCUMENT_BYTES and (piece := response.read1(_PIECE_BYTES)):
            pieces.append(piece[: MAX_DOCUMENT_BYTES + 1 - size])
            size += len(pieces[-1])
            pace.add(len(piece))
        return b"".join(pieces)

    def open(self, url: str, headers: Headers) -> Any:
        """Return the response to a GET, whose body has not been read.

        Raises NotAnswered and NotGiven. Redirects are followed, without credentials for others.
        """
        try:
            return self._sent(url, headers)
        except urllib.error.HTTPError as error:
            with error:
                challenge = error.headers.get("WWW-Authenticate", "")
                # Once: a registry that wants another login after the login
                # will not be content with a third.
                if error.code != _LOGIN_WANTED or not self._login.answer(challenge):
                    raise self._failure(url, error) from None
        try:
            return self._sent(url, headers)
        except urllib.error.HTTPError as error:
            with error:
                raise self._failure(url, error) from None

    def _sent(self, url: str, headers: Headers) -> Any:
        # An opener of its own, as install_opener's is for the whole process, and
        # a model.py may have put another there.
        opener = urllib.request.build_opener(_Redirects(self._login))
        try:
            request = urllib.request.Request(url, headers={"User-Agent": "inferd", **headers})
            if value := self._login.header(url):
                # urllib sends plain headers on to wherever a redirect leads, another host
                # included. Hubs redirect to storage whose URLs are signed, and which
                # refuses a second kind of credentials.
                request.add_unredirected_header("Authorization", value)
            return opener.open(request, timeout=TIMEOUT_S)
        # An OSError, too, but it is an answer, and its status says what to do.
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = reason_of(error)
            log.debug("%s: %s", shown(url), reason)
            raise NotAnswered(f"'{shown(url)}' does not answer: {reason}") from None

    def _failure(self, url: str, error: urllib.error.HTTPError) -> NotLoadable:
        """Return the failure for an answer, in words of ours: its own may repeat what was sent."""
        place = f"'{shown(url)}'"
        if error.code in _LAST_FOR_NOW:
            text = error.headers.get("Retry-After", "")
            if text.isdecimal():
                # No longer than that, as the start of the server waits; and six digits, as a header
                # may have a thousand. Dates, the other form of Retry-After, are not worth a parser.
                self.wait(min(float(text[:6]), _MOST_WAIT_S))
            return NotAnswered(f"{place} answers with status {error.code}; try again later")
        words = {
            401: "wants a login" + self._hint,
            403: "may not be read with these credentials" + self._hint,
            404: "is not there",
        }
        refused = NotGiven(f"{place} {words.get(error.code, f'answers with status {error.code}')}")
        refused.status = error.code
        # Where the Hub says which of its 401, 403 and 404 is meant: it
        # answers 401 for what is not there, too.
        refused.reason = error.headers.get("X-Error-Code", "")
        return refused


class Pace:
    """Counts what arrives of the response to `url`, and gives up one that is too slow."""

    def __init__(self, clock: Callable[[], float], url: str) -> None:
        self._clock = clock
        self._url = url
        self._since_s = clock()
        self._bytes = 0

    def add(self, count: int) -> None:
        """Count bytes. Raises TooSlow."""
        self._bytes += count
        now_s = self._clock()
        if now_s - self._since_s < SLOW_S:
            return
        if self._bytes < SLOW_BYTES:
            msg = f"'{shown(self._url)}' sends less than {SLOW_BYTES} bytes in {SLOW_S:g} s"
            raise TooSlow(msg)
        self._since_s, self._bytes = now_s, 0


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects; never from HTTPS to HTTP, and with credentials only to the same host."""

    max_redirections = 5

    def __init__(self, login: Login) -> None:
        self._login = login

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Return the next request."""
        scheme = urlsplit(newurl).scheme
        # urllib's own check also allows ftp.
        if scheme not in ("http", "https") or (req.type == "https" and scheme == "http"):
            text = f"'{shown(req.full_url)}' leads to '{shown(newurl)}', which is no HTTPS"
            raise NotGiven(text)
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        # Scheme, host and port have to be the same, as the unredirected header was dropped: another
        # port may be another's server.
        if following is not None and origin_of(newurl) == origin_of(req.full_url):
            value = self._login.header(newurl)
            if value:
                following.add_unredirected_header("Authorization", value)
        # urllib reads the body of a redirect as a whole, however large it is, before it closes the
        # response and follows. Closed here, it would have nothing to say that a circle is one.
        fp.read = _nothing  # type: ignore[method-assign]
        return following


def _nothing(_size: int = -1) -> bytes:
    return b""


def decoded(content: bytes, kind: type[T], complaint: str, *, strict: bool = True) -> T:
    """Return the JSON of an answer as `kind`. Raises NotLoadable, which says `complaint`."""
    try:
        return msgspec.json.decode(content, type=kind, strict=strict)
    except (msgspec.MsgspecError, RecursionError):
        raise NotLoadable(complaint) from None


def announced_bytes(response: Any) -> int | None:
    """Return how many bytes a response says that it has, None if it does not say so in earnest."""
    text = response.headers.get("Content-Length", "")
    # No more digits than any file has: Python refuses to read thousands of them.
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def basic(user: str, password: str) -> str:
    """Return the value of Authorization for a user and a password (RFC 7617)."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def without_login(url: str) -> tuple[str, str]:
    """Return `url` without user and password, and these as a value of Authorization, or ""."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url, ""
    # The last "@": a password may contain one.
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, ""
    name, _, password = user.partition(":")
    return parts._replace(netloc=host).geturl(), basic(unquote(name), unquote(password))


def origin_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL; for what is none, something that no URL has."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "", url, 0
    usual = 443 if parts.scheme == "https" else 80
    return parts.scheme, parts.hostname or "", port or usual


def reason_of(error: BaseException) -> str:
    """Return why a connection failed, in a few words."""
    reason = getattr(error, "reason", error)
    # An OSError as well, whose strerror says less than this.
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {reason.verify_message}"
    if isinstance(reason, TimeoutError):
        return f"nothing came within {TIMEOUT_S:g} s"
    if isinstance(reason, OSError):
        return reason.strerror or type(reason).__name__
    # Never the texts of others: those of http.client and urllib repeat what they were given, a URL
    # with a password or a header with a token; and what was answered, which may repeat these.
    if isinstance(reason, ValueError | http.client.InvalidURL):
        return "its URL, that of a proxy, or the credentials are no text that can be sent"
    if isinstance(reason, http.client.HTTPException):
        return f"its answer is not HTTP as expected ({type(reason).__name__})"
    return str(reason)[:200] or type(error).__name__
