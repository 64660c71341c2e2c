"""What is there before a page begins, by page: its models, other servers, names that it uses."""

import os
import shutil
import tomllib

from onnx import TensorProto, helper
from small_bucket import SmallBucket
from small_hub import SmallHub
from typist import ROOT

DIGITS = "examples/digits/models/digits"
REPEAT = """
backend: "repeat"
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
input { name: "DELAY" data_type: TYPE_UINT32 dims: -1 optional: true }
input { name: "WAIT" data_type: TYPE_UINT32 dims: 1 optional: true }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
output { name: "IDX" data_type: TYPE_UINT32 dims: 1 }
model_transaction_policy { decoupled: true }
"""
WRONG = """\
# Six lines
# are
# before
# the
max_batch_size: 8
# wrong one.
dynamic_batching { preferred_batch_size: [ 16 ] }
"""
CLASSES = """
from typing import Annotated
import inferd
import numpy as np

@inferd.model(name="resnet50", batched=True, max_batch_size=8)
def classify(
    input: Annotated[np.ndarray, inferd.Spec("FP32", [-1, 3, 224, 224])]
) -> Annotated[np.ndarray, inferd.Spec("FP32", [-1, 1000], name="output")]:
    return np.tile(np.arange(1000, dtype=np.float32), (len(input), 1))
"""
ECHO = """
import inferd

@inferd.model(name="NAME")
def echo(text_input: str) -> str:
    return text_input
"""


def models(typed):
    """A repository of two models that are the same."""
    for name in ("digits", "resnet"):
        typed.copy(DIGITS, f"models/{name}")


def request_of(typed):
    shutil.copy(ROOT / "examples/digits/digit.json", typed.folder / "request.json")


def readme(typed, _):
    models(typed)
    request_of(typed)


def access(typed, request):
    models(typed)
    folder = request.getfixturevalue("certificates")
    shutil.copy(folder / "server.pem", typed.folder / "cert.pem")
    shutil.copy(folder / "server.key", typed.folder / "key.pem")


def backend(typed, _):
    """The package as pip leaves it: its module, and what its pyproject.toml says of it."""
    package = ROOT / "examples/backend_package"
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    record = typed.folder / "site/inferd_linear-1.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: inferd-linear\nVersion: 1\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (record / "entry_points.txt").write_text("\n".join(lines) + "\n")
    shutil.copy(package / "inferd_linear.py", typed.folder / "site")
    typed.environ["PYTHONPATH"] = str(typed.folder / "site")


def serving_digits(typed, _):
    typed.serve("inferd serve examples/digits/models")


def serving_models(typed, _):
    models(typed)
    typed.serve("inferd serve models")


def check(typed, _):
    serving_models(typed, None)
    typed.save("models/resnet/config.pbtxt", WRONG)


def cloud(typed, request):
    bucket = SmallBucket("bucket")
    request.addfinalizer(bucket.server_close)
    request.addfinalizer(bucket.shutdown)
    for file in (ROOT / DIGITS).rglob("*"):
        if file.is_file():
            name = file.relative_to(ROOT / "examples/digits").as_posix()
            bucket.put(name, file.read_bytes())
    typed.replaced["s3://bucket"] = f"s3://{bucket.url}/bucket"
    typed.environ |= {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hidden"}


def cloud_platforms(typed, _):
    typed.copy(DIGITS, "models/digits")
    typed.environ["INFERD_ALLOW_METRICS"] = "false"  # 8080 is the one port beside those of V2


def with_models(typed, _):
    models(typed)


def functions(typed, _):
    typed.environ["PYTHONPATH"] = str(typed.folder)
    typed.python("import numpy as np; np.save('weights.npy', np.ones((256, 8), np.float32))")


def infer(typed, _):
    typed.serve(
        "inferd serve examples/digits/models --model-control-mode=explicit --load-model=digits"
    )


def logs(typed, request):
    models(typed)
    url = request.getfixturevalue("collector").url
    typed.replaced["http://collector:4318/v1/traces"] = url
    typed.serve("inferd serve models")


def payload_log(typed, request):
    models(typed)
    url = request.getfixturevalue("collector").url
    typed.replaced["http://receiver:8080/"] = url


def python_client(typed, _):
    typed.copy(DIGITS, "models/digits")
    typed.save("models/repeat/config.pbtxt", REPEAT)
    (typed.folder / "models/repeat/1").mkdir()
    typed.serve("inferd serve models")


def python_models(typed, _):
    (typed.folder / "backends").mkdir()


def redis(typed, request):
    models(typed)
    typed.replaced["port=6379"] = f"port={request.getfixturevalue('redis_server')().port}"


def serving(typed, _):
    models(typed)
    typed.copy(DIGITS, "mnt/models")
    typed.replaced["/mnt/models"] = str(typed.folder / "mnt/models")
    shutil.copy(ROOT / DIGITS / "1/model.onnx", typed.folder / "squeezenet.onnx")
    typed.save("app.py", ECHO)
    typed.replaced["inferd serve text"] = "inferd serve app.py"


def shared_memory(typed, _):
    typed.replaced['"/mine"'] = f'"/test_inferd_mine_{os.getpid()}"'
    typed.serve("inferd serve examples/digits/models")


def signatures(typed, _):
    signed = ROOT / "tests/data/signed"
    shutil.copytree(signed / "echo", typed.folder / "models/echo")
    shutil.copy(signed / "pub.pem", typed.folder / "public.pem")


def sources(typed, request):
    models(typed)
    hub = SmallHub()
    request.addfinalizer(hub.close)
    typed.environ |= {"HF_ENDPOINT": hub.url, "INFERD_FETCH_DIRECTORY": str(typed.folder / "kept")}
    typed.replaced["https://mlflow.example.com"] = hub.url
    content = adder()
    hub.put_hub_model("org/name", {"model.onnx": content})
    hub.put_registered("fraud", "1", {"model.onnx": content})
    hub.aliases["fraud", "champion"] = "1"


def adder():
    """The content of an ONNX file."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    nodes = [helper.make_node("Add", ["x", "x"], ["y"])]
    graph = helper.make_graph(nodes, "adder", ends[:1], ends[1:])
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def trtis(typed, _):
    typed.save("app.py", CLASSES)
    typed.serve("inferd serve app.py")


def from_another_server(typed, _):
    models(typed)
    typed.replaced[" /models"] = f" {typed.folder}/models"


SETUPS = {
    "README.md": readme,
    "docs/index.md": with_models,
    "docs/guide/access.md": access,
    "docs/guide/backends.md": backend,
    "docs/guide/bench.md": serving_digits,
    "docs/guide/check.md": check,
    "docs/guide/clients.md": serving_digits,
    "docs/guide/cloud.md": cloud,
    "docs/guide/cloud_platforms.md": cloud_platforms,
    "docs/guide/dashboard.md": with_models,
    "docs/guide/environments.md": with_models,
    "docs/guide/functions.md": functions,
    "docs/guide/infer.md": infer,
    "docs/guide/logs_and_traces.md": logs,
    "docs/guide/metrics.md": serving_models,
    "docs/guide/payload_log.md": payload_log,
    "docs/guide/python_client.md": python_client,
    "docs/guide/python-models.md": python_models,
    "docs/guide/repository.md": with_models,
    "docs/guide/response_cache.md": redis,
    "docs/guide/serving.md": serving,
    "docs/guide/shared_memory.md": shared_memory,
    "docs/guide/signatures.md": signatures,
    "docs/guide/sources.md": sources,
    "docs/guide/trtis.md": trtis,
    "docs/guide/tune.md": with_models,
    "docs/guide/workers.md": with_models,
    "docs/tutorials/from_triton.md": from_another_server,
}
"""By the path of the page; the others need nothing."""
