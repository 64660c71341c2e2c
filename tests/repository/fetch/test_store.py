"""What has been fetched: found again, shared, complete or not there."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from small_hub import tar_of

from inferd.errors import InvalidConfig, NotLoadable
from inferd.repository.fetch.download import PART
from inferd.repository.fetch.settings import fetch_settings

FETCH = """
import os, sys
from inferd.repository.fetch.settings import fetch_settings
from inferd.repository.fetch.store import fetched
from inferd.repository.fetch.url import model_url
{before}
print(fetched(model_url(sys.argv[1]), fetch_settings(os.environ), os.environ))
"""


LISTENS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
"""A background job is born deaf to Ctrl-C."""


@pytest.fixture
def moving(hub):
    """moving(content) makes hf://org/name consist of another model.onnx."""

    def move(content):
        return hub.put_hub_model("org/name", {"model.onnx": content})

    move(b"first")
    return move


def in_process(link, before=""):
    command = [sys.executable, "-c", FETCH.format(before=before), link]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_what_is_there_is_not_fetched_again(hub, moving, fetch):
    folder = fetch("hf://org/name")
    hub.requests.clear()
    assert fetch("hf://org/name") == folder
    assert hub.paths == ["/api/models/org/name/revision/main?blobs=true"]


def test_a_link_that_is_there_asks_nobody(hub, fetch):
    link = hub.put("/m.onnx", b"m")
    folder = fetch(link)
    hub.close()
    assert fetch(link) == folder


def test_a_commit_that_is_there_asks_nobody(hub, moving, fetch):
    commit = hub.put_hub_model("org/name", {"model.onnx": b"first"})
    folder = fetch(f"hf://org/name@{commit}")
    hub.close()
    assert fetch(f"hf://org/name@{commit}") == folder


def test_a_branch_that_moved_leads_to_another_folder_and_the_old_one_stays(moving, fetch, tree):
    before = fetch("hf://org/name")
    commit = moving(b"second")
    after = fetch("hf://org/name")
    assert (tree(before), tree(after)) == ({"model.onnx": b"first"}, {"model.onnx": b"second"})
    assert fetch(f"hf://org/name@{commit}") == after


def test_offline_what_was_fetched_is_served_and_nobody_asked(hub, moving, fetch):
    with pytest.raises(NotLoadable, match="'hf://org/name' has not been fetched before, and --off"):
        fetch("hf://org/name", is_offline=True)
    folder = fetch("hf://org/name")
    moving(b"second")
    hub.requests.clear()
    assert fetch("hf://org/name", is_offline=True) == folder
    assert hub.requests == []


def test_a_hub_that_does_not_answer_does_not_keep_a_model_from_being_served(
    hub, moving, fetch, caplog, monkeypatch
):
    monkeypatch.setattr("inferd.repository.fetch.web.WAITS_S", ())
    folder = fetch("hf://org/name")
    hub.answers["/api/models/org/name/revision/main"] = lambda request: request.answer(503, b"")
    assert fetch("hf://org/name") == folder
    assert "what was fetched before is served" in caplog.text
    hub.answers["/api/models/org/name/revision/main"] = lambda request: request.answer(404, b"")
    with pytest.raises(NotLoadable, match="is not there"):
        fetch("hf://org/name")


def test_processes_of_one_server_serve_the_same(moving, fetch, tmp_path):
    (tmp_path / "run").mkdir()
    first = fetch("hf://org/name", pins=tmp_path / "run")
    moving(b"second")
    assert fetch("hf://org/name", pins=tmp_path / "run") == first
    assert fetch("hf://org/name") != first


def test_a_damaged_model_is_fetched_again(moving, fetch, tree, caplog):
    folder = fetch("hf://org/name")
    (folder / "model.onnx").write_bytes(b"fir")
    assert tree(fetch("hf://org/name")) == {"model.onnx": b"first"}
    assert "was damaged" in caplog.text


def test_what_a_model_writes_beside_its_files_is_no_damage(hub, moving, fetch):
    folder = fetch("hf://org/name")
    (folder / "cache").write_bytes(b"x")
    assert fetch("hf://org/name") == folder
    assert (folder / "cache").exists()


def test_processes_at_once_fetch_a_model_once(hub, fetch):
    link = hub.put("/m.tar.gz", tar_of({"m/model.onnx": os.urandom(1_000_000)}))
    processes = [in_process(link) for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    assert len(hub.requests) == 1


def test_threads_at_once_fetch_a_model_once(hub, fetch):
    link = hub.put("/m.onnx", os.urandom(1_000_000))
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(fetch, [link] * 4))
    assert found == {fetch(link)}
    assert len(hub.requests) == 1


def test_ctrl_c_leaves_a_part_with_which_the_next_run_goes_on(hub, fetch, tmp_path):
    content = os.urandom(1_000_000)
    link = hub.put("/m.onnx", content)

    def interrupt(request):
        hub.answers.clear()
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content[:400_000])
        request.wfile.flush()
        while not any(part.stat().st_size for part in tmp_path.rglob(f"*{PART}")):
            pass
        process.send_signal(signal.SIGINT)
        process.wait(60)

    hub.answers["/m.onnx"] = interrupt
    process = in_process(link, LISTENS)
    _, error = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in error
    assert (fetch(link) / "m.onnx").read_bytes() == content
    assert hub.requests[-1][1]["Range"].startswith("bytes=")


def test_a_disk_that_is_full_is_said_and_the_next_run_goes_on(hub, fetch):
    content = os.urandom(1_000_000)
    link = hub.put("/m.onnx", content)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))"
    process = in_process(link, limit)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "/m.onnx' cannot be stored in" in error
    assert "File too large" in error
    assert (fetch(link) / "m.onnx").read_bytes() == content


def test_a_folder_that_cannot_be_written_is_said(hub, fetch, tmp_path):
    (tmp_path / "stored").write_text("a file")
    with pytest.raises(InvalidConfig, match=r"/m.onnx' cannot be stored in .*: Not a directory"):
        fetch(hub.put("/m.onnx", b"m"))


def test_nothing_stays_of_an_archive_that_is_refused_but_what_arrived(hub, fetch, tmp_path):
    link = hub.put("/m.tar", tar_of({"../x": b"bad"}))
    with pytest.raises(NotLoadable, match="leads out"):
        fetch(link)
    assert not list((tmp_path / "stored").rglob("files.json"))
    with pytest.raises(NotLoadable, match="leads out"):
        fetch(link)
    assert len(hub.requests) == 1


def test_a_name_that_no_model_can_have_becomes_model(hub, fetch):
    hub.put_hub_model("org/.x", {"model.onnx": b"m"})
    assert fetch("hf://org/.x").name == "model"


def test_a_model_may_be_called_as_a_file_of_ours(hub, fetch, tree):
    hub.put_hub_model("org/files.json", {"model.onnx": b"m"})
    assert tree(fetch("hf://org/files.json")) == {"model.onnx": b"m"}


def test_without_a_setting_models_are_stored_with_the_users_caches(monkeypatch, tmp_path):
    monkeypatch.delenv("INFERD_FETCH_DIRECTORY")
    assert fetch_settings(os.environ).folder == tmp_path / "home/.cache/inferd/models"
    monkeypatch.setenv("INFERD_OFFLINE", "on")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    settings = fetch_settings(os.environ)
    assert (str(settings.folder), settings.is_offline) == ("/caches/inferd/models", True)
