"""One fault for each point: how the wrong server's answers go wrong when the point is broken."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import unquote

from conformance.reference.models import Refused
from conformance.reference.rest import Answer, Request, to_json

Message = Any
HEADER = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Fault:
    """What goes wrong: the request before it is read, the answer, or a habit of the transport.

    `rpc` alters a gRPC answer: it is given the answer or the refusal, and returns an answer or
    raises a refusal. `stream` is given all answers of a stream, `old` each answer of the old API
    over gRPC. `habit` names a bad habit the servers themselves have.
    """

    request: Callable[[Request], None] = lambda request: None
    answer: Callable[[Request, Answer], None] = lambda request, answer: None
    rpc: Callable[[Message | Refused], Message] | None = None
    habit: str = ""
    stream: Callable[[list[Message]], list[Message]] | None = None
    old: Callable[[Message], object] | None = None


def on_answer(change: Callable[[Answer], object]) -> Fault:
    """Alter every answer."""
    return Fault(answer=lambda _, answer: (change(answer), None)[1])


def accepts() -> Fault:
    """Answer what is to be refused."""

    def change(answer: Answer) -> None:
        if answer.status >= 400:
            answer.status = 200
            answer.body = to_json({"model_name": "m", "model_version": "3", "outputs": []})

    return on_answer(change)


def refuses(status: int = 400) -> Fault:
    """Refuse what is to be answered."""

    def change(answer: Answer) -> None:
        if answer.status == 200:
            answer.status, answer.body = status, to_json({"error": "no"})
            answer.headers = {"Content-Type": "application/json"}

    return on_answer(change)


def fails_with(status: int) -> Fault:
    """Refuse with the wrong status."""
    return on_answer(
        lambda answer: setattr(answer, "status", status if answer.status >= 400 else answer.status)
    )


def edits(change: Callable[[dict[str, Any]], object]) -> Fault:
    """Alter the JSON of good and bad answers."""

    def edit(answer: Answer) -> None:
        size = int(answer.headers.get(HEADER, len(answer.body)))
        document, blobs = json.loads(answer.body[:size]), answer.body[size:]
        change(document)
        head = to_json(document)
        answer.body = head + blobs
        if HEADER in answer.headers:
            answer.headers[HEADER] = str(len(head))

    return on_answer(edit)


def sets(**fields: Any) -> Fault:
    """Set fields of the JSON."""
    return edits(lambda body: body.update(fields))


def drops(*keys: str) -> Fault:
    """Drop fields of the JSON."""
    return edits(lambda body: [body.pop(key, None) for key in keys])


def each_output(change: Callable[[dict[str, Any]], object]) -> Fault:
    """Alter each output of an inference's answer."""
    return edits(lambda body: [change(tensor) for tensor in body.get("outputs", [])])


def each_row(change: Callable[[dict[str, Any]], object]) -> Fault:
    """Alter each row of statistics."""
    return edits(lambda body: [change(row) for row in body.get("model_stats", [])])


def each_value(change: Callable[[Any], Any]) -> Fault:
    """Alter each element of JSON data."""

    def alter(tensor: dict[str, Any]) -> None:
        if "data" in tensor:
            tensor["data"] = [change(value) for value in tensor["data"]]

    return each_output(alter)


def blob(change: Callable[[bytes], bytes]) -> Fault:
    """Alter the blobs after the JSON."""

    def alter(answer: Answer) -> None:
        if HEADER in answer.headers:
            size = int(answer.headers[HEADER])
            answer.body = answer.body[:size] + change(answer.body[size:])

    return on_answer(alter)


def headed(**headers: str | None) -> Fault:
    """Set or (None) drop headers of the answer; underscores stand for dashes."""

    def alter(answer: Answer) -> None:
        for name, value in headers.items():
            key = name.replace("_", "-")
            answer.headers.pop(key, None)
            if value is not None:
                answer.headers[key] = value

    return on_answer(alter)


def streams(change: Callable[[list[Message]], list[Message]]) -> Fault:
    """Alter the answers of a stream."""
    return Fault(stream=change)


def never_final(answers: list[Message]) -> list[Message]:
    """Tell of no answer that it is the last."""
    for answer in answers:
        answer.infer_response.parameters["triton_final_response"].bool_param = False
    return answers


def sends_unasked(answers: list[Message]) -> list[Message]:
    """Answer what nobody asked."""
    from tritonclient.grpc import service_pb2 as pb

    return [*answers, pb.ModelStreamInferResponse()]


def reads(change: Callable[[Request], None]) -> Fault:
    """Misread the request."""
    return Fault(request=change)


def habit(name: str) -> Fault:
    """Give a server a bad habit."""
    return Fault(habit=name)


def flip(data: bytes) -> bytes:
    """Alter one bit."""
    return bytes([data[0] ^ 1]) + data[1:] if data else b"\1"


def without_last(tensor: dict[str, Any]) -> None:
    """Lose the last element."""
    tensor["data"] = tensor["data"][:-1]


def fail(reason: str) -> NoReturn:
    """Refuse a gRPC call."""
    msg = "no"
    raise Refused(msg, reason)


def rpc_accepts() -> Fault:
    """Answer the gRPC call that is to be refused."""

    def change(answer: Message | Refused) -> Message:
        from tritonclient.grpc import service_pb2 as pb

        return pb.ModelInferResponse() if isinstance(answer, Refused) else answer

    return Fault(rpc=change)


def rpc_refuses(reason: str = "invalid") -> Fault:
    """Refuse every gRPC call."""
    return Fault(rpc=lambda _: fail(reason))


def rpc_fails_with(reason: str) -> Fault:
    """Refuse a gRPC call with the wrong status."""
    return Fault(rpc=lambda answer: fail(reason) if isinstance(answer, Refused) else answer)


def rpc_edits(change: Callable[[Message], object]) -> Fault:
    """Alter a good gRPC answer."""

    def edit(answer: Message | Refused) -> Message:
        if isinstance(answer, Refused):
            raise answer
        change(answer)
        return answer

    return Fault(rpc=edit)


def rpc_raw(change: Callable[[bytes], bytes]) -> Fault:
    """Alter the raw output contents."""

    def edit(message: Message) -> None:
        found = [change(raw) for raw in message.raw_output_contents]
        message.raw_output_contents[:] = found

    return rpc_edits(edit)


def to_string(tensor: Message) -> None:
    """Call BYTES STRING, in JSON or in a message."""
    if isinstance(tensor, dict):
        tensor["datatype"] = tensor["datatype"].replace("BYTES", "STRING")
    else:
        tensor.datatype = tensor.datatype.replace("BYTES", "STRING")


def compresses_everything(answer: Answer) -> None:
    """Compress the answer."""
    answer.body = gzip.compress(answer.body)
    answer.headers["Content-Encoding"] = "gzip"


def lower_case_path(request: Request) -> None:
    """Forget the case of the path."""
    request.path = request.path.lower()


def decodes_early(request: Request) -> None:
    """Percent-decode before the path is split."""
    request.path = unquote(request.path)


def lower_case_keys(request: Request) -> None:
    """Forget the case of parameters."""
    request.body = request.body.replace(b"Binary_Data", b"binary_data")


def forgets_outputs(request: Request) -> None:
    """Ignore the requested outputs."""
    request.body = request.body.replace(b'"outputs"', b'"ignored"')


def widened(text: bytes) -> bytes:
    """Print 1.1 as the double next to the float."""
    return text.replace(b"1.1", b"1.100000023841858")


def renamed(text: bytes) -> bytes:
    """Begin each metric with a word of its own."""
    return text.replace(b"nv_inference_", b"nv_model_")


def swap_metadata(body: dict[str, Any]) -> None:
    """Describe the strings of model all by their old name."""
    for tensor in body.get("inputs", []) + body.get("outputs", []):
        to_string(tensor)


def flatten_shape(tensor: dict[str, Any]) -> None:
    """Answer a batch as one row."""
    tensor["shape"] = [len(tensor["data"])]


def add_contents(message: Message) -> None:
    """Answer in typed contents beside the raw ones."""
    for output in message.outputs:
        output.contents.fp32_contents.append(1.0)


def nothing_ready(message: Message) -> None:
    """Say that nothing is ready."""
    message.ready = False


ACCEPTING = [
    "101",
    "111",
    "112",
    "S213",
    "S215",
    "S216",
    "S235",
    "S217",
    "S218",
    "S221",
    "S223",
    "S203",
    "S206",
    "S207",
    "S208",
    "29",
    "33",
    "34",
    "35",
    "36",
    "37",
    "38",
    "42",
    "46",
    "47",
    "48",
    "50",
    "56",
    "66",
    "67",
    "68",
    "69",
    "70",
    "72",
    "73",
    "S6",
    "S17",
    "S18",
    "S19",
    "S20",
    "S26",
    "S29",
    "S32",
    "S34",
    "S36",
    "S40",
    "S41",
    "S42",
    "S43",
    "S44",
    "S45",
    "S46",
    "S47",
    "S49",
    "S52",
    "S55",
    "S57",
    "S60",
    "S62",
    "S65",
    "S68",
    "S76",
    "S77",
    "S78",
    "S79",
    "S80",
    "S88",
    "S89",
    "S91",
    "S92",
    "S94",
    "S95",
    "S138",
    "S103",
    "S106",
    "S136",
    "S137",
    "4",
    "7",
    "8",
    "122",
]
"""Points whose fault is to accept what is to be refused."""
REFUSING = [
    "114",
    "6",
    "13",
    "19",
    "30",
    "49",
    "51",
    "52",
    "59",
    "60",
    "71",
    "74",
    "75",
    "S7",
    "S15",
    "S16",
    "S24",
    "S30",
    "S39",
    "S48",
    "S50",
    "S56",
    "S58",
    "S59",
    "S61",
    "S67",
    "S71",
    "S73",
    "S74",
    "S81",
    "S82",
    "S83",
    "S87",
    "S107",
    "S109",
    "S110",
    "S135",
    "1",
    "S12",
    "S205",
    "S212",
    "S219",
    "S232",
]
"""Points whose fault is to refuse what is to be answered."""
RPC_ACCEPTING = [
    "82",
    "85",
    "86",
    "87",
    "88",
    "89",
    "S114",
    "S115",
    "S116",
    "S117",
    "S118",
    "S119",
    "S120",
    "S121",
    "S122",
    "S125",
    "S126",
    "S127",
    "S130",
    "S132",
    "S133",
    "S204",
    "S210",
    "96",
]
RPC_REFUSING = ["S229", "80", "91", "92", "98", "S128", "S134", "S209"]

FAULTS: dict[str, Fault] = {
    **{number: accepts() for number in ACCEPTING},
    **{number: refuses() for number in REFUSING},
    **{number: rpc_accepts() for number in RPC_ACCEPTING},
    **{number: rpc_refuses() for number in RPC_REFUSING},
    "2": on_answer(lambda answer: setattr(answer, "body", b"")),
    "3": sets(ready=False),
    "5": sets(name="other"),
    "9": drops("version"),
    "10": sets(extensions=[]),
    "11": drops("platform"),
    "12": sets(versions=["3"]),
    "14": fails_with(400),
    "15": fails_with(400),
    "16": edits(swap_metadata),
    "17": fails_with(404),
    "18": sets(error={"text": "no"}),
    "20": headed(Content_Type="application/json; charset=utf-8"),
    "21": each_value(lambda value: value + 1),
    "22": each_output(lambda tensor: tensor.pop("datatype")),
    "23": sets(id=42),
    "24": sets(id=None),
    "25": sets(model_version="3"),
    "26": sets(model_version="1"),
    "27": reads(forgets_outputs),
    "28": edits(lambda body: body["outputs"].pop()),
    "31": each_output(flatten_shape),
    "32": sets(error="bad request"),
    "39": fails_with(500),
    "40": fails_with(500),
    "41": fails_with(400),
    "43": each_output(without_last),
    "44": each_value(lambda value: int(float(value))),
    "45": each_value(lambda value: value.encode("ascii", "replace").decode()),
    "53": refuses(415),
    "54": fails_with(404),
    "55": each_output(lambda tensor: tensor.update(shape=[1])),
    "57": habit("ignores chunks"),
    "58": habit("never says continue"),
    "61": headed(Content_Type="application/json"),
    "62": blob(lambda data: data[16:] + data[:16]),
    "63": blob(lambda data: b"\0" * len(data)),
    "64": blob(flip),
    "65": blob(flip),
    "76": headed(Accept_Encoding=None),
    "77": headed(Content_Encoding=None),
    "78": on_answer(compresses_everything),
    "79": rpc_edits(nothing_ready),
    "81": rpc_edits(lambda message: setattr(message, "name", "other")),
    "83": rpc_edits(lambda message: setattr(message, "id", "")),
    "84": rpc_edits(add_contents),
    "90": rpc_raw(lambda raw: raw[4:]),
    "93": streams(lambda answers: answers[::-1]),
    "94": streams(lambda answers: answers[:1]),
    "95": streams(lambda answers: answers[:2]),
    "S224": streams(lambda answers: answers[1:]),
    "S225": streams(sends_unasked),
    "S226": streams(never_final),
    "S227": streams(lambda answers: answers[1:]),
    "S228": habit("ignores triton_grpc_error"),
    "97": habit("says it is not serving"),
    "99": habit("knows every method"),
    "100": each_value(lambda value: value.rpartition(":")[0]),
    "102": on_answer(lambda answer: setattr(answer, "body", b'{"models":[]}')),
    "103": reads(lambda request: setattr(request, "body", b"")),
    "104": on_answer(lambda answer: setattr(answer, "status", 200)),
    "105": refuses(),
    "106": on_answer(
        lambda answer: setattr(answer, "body", answer.body.replace(b"UNAVAILABLE", b"READY"))
    ),
    "107": on_answer(
        lambda answer: setattr(answer, "body", answer.body.replace(b"TYPE_FP32", b"FP32"))
    ),
    "115": sets(trace_rate="1000"),
    "116": drops("log_format"),
    "108": each_row(lambda row: row.update(execution_count=3)),
    "113": each_value(lambda value: 0),
    "109": edits(lambda body: body.get("model_stats", [None]).pop()),
    "110": fails_with(400),
    "117": reads(forgets_outputs),
    "118": fails_with(404),
    "121": on_answer(lambda answer: setattr(answer, "body", renamed(answer.body))),
    "123": habit("drops the pipeline"),
    "S1": each_output(lambda tensor: tensor.update(shape=[2, 3])),
    "S2": on_answer(lambda answer: setattr(answer, "body", widened(answer.body))),
    "S3": edits(lambda body: body["inputs"].reverse()),
    "S4": headed(Content_Type="text/plain"),
    "S5": drops("live"),
    "S8": sets(state="READY"),
    "S9": drops("ready"),
    "S10": fails_with(404),
    "S11": sets(live=True),
    "S13": fails_with(503),
    "S14": each_output(without_last),
    "S21": each_output(to_string),
    "S22": each_output(to_string),
    "S23": rpc_edits(lambda message: [to_string(output) for output in message.outputs]),
    "S25": blob(flip),
    "S27": blob(lambda data: data[::-1]),
    "S28": each_output(without_last),
    "S31": each_value(lambda _: None),
    "S33": each_value(lambda value: float(f"{value:.3g}")),
    "S35": each_value(lambda _: False),
    "S37": each_value(lambda value: value.strip("\0\t\n 😀")),
    "S38": edits(lambda body: body["outputs"].pop()),
    "S51": edits(lambda body: body["outputs"].pop()),
    "S53": edits(lambda body: body.update(id=body["id"][:-1])),
    "S54": edits(lambda body: body.setdefault("id", "")),
    "S63": edits(lambda body: body.update(model_version=int(body["model_version"]))),
    "S64": reads(lower_case_path),
    "S66": reads(lower_case_keys),
    "S69": fails_with(500),
    "S70": sets(versions=["1", "3"]),
    "S72": reads(decodes_early),
    "S75": on_answer(lambda answer: setattr(answer, "body", b'{"error":"no "model""}')),
    "S84": fails_with(500),
    "S85": each_output(without_last),
    "S86": each_output(lambda tensor: tensor.pop("data")),
    "S90": each_output(lambda tensor: tensor.pop("parameters")),
    "S93": blob(lambda data: data[4:] + data[:4]),
    "S96": blob(lambda data: data[:-1]),
    "S97": blob(flip),
    "S98": Fault(
        answer=lambda request, answer: (
            setattr(answer, "status", 405) if request.method == "HEAD" else None
        )
    ),
    "S99": headed(Allow=None),
    "S100": habit("closes after each answer"),
    "S101": habit("never closes"),
    "S102": habit("reads once"),
    "S104": habit("answers garbage"),
    "S139": fails_with(500),
    "S140": habit("never closes"),
    "S141": refuses(404),
    "S142": sets(id="c0"),
    "S105": habit("takes either length"),
    "S108": headed(Content_Type="text/plain"),
    "S111": habit("closes after an error"),
    "S112": rpc_raw(lambda raw: raw[::-1]),
    "S113": rpc_raw(flip),
    "S123": rpc_edits(lambda message: setattr(message, "model_version", "")),
    "S124": rpc_edits(lambda message: message.raw_output_contents.pop()),
    "S129": rpc_edits(lambda message: message.versions.append("3")),
    "S131": habit("reflects nothing"),
    "119": edits(lambda body: body.update(text_output=[body["text_output"]])),
    "120": on_answer(lambda answer: setattr(answer, "body", answer.body.partition(b"\n\n")[2])),
    "S211": edits(lambda body: body.update(id=body.pop("id"))),
    "S214": edits(lambda body: body.update(OUTPUT0=[body["OUTPUT0"]])),
    "S220": on_answer(lambda answer: setattr(answer, "body", b"data: [DONE]\n\n")),
    "S222": on_answer(
        lambda answer: setattr(answer, "body", answer.body.replace(b'"outputs"', b'"out"'))
    ),
    "S230": each_row(lambda row: row["inference_stats"]["cache_hit"].update(count=0)),
    "S231": edits(lambda body: body["outputs"].pop(0)),
    "S233": habit("answers garbage"),
    "S234": fails_with(400),
    "S201": each_output(lambda tensor: tensor.update(datatype="BYTES")),
    "S202": each_value(lambda value: f"{value}.000000" if ":" in str(value) else value),
}
"""Point -> its fault."""
