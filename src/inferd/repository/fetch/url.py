"""ModelUrl: where a model is that has to be fetched: a hub, a registry, a site."""

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from inferd.config.names import is_inside
from inferd.errors import InvalidConfig

_SCHEME = re.compile(r"(hf|oci|models|https?):/.*", re.DOTALL)
# ASCII: \w would take letters that the Hub does not have in names, and that look like others.
_HUB = re.compile(
    r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/@]+))?(?:/(?P<path>.+))?", re.ASCII
)
# The grammar of references in distribution/reference, with the host
# required: no registry is the default here.
_IMAGE = re.compile(
    r"(?P<host>[\w.-]+(?::\d+)?|\[[0-9a-fA-F:]+\](?::\d+)?)/"
    r"(?P<repo>[a-z0-9][a-z0-9._/-]*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
_REGISTERED = re.compile(r"/+(?P<name>[^/@]+)(?:/(?P<version>[^/@]+)|@(?P<alias>[^/@]+))")
_ONE_SLASH = re.compile(r"^(https?):/")
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_SHA256 = re.compile(r"sha256=([0-9a-fA-F]{64})")


class ModelUrl(NamedTuple):
    """A URL of a model. `text` is as it was given, `shown` is without what may be secret.

    `place` says where: org/name of a hub, host/repository of a registry, the name of a registered
    model, or a URL without a fragment. `revision` is what may move there (a branch, a tag, a
    version), or "". `digest` is the SHA-256 that is wanted, in hex, "" if any is good. `path` leads
    to a file or folder there.
    """

    text: str
    shown: str
    scheme: str
    place: str
    revision: str = ""
    digest: str = ""
    path: str = ""

    @property
    def is_fixed(self) -> bool:
        """Whether it never leads to anything else: by its digest, or its commit of the Hub."""
        is_commit = self.scheme == "hf" and _COMMIT.fullmatch(self.revision) is not None
        return bool(self.digest) or is_commit


def model_url(text: str) -> ModelUrl | None:
    """Return the URL in `text`, None if it is something else.

    hf://ORG/NAME[@REVISION][/PATH], oci://HOST/REPOSITORY[:TAG][@DIGEST], models:/NAME/VERSION,
    models:/NAME@ALIAS, https://HOST/PATH#sha256=HEX. Raises InvalidConfig when a part is missing.
    """
    found = _SCHEME.match(text)
    return _READERS[found[1]](text) if found else None


def shown(text: str) -> str:
    """Return a path or URL without user, password, query and fragment, which may be secret."""
    if "://" not in text:
        # With a slash too few; a path may have all of the characters below.
        text = _ONE_SLASH.sub(r"\1://", text)
    if "://" not in text:
        return text
    scheme, _, rest = text.partition("://")
    # Signed links have their signature in the query.
    rest = rest.partition("#")[0].partition("?")[0]
    host, slash, path = rest.partition("/")
    # The last "@": a password may contain one.
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _hub(text: str) -> ModelUrl:
    found = _HUB.fullmatch(text.removeprefix("hf://"))
    if found is None or not is_inside(found["path"] or ""):
        raise _wrong(text, "hf://ORG/NAME, hf://ORG/NAME@REVISION or hf://ORG/NAME/FILE")
    path = (found["path"] or "").strip("/")
    # A branch with slashes is written with %2F, as in the Hub's own
    # URLs, since a slash begins the path.
    return ModelUrl(
        text, text, "hf", found["repo"], unquote(found["revision"] or "main"), path=path
    )


def _image(text: str) -> ModelUrl:
    found = _IMAGE.fullmatch(text.removeprefix("oci://"))
    # The grammar allows dots inside of a name; two would lead elsewhere in the registry's URL.
    if found is None or ".." in found["repo"]:
        raise _wrong(text, "oci://HOST/REPOSITORY:TAG or oci://HOST/REPOSITORY@sha256:DIGEST")
    digest = (found["digest"] or "").removeprefix("sha256:")
    # Docker's default.
    tag = found["tag"] or ("" if digest else "latest")
    return ModelUrl(text, text, "oci", f"{found['host']}/{found['repo']}", tag, digest)


def _registered(text: str) -> ModelUrl:
    found = _REGISTERED.fullmatch(text.removeprefix("models:"))
    if found is None:
        raise _wrong(text, "models:/NAME/VERSION or models:/NAME@ALIAS")
    revision = found["version"] or f"@{found['alias']}"
    return ModelUrl(text, text, "models", found["name"], revision)


def _link(text: str) -> ModelUrl:
    try:
        parts = urlsplit(text)
        # `port` is computed when it is asked for, and raises ValueError for 99999.
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        parts, has_host = SplitResult("", "", "", "", ""), False
    digest = _SHA256.fullmatch(parts.fragment)
    if not has_host or digest is None:
        raise InvalidConfig(
            f"'{shown(text)}' has no checksum: expected https://HOST/FILE#sha256=HEX, the 64 "
            f"digits that sha256sum shows of the file"
        )
    # A URL is shown in logs, in lists of processes and in error messages.
    if "@" in parts.netloc:
        raise InvalidConfig(f"'{shown(text)}' has a password in it, which belongs into ~/.netrc")
    if " " in text or not text.isprintable():
        raise _wrong(text, "a URL without spaces, written as %20")
    # The fragment is for us. What is quoted already stays so: "%" is among the safe characters.
    place = parts._replace(fragment="", path=quote(parts.path, safe="/%:@!$&'()*+,;=~")).geturl()
    return ModelUrl(text, shown(text), parts.scheme, place, digest=digest[1].lower())


def _wrong(text: str, expected: str) -> InvalidConfig:
    return InvalidConfig(f"'{shown(text)}' names no model, expected {expected}")


_READERS: dict[str, Callable[[str], ModelUrl]] = {
    "hf": _hub,
    "oci": _image,
    "models": _registered,
    "http": _link,
    "https": _link,
}
