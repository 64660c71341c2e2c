"""PyTorch's archives: TorchScript (s) and torch.export (e), and the pickles inside (p).

Of an archive the members follow, names and contents, with FF FE between: a zip file of them is
made, since nearly all changes of one would change a checksum. Other first bytes: the zip as it is.
"""

import io
import tempfile
from pathlib import Path
from zipfile import ZipFile

from inferd.backends.pytorch.archive import check_export, check_script, has_native_code
from inferd.backends.pytorch.pickles import check_pickle
from inferd.errors import InferdError

FOLDER = Path(tempfile.mkdtemp(prefix="inferd-fuzz-"))

_PICKLE = b"\x80\x02c__torch__.M\nM\nq\0)\x81}X\x08\0\0\0trainingq\x01\x88sb."
_TENSOR = (
    b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
    b"X\x01\0\0\x000X\x03\0\0\0cpuK\x02tQK\0K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR."
)
_GRAPH = (
    b'{"graph_module":{"graph":{"inputs":[],"outputs":[],"nodes":[{"target":'
    b'"torch.ops.aten.relu.default","inputs":[{"name":"self","arg":{"as_tensor":{"name":"x"}}}]}],'
    b'"sym_int_values":{"s0":{"as_expr":{"expr_str":"2*s0 + 1"}}}}},"opset_version":{"aten":10}}'
)
_CODE = b"class M(Module):\n  def forward(self, x):\n    return torch.relu(x)\n"


def _members(*parts: bytes) -> bytes:
    return b"\xff\xfe".join(parts)


_SCRIPT = _members(
    *(b"m/data.pkl", _PICKLE, b"m/constants.pkl", b"\x80\x02)."),
    *(b"m/code/__torch__.py", _CODE, b"m/data/0", bytes(8)),
)
_EXPORT = _members(
    *(b"m/models/model.json", _GRAPH),
    *(b"m/data/weights/model_weights_config.json", b'{"config":{}}'),
)
SEEDS = [b"s" + _SCRIPT, b"e" + _EXPORT, b"p" + _TENSOR, b"p" + _PICKLE]


def target(data: bytes) -> bool:
    """Check; return whether it would be given to PyTorch."""
    kind, rest = data[:1], data[1:]
    if kind == b"p":
        return not check_pickle(rest, {"0": 8})
    file = FOLDER / "model.pt"
    file.write_bytes(_zip(rest) if kind in (b"s", b"e") else rest)
    try:
        if kind == b"e":
            has_native_code(file, "model.pt2")
            check_export(file, "model.pt2")
        else:
            check_script(file, "model.pt")
    except InferdError:
        return False
    return True


def _zip(data: bytes) -> bytes:
    parts = data.split(b"\xff\xfe")
    packed = io.BytesIO()
    with ZipFile(packed, "w") as archive:
        for name, content in zip(parts[::2], parts[1::2], strict=False):
            try:
                archive.writestr(name.decode("latin-1"), content)
            except (ValueError, IndexError):  # such as a name of 64 KB, or of none
                continue
    return packed.getvalue()
