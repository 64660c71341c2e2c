"""Signed models: a model's folder or file is compared with what somebody trusted has signed."""

from collections.abc import Sequence
from pathlib import Path

from inferd.errors import InvalidConfig
from inferd.repository.contents import read_limited
from inferd.repository.signing.bundle import read_bundle
from inferd.repository.signing.keys import TrustedKeys
from inferd.repository.signing.manifest import difference, read_manifest

SIGNATURE_FILE = "model.sig"
"""The file of the signature in a model's folder; beside a bare file it is FILE.sig."""

ANY_NAME = "*"
_MAX_KEY_BYTES = 1 << 20


def read_keys(files: Sequence[str], option: str) -> TrustedKeys | None:
    """Return the keys and certificates in `files`, which `option` names; None if there are none.

    Raises InvalidConfig.
    """
    if not files:
        return None
    content = b""
    for file in files:
        place = f"{option}: {file}"
        try:
            if not Path(file).is_file():  # opening a pipe would block until somebody writes
                msg = f"{place} is no file"
                raise InvalidConfig(msg)
            part = read_limited(Path(file), _MAX_KEY_BYTES, place)
        except OSError as error:
            msg = f"{place} cannot be read: {error.strerror}"
            raise InvalidConfig(msg) from error
        # Each by itself first, so that a complaint names its file.
        TrustedKeys(part, place)
        content += part + b"\n"
    return TrustedKeys(content, option)


def check_signature(
    model: Path, keys: TrustedKeys, names: Sequence[str], place: str, signature: str = ""
) -> None:
    """Raise InvalidConfig unless the folder or file `model` is what somebody trusted has signed.

    It has to have been signed under one of `names`, or any if ANY_NAME is one: otherwise a signed
    model could take the place of another. `signature` is the name of the file with the signature.
    """
    if model.is_dir():
        file = model / (signature or SIGNATURE_FILE)
    else:
        # Beside a bare file there may be others, with signatures of their own.
        file = model.with_name(f"{model.name}.sig")
    try:
        bundle = read_bundle(file, place)
        if problem := keys.problem(bundle):
            msg = f"{place}: {problem}"
            raise InvalidConfig(msg)
        manifest = read_manifest(bundle.payload, place)
        if manifest.name not in names and ANY_NAME not in names:
            msg = f"{place}: it was signed as '{manifest.name[:200]}', expected '{names[0]}'"
            raise InvalidConfig(msg)
        if found := difference(manifest, model, file):
            msg = f"{place}: {found}"
            raise InvalidConfig(msg)
    except OSError as error:
        msg = f"{place}: a file cannot be read: {error.strerror}"
        raise InvalidConfig(msg) from error
