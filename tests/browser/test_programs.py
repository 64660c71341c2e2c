"""The programs that the page writes: each is run, and gets the answer that the page got."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from strokes import DIGITS, draw

SECONDS = 60


def program(page, language):
    page.press(language)
    return page.page.locator("pre.program").inner_text()


def download_files(page, folder):
    for button in page.page.get_by_role("button", name=re.compile("^Download ")).all():
        if button.is_visible() and "Download " in button.inner_text():
            with page.page.expect_download() as download:
                button.click()
            download.value.save_as(folder / download.value.suggested_filename)


def ran(command, folder, **how):
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False, **how
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(text, folder):
    return ran([sys.executable, "-W", "ignore", "-c", text], folder)


@pytest.fixture
def shout(site, visit):
    page = visit(site.url).go("try", "shout", "1").title("Try shout")
    page.page.get_by_label("Text for text").fill('it\'s "$HOME" \\n `x` grüße')
    return page


LOUD = 'IT\'S "$HOME" \\N `X` GRüßE'


@pytest.fixture
def digit(site, visit):
    page = visit(site.url).go("try", "digits", "1").title("Try digits")
    draw(page.page, DIGITS[3])
    return page


@pytest.fixture
def colours(site, visit, tmp_path):
    """A tensor that is too long to stand in a program."""
    page = visit(site.url).go("try", "colours").title("Try colours")
    page.press("Numbers").press("Random")
    page.see("Shape 3 × 16 × 24")
    return page


def test_curl(shout, tmp_path):
    answer = json.loads(ran(["bash", "-c", program(shout, "curl")], tmp_path))
    assert answer["outputs"][0]["data"] == [LOUD]


def test_curl_with_a_file(colours, tmp_path):
    text = program(colours, "curl")
    download_files(colours, tmp_path)
    answer = json.loads(ran(["bash", "-c", text], tmp_path))
    assert answer["outputs"][0]["data"] == list(
        (tmp_path / "request.bin").read_bytes()[-3 * 16 * 24 :]
    )


def test_the_client_of_inferd(shout, digit, tmp_path):
    assert LOUD.encode().decode() in python(
        program(shout, "inferd.client") + "print(result.strings('loud')[0])", tmp_path
    )
    assert "[[3]]" in python(program(digit, "inferd.client"), tmp_path)


def test_the_client_of_inferd_with_a_file(colours, tmp_path):
    text = program(colours, "inferd.client")
    download_files(colours, tmp_path)
    check = "print((result['y'] == np.load('x.npy')).all())"
    assert python(text + check, tmp_path).strip().endswith("True")


def test_the_client_of_triton(shout, digit, tmp_path):
    assert "[[3]]" in python(program(digit, "tritonclient"), tmp_path)
    loud = "print(result.as_numpy('loud')[0].decode())"
    assert LOUD in python(program(shout, "tritonclient") + loud, tmp_path)


def test_javascript(shout, tmp_path):
    node = shutil.which("node")
    if node is None:  # then the browser runs it
        text = program(shout, "JavaScript").replace("console.log(", "return (")
        answer = shout.page.evaluate(f"async () => {{ {text} }}")
    else:
        text = program(shout, "JavaScript").replace(
            "console.log(", "process.stdout.write(JSON.stringify("
        )
        text = re.sub(r"json\(\)\);\s*$", "json()));", text)
        answer = json.loads(ran([node, "--input-type=module", "-e", text], tmp_path))
    assert answer["outputs"][0]["data"] == [LOUD]


def test_a_stream_in_each_language_that_has_one(site, visit, tmp_path):
    page = visit(site.url).go("try", "words", "1").title("Try words")
    page.page.get_by_label("Text for text").fill("one two")
    assert ran(["bash", "-c", program(page, "curl")], tmp_path).count("data:") >= 2
    assert python(program(page, "inferd.client"), tmp_path).count("word") == 2
    triton = program(page, "tritonclient").replace(":8001", f":{site.grpc_port}")
    assert "one " in python(triton, tmp_path)


@pytest.mark.parametrize("kind", ["digit", "colours"])
def test_grpcurl_sends_what_the_service_takes(request, kind, site, tmp_path):
    """There is no grpcurl here: the message is read as grpcurl reads it, and sent."""
    import grpc
    from google.protobuf import json_format
    from tritonclient.grpc import service_pb2

    page = request.getfixturevalue(kind)
    text = program(page, "grpcurl")
    assert "-plaintext" in text
    assert "127.0.0.1:8001 inference.GRPCInferenceService/ModelInfer" in text
    if "request.json" in text:
        download_files(page, tmp_path)
        body = (tmp_path / "request.json").read_text()
    else:
        body = re.search(r"-d '(.*)'", text, re.DOTALL)[1]
    message = json_format.Parse(body, service_pb2.ModelInferRequest())
    with grpc.insecure_channel(f"127.0.0.1:{site.grpc_port}") as channel:
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            service_pb2.ModelInferRequest.SerializeToString,
            service_pb2.ModelInferResponse.FromString,
        )
        answer = call(message)
    assert answer.model_name == message.model_name
    assert len(answer.raw_output_contents) == len(answer.outputs)
