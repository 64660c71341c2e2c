"""What OpenVINO would run of a SavedModel; the files are written field by field."""

import pytest

from inferd.backends.openvino.saved_model import check_choice
from inferd.config.model import ModelConfig
from inferd.errors import Unsupported
from inferd.formats.protobuf import Malformed, bytes_field, text_field

INIT = "__saved_model_init_op"


def field(number, *parts):
    return b"".join(bytes_field(number, b"".join(parts)))


def graph(tags, names):
    """A MetaGraphDef with these tags and signatures."""
    signatures = [field(5, text_field(1, name), field(2)) for name in names]
    return field(2, field(1, *(text_field(4, tag) for tag in tags)), *signatures)


@pytest.fixture
def check(tmp_path):
    """check(*graphs, signature=..., tag=...) writes a SavedModel and checks the choice."""

    def run(*graphs, **chosen):
        (tmp_path / "saved_model.pb").write_bytes(b"".join(graphs))
        named = {"signature": "TF_SIGNATURE_DEF", "tag": "TF_GRAPH_TAG"}
        parameters = {named[key]: value for key, value in chosen.items()}
        check_choice(tmp_path, ModelConfig("m", parameters=parameters))

    return run


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["serving_default"], {}),
        (["serving_default", "serve", INIT], {}),
        (["serve", "serving_default"], {"signature": "serving_default"}),
        (["one", INIT], {}),
        (["one"], {"signature": "one", "tag": "serve"}),
        (["one"], {"signature": ""}),
    ],
)
def test_what_openvino_runs(check, names, chosen):
    check(graph(["serve"], names), **chosen)


@pytest.mark.parametrize(
    ("names", "chosen", "told"),
    [
        (["serving_default", "other"], {"signature": "other"}, "wants 'other'"),
        (["serving_default"], {"signature": "none"}, "wants 'none'"),
        (["one", "two"], {}, "'one', 'two'"),
        (["one", "two"], {"signature": "two"}, "'one', 'two'"),
        ([INIT], {}, "the file has none"),
        (["serving_default"], {"tag": "train"}, "not 'train'"),
    ],
)
def test_what_it_does_not_run(check, names, chosen, told):
    with pytest.raises(Unsupported, match=f"'m'.*{told}"):
        check(graph(["serve"], names), **chosen)


def test_the_graph_tagged_serve_counts(check):
    graphs = graph(["train"], ["one", "two"]), graph(["serve", "tpu"], ["one"])
    check(*graphs)
    check(*graphs, tag="tpu")
    with pytest.raises(Unsupported, match="'train'"):
        check(*graphs, tag="train")


def test_a_file_cut_off(check):
    with pytest.raises(Malformed):
        check(graph(["serve"], ["one"])[:-1])


def test_another_format_passes(tmp_path):
    check_choice(tmp_path / "model.xml", ModelConfig("m", parameters={"TF_SIGNATURE_DEF": "x"}))
