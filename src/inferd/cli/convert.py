"""inferd convert: makes an ONNX model of one of scikit-learn, XGBoost, LightGBM or CatBoost."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from inferd.backends.estimator.conversion.conversion import (
    LIBRARIES,
    TOLERANCE,
    Conversion,
    check,
    converted,
    loaded,
    named_ports,
)
from inferd.backends.estimator.conversion.drawn import read_sample
from inferd.cli.parser import CommandParser
from inferd.config.model import ModelConfig
from inferd.config.platform import platform_of_file
from inferd.errors import InferdError, InvalidConfig
from inferd.values.output import write_whole

_DESCRIPTION = """\
Makes an ONNX model of a model of scikit-learn, XGBoost, LightGBM or CatBoost, compares both, and
writes OUT.onnx if they answer the same. The library of the model has to be installed, and the
extra inferd[convert].

Both are compared on the rows of --sample, or else on rows drawn around the model's own thresholds.
The exit code is 0, or 1 if the model cannot be converted, or answers differently: then nothing is
written.
"""


def run(arguments: Sequence[str]) -> int:
    """Convert a model. Return 0, 1 when that fails or the answers differ, 2 for wrong arguments."""
    given = _parser().read(arguments)
    if isinstance(given, int):
        return given
    try:
        found = _converted(given)
    except InferdError as error:
        sys.stderr.write(f"inferd convert: {error.message}\n")
        return 1
    _tell(found, given)
    try:
        check(found, given.tolerance)
        write_whole(Path(given.output), found.content)
    except InferdError as error:
        sys.stderr.write(f"inferd convert: {error.message}. Nothing was written.\n")
        return 1
    ports = named_ports(found.content)
    sys.stdout.write("".join(f"  {port}\n" for port in ports))
    sys.stdout.write(f"written: {given.output}, {len(found.content)} bytes\n")
    return 0


def _parser() -> CommandParser:
    parser = CommandParser("inferd convert", _DESCRIPTION, says_usage=True)
    parser.add_argument("model", metavar="MODEL", help="its file: model.skops, model.ubj ...")
    parser.add_argument("-o", "--output", metavar="OUT.onnx", required=True)
    parser.option(
        "--sample",
        "ROWS.npz",
        "rows to compare on: one array [rows, columns], or one array [rows] for each column, "
        "named as the columns are. The model takes the datatypes that they have",
    )
    about = "how much a number may differ, as a share of it or, below 1, as it is [1e-4]"
    parser.option("--tolerance", "X", about, TOLERANCE, float)
    parser.add_argument(
        "--library",
        choices=LIBRARIES,
        help="whose file it is, where its name does not tell",
    )
    parser.switch("--allow-pickle", "read a pickle, which may run any code")
    about = "types that a .skops file may hold beside those that skops trusts"
    parser.option("--trusted-types", "A,B", about, "")
    return parser


def _converted(given: argparse.Namespace) -> Conversion:
    file = Path(given.model)
    if not file.is_file():
        what = "is a folder: name the model's file in it" if file.is_dir() else "does not exist"
        raise InvalidConfig(f"{given.model} {what}")
    name = given.library or _library(file)
    if not 0 <= given.tolerance < float("inf"):
        raise InvalidConfig(f"--tolerance is {given.tolerance}, expected a number from 0")
    sample = None
    if given.sample:
        sample = read_sample(Path(given.sample), f"--sample {given.sample}")
    config = ModelConfig(
        file.stem,
        # As the configuration of a served model would say it: one reader for both.
        parameters={
            "inferd_allow_pickle": str(given.allow_pickle).lower(),
            "inferd_trusted_types": given.trusted_types,
        },
    )
    return converted(loaded(name, file, config), sample, tolerance=given.tolerance)


def _library(file: Path) -> str:
    platform = platform_of_file(file.name)
    if platform is None or platform.backend not in LIBRARIES:
        raise InvalidConfig(
            f"the name of {file} does not tell which library's model it is: say "
            f"--library={'|'.join(LIBRARIES)}"
        )
    return platform.backend


def _tell(found: Conversion, given: argparse.Namespace) -> None:
    where = found.where or f"the {found.row_count} rows of {given.sample}"
    more = "" if found.threshold_count != 0 else "; --sample with rows of yours would say more"
    sys.stdout.write(f"compared with the library on {where}{more}\n")
    for one in found.differences:
        sys.stdout.write(f"  {one.output}: {one}\n")
    if str(found.refused):
        sys.stdout.write(f"  {found.refused}: the library refuses or answers that otherwise\n")
