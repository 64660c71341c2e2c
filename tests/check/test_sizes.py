"""Memory and time that models may need."""

from good import onnx_model

from inferd.check.model import ModelCheck
from inferd.check.surprises import READ_BYTES_PER_S, add_size_warnings, memory_bytes, size_bytes
from inferd.repository.local import find_model

GIB = 1 << 30


def check(repository, name, size):
    """Return the check of a model that has another file of that size, with nothing in it."""
    folder = repository({f"{name}/1/model.onnx": onnx_model(), f"{name}/1/weights": ""})
    with (folder / name / "1" / "weights").open("wb") as file:
        file.truncate(size)
    return ModelCheck(find_model(folder / name))


def test_the_size_is_that_of_the_versions_that_are_served(repository):
    small = check(repository, "m", 1000)
    assert size_bytes(small) == 1000 + len(onnx_model())
    repository({"m/2/model.onnx": onnx_model()})
    assert size_bytes(ModelCheck(find_model(small.model.folder))) == len(onnx_model())


def test_a_small_model_is_no_matter(repository):
    small = check(repository, "m", 1000)
    add_size_warnings([small], GIB)
    add_size_warnings([], GIB)
    assert small.findings == []
    assert memory_bytes() > GIB / 4


def test_more_than_there_is_memory_is_told(repository):
    large = check(repository, "m", 3 * GIB)
    add_size_warnings([large], 2 * GIB)
    [one] = large.findings
    assert (one.level, one.rule) == ("warning", "memory")
    assert one.text == "its files have 3.0 GiB, this machine has 2.0 GiB of memory"


def test_models_that_are_too_much_together_are_told_once(repository):
    checks = [check(repository, name, size) for name, size in (("a", GIB), ("b", 2 * GIB))]
    add_size_warnings(checks, 2 * GIB + 10_000)
    assert checks[0].findings == []
    assert checks[1].findings[0].text.startswith("the files of all models have 3.0 GiB")


def test_a_long_load_is_told(repository):
    large = check(repository, "m", 61 * READ_BYTES_PER_S)
    add_size_warnings([large], 0)
    [one] = large.findings
    assert one.text.endswith("reading them takes about 61 s at 200 MB/s")
