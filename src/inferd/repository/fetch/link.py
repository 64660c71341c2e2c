"""Links: a model as one file, or as an archive, at a URL with a checksum."""

import netrc
import posixpath
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from inferd.repository.fetch.snapshot import FileForm, RemoteFile, Snapshot
from inferd.repository.fetch.url import ModelUrl
from inferd.repository.fetch.web import Login, Web, basic

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".zip")
"""The endings of what is unpacked."""

_HINT = ": put user and password into ~/.netrc"


def link_snapshot(url: ModelUrl, environ: Mapping[str, str]) -> Snapshot:
    """Return what there is at a link. Nothing is asked of the site: the checksum says it all."""
    path = unquote(urlsplit(url.place).path)
    file = posixpath.basename(path.rstrip("/")) or "model"
    ending = next((one for one in ARCHIVES if file.lower().endswith(one)), "")
    name = file[: -len(ending)] if ending else file.partition(".")[0]
    # .../resnet50/model.onnx says what it is in its folder.
    if name in ("", "model"):
        name = posixpath.basename(posixpath.dirname(path)) or "model"
    form = FileForm.ARCHIVE if ending else FileForm.FILE
    one = RemoteFile(file, url.place, digest=f"sha256:{url.digest}", form=form)
    return Snapshot(name, url.digest, (one,), Web(_login(url.place, environ), _HINT))


def _login(url: str, environ: Mapping[str, str]) -> Login | None:
    """Return the credentials for the host of `url` in the user's netrc file, if there are some."""
    home = environ.get("HOME")
    file = environ.get("NETRC") or (f"{home}/.netrc" if home else "")
    try:
        # By host alone: netrc's default entry, for any other host, would
        # send one password to every site.
        entry = netrc.netrc(file).hosts.get(urlsplit(url).hostname or "") if file else None
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return None
    if entry is None:
        return None
    user, _, password = entry
    return Login(url, basic(user, password))
