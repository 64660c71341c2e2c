"""Checks of PyTorch's model archives before PyTorch opens them; needs no PyTorch.

Both formats are zip files. TorchScript (.pt) holds a program in a language of its own, which can
write files, and pickles, which PyTorch reads without running Python, but whose sizes it trusts.
torch.export (.pt2) holds a graph as JSON whose names end up in Python's eval and exec, and may hold
pickles or compiled code. Anything in a file that could harm the server is refused here;
docs/decisions/0020-model-files.md says what remains open.
"""

import json
import re
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from inferd.backends.pytorch.pickles import HARMLESS_CLASSES, check_pickle
from inferd.errors import InvalidConfig

MAX_PACKED_BYTES = 64 << 20
"""The most bytes a compressed member may unpack to; weights are never compressed."""

# Far below Python's own recursion limit, and far above what torch.export nests.
MAX_DEPTH = 200

_FILES = "save|from_file|read_file|write_file"  # of aten and torchvision
_FILE_CALLS = re.compile(rf"(?:\btorch|\bops\s*\.\s*\w+)\s*\.\s*({_FILES})\s*\(")
# TorchScript's type names are paths below __torch__, spaces around the dots allowed.
_NATIVE_CLASS = re.compile(r"__torch__\s*\.\s*torch\s*\.\s*classes\s*\.\s*(\w+)")
_UNREAD = "traced_inputs.pkl"  # shapes of examples, read only on request

# Names become Python identifiers, calls are looked up by name, sizes are evaluated.
_NAME = re.compile(r"[\w.]*(?:\[\d+\])*")
_CALL = re.compile(
    # torch.ops.load_library is a call, too, and loads a shared
    # library: hence known namespaces only.
    rf"torch\.ops\.(?!\w+\.(?:{_FILES})\b)"
    r"(?:aten|prim|prims|quantized|quantized_decomposed|higher_order|torchvision|image|"
    r"_c10d_functional)\.\w+(?:\.\w+)?"
    r"|torch\.(?:sym_\w+|_sym_\w+)|math\.\w+"
)
_OPERATORS = re.compile(
    r"_operator\.(?:add|sub|mul|truediv|floordiv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|"
    r"not_|xor|lshift|rshift|getitem|is_|is_not|invert|index|truth)"
)
# Sizes are texts that sympy.sympify evaluates with Python's eval.
_SIZE_WORD = re.compile(r"[A-Za-z_]\w*|'[^']*'|[^\w\s()+\-*/,.<>=]")
_SIZE_WORDS = re.compile(
    r"Symbol|Integer|Float|positive|integer|nonnegative|True|False|Max|Min|Mod|PythonMod|FloorDiv|"
    r"CleanDiv|CeilDiv|CeilToInt|FloorToInt|TruncToInt|ModularIndexing|Where|Eq|Ne|Lt|Le|Gt|Ge|And|"
    r"Or|Not|IntTrueDiv|FloatTrueDiv|PowByNatural|int_oo|oo|Abs|Pow|Mul|Add|floor|ceiling|"
    r"'?[a-z]\d+'?"
)


class Archive:
    """An opened archive: its members by their names below the one folder they share."""

    def __init__(self, file: Path, what: str) -> None:
        self._what = what
        try:
            self._zip = ZipFile(file)
        except (BadZipFile, NotImplementedError, OverflowError, OSError, ValueError):
            self.refuse("it is not a zip archive, or not a whole one")
        infos = self._zip.infolist()
        # PyTorch writes nothing there, and two readers may disagree about an archive with a prefix.
        if not infos or min(info.header_offset for info in infos):
            self.refuse("it is not a zip archive, or not a whole one")  # it has a prefix
        prefixes = {info.filename.partition("/")[0] for info in infos}
        # PyTorch takes the first member's folder for that of all; two would hide one from us.
        if len(prefixes) != 1:
            self.refuse("its members do not share one folder")
        self.members = {info.filename.partition("/")[2]: info for info in infos}
        # Readers differ in which of the two they take: we would check
        # one, and PyTorch run the other.
        if len(self.members) != len(infos):
            self.refuse("a member is there twice")
        for info in infos:
            self._check_size(info)

    def read(self, name: str) -> bytes:
        """Return a member's bytes. Raises InvalidConfig."""
        try:
            return self._zip.read(self.members[name])
        except (BadZipFile, zlib.error, RuntimeError, OSError, EOFError, ValueError, KeyError):
            self.refuse(f"its member '{name}' cannot be read")

    def refuse(self, why: str) -> NoReturn:
        """Raise InvalidConfig with the reason why the file is not loaded."""
        raise InvalidConfig(f"{self._what}: {why}")

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def _check_size(self, info: ZipInfo) -> None:
        # PyTorch maps stored members, so a size beyond the file's end would be read from other
        # memory; a compressed one is allocated before anything is unpacked.
        stored = info.compress_type == ZIP_STORED
        if info.file_size > (info.compress_size if stored else MAX_PACKED_BYTES):
            self.refuse(f"its member '{info.filename}' claims {info.file_size} bytes")


def check_script(file: Path, what: str) -> None:
    """Check that `file` is TorchScript that only computes.

    Raises InvalidConfig, whose text begins with `what`, for other pickles, calls that read or write
    files, classes of native code that are not known to be harmless, and sizes beyond the file's.
    """
    with closing(Archive(file, what)) as archive:
        _check_script(archive)


def _check_script(archive: Archive) -> None:
    members = archive.members
    if "models/model.json" in members:
        archive.refuse("it is a torch.export archive; call it model.pt2")
    if "model.json" in members:  # it would determine how everything else is read
        archive.refuse("it is in the format of PyTorch before 1.4; write it with torch.jit.save")
    if "constants.pkl" not in members or "data.pkl" not in members:
        msg = (
            "it is no TorchScript; weights or a module written by torch.save are a pickle, which "
            "can run any code, and are not loaded: write the model with torch.jit.save"
        )
        archive.refuse(msg)
    for name in members:
        if name.startswith("code/") and name.endswith(".py"):
            _check_code(archive, name)
        # Only those at the top are read by torch.jit.load.
        elif name.endswith(".pkl") and "/" not in name and name != _UNREAD:
            # PyTorch keeps the storages of x.pkl as members of the folder x.
            folder = "constants" if name == "constants.pkl" else name.removesuffix(".pkl")
            sizes = {
                key.rpartition("/")[2]: info.file_size
                for key, info in members.items()
                if key.startswith(f"{folder}/")
            }
            if complaint := check_pickle(archive.read(name), sizes):
                archive.refuse(f"in its member '{name}', {complaint}")


def _check_code(archive: Archive, name: str) -> None:
    # What is no UTF-8 cannot hide a call: the names that are searched for are ASCII.
    text = archive.read(name).decode(errors="replace")
    if found := _FILE_CALLS.search(text):
        archive.refuse(f"its code calls torch.{found[1]}, which reads or writes files")
    for group in _NATIVE_CLASS.findall(text):
        if group not in HARMLESS_CLASSES:
            archive.refuse(f"its code uses torch.classes.{group}, which is native code")


def has_native_code(file: Path, what: str) -> bool:
    """Return whether the archive `file` is compiled (AOTInductor). Raises InvalidConfig."""
    with closing(Archive(file, what)) as archive:
        return any(name.startswith("data/aotinductor/") for name in archive.members)


def check_export(file: Path, what: str) -> Any:
    """Check that `file` is a torch.export graph without pickles and with plain names; return it.

    Raises InvalidConfig, whose text begins with `what`.
    """
    with closing(Archive(file, what)) as archive:
        members = archive.members
        if "models/model.json" not in members:
            if "constants.pkl" in members:
                archive.refuse("it is TorchScript; call it model.pt")
            archive.refuse("it has no models/model.json; write it with torch.export.save")
        for name in members:
            if re.fullmatch(r"data/(weights|constants)/.*\.pt", name):
                archive.refuse(f"its member '{name}' is a pickle")
            # torch.export.load reads each of them, before it picks the one that was asked for.
            if name.startswith("models/") and name != "models/model.json":
                archive.refuse(f"its member '{name}' is another program, expected one")
        for kind in ("weights", "constants"):
            _check_payloads(archive, f"data/{kind}/model_{kind}_config.json", kind)
        graph = _json(archive, "models/model.json")
        _check_graph(archive, graph, 0, "")
        return graph


def sample_inputs(file: Path, what: str) -> bytes:
    """Return the pickle of sample inputs that PyTorch reads first. Raises InvalidConfig."""
    name = "data/sample_inputs/model.pt"
    with closing(Archive(file, what)) as archive:
        return archive.read(name) if name in archive.members else b""


def _json(archive: Archive, name: str) -> Any:
    try:
        return json.loads(archive.read(name))
    except (ValueError, RecursionError):
        archive.refuse(f"its member '{name}' is not JSON")


def _check_payloads(archive: Archive, name: str, kind: str) -> None:
    if name not in archive.members:
        return
    content = _json(archive, name)
    entries = content.get("config") if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        archive.refuse(f"its member '{name}' has no table 'config'")
    prefix = "weight_" if kind == "weights" else "tensor_"
    for key, entry in entries.items():
        # `is False`, not falsy: an entry that lacks the key means what
        # its PyTorch takes as the default.
        is_plain = isinstance(entry, dict) and entry.get("use_pickle") is False
        if not is_plain or not str(entry.get("path_name")).startswith(prefix):
            archive.refuse(f"'{key}' in its member '{name}' is not a plain tensor")


def _check_graph(archive: Archive, value: Any, depth: int, key: str) -> None:
    """Check every name, call and size in `value`, the value of `key`."""
    if depth > MAX_DEPTH:
        archive.refuse("its graph is nested too deeply")
    if isinstance(value, list):
        for each in value:
            _check_graph(archive, each, depth + 1, key)
    elif isinstance(value, dict):
        for inner, each in value.items():
            if inner in ("in_spec", "out_spec"):
                _check_spec(archive, each, depth + 1)
            # Texts for people, and Python source that is never run here: we check shapes ourselves.
            elif inner not in ("metadata", "guards_code"):
                _check_graph(archive, each, depth + 1, inner)
    elif isinstance(value, str) and not _is_plain(key, value):
        archive.refuse(f"its graph has a {key} that is not known: '{value[:100]}'")


def _check_spec(archive: Archive, value: Any, depth: int) -> None:
    """Check the structure of arguments or outputs: JSON, whose texts may be JSON again.

    PyTorch looks up enum keys and defaults of a defaultdict in any module, so they are refused.
    """
    if depth > MAX_DEPTH:
        archive.refuse("its graph is nested too deeply")
    if isinstance(value, str):
        try:
            inner = json.loads(value)
        except ValueError:  # plain text
            return
        except RecursionError:
            archive.refuse("its graph is nested too deeply")
        _check_spec(archive, inner, depth + 1)
    elif isinstance(value, list):
        for each in value:
            _check_spec(archive, each, depth + 1)
    elif isinstance(value, dict):
        if "__enum__" in value or value.get("type") == "collections.defaultdict":
            archive.refuse("its arguments or outputs have keys of an enum, or are a defaultdict")
        for each in value.values():
            _check_spec(archive, each, depth + 1)


def _is_plain(key: str, text: str) -> bool:
    if key in ("name", "parameter_name", "buffer_name", "tensor_constant_name", "as_name"):
        return _NAME.fullmatch(text) is not None
    if key in ("target", "as_operator"):
        if text.startswith("_operator."):
            return _OPERATORS.fullmatch(text) is not None
        return _CALL.fullmatch(text) is not None
    # Words suffice: without attributes, brackets or unknown names, eval has nothing to reach.
    if key == "expr_str":
        return all(_SIZE_WORDS.fullmatch(word) for word in _SIZE_WORD.findall(text))
    return True
