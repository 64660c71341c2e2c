"""Downloads: resumed where they broke off, bounded, verified."""

import hashlib
import itertools

import pytest

from inferd.errors import NotLoadable
from inferd.repository.fetch.download import PART, download
from inferd.repository.fetch.snapshot import RemoteFile
from inferd.repository.fetch.web import NotAnswered, NotGiven, TooSlow, Web

CONTENT = bytes(range(256)) * 40
SIZE = len(CONTENT)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
GIT = hashlib.sha1(b"blob %d\0" % len(CONTENT) + CONTENT).hexdigest()


@pytest.fixture
def bring(hub, tmp_path):
    """bring(...) downloads /file; `bring.waits` are the pauses, `bring.seen` what arrived."""
    hub.files["/file"] = CONTENT

    def run(size=SIZE, digest=f"sha256:{SHA256}", max_bytes=1 << 20):
        file = RemoteFile("file", f"{hub.url}/file?key=hidden", size, digest)
        target = tmp_path / "file"
        download(
            Web(wait=run.waits.append), file, target, max_bytes, lambda *seen: run.seen.append(seen)
        )
        assert not target.with_name(f"file{PART}").exists()
        return target.read_bytes()

    run.waits, run.seen = [], []
    run.part = tmp_path / f"file{PART}"
    return run


def test_how_large_a_file_is_may_be_known_only_from_the_response(bring):
    assert bring(size=None) == CONTENT
    assert bring.seen[-1] == (SIZE, SIZE)


def ranges(hub):
    return [headers.get("Range") for _, headers in hub.requests]


@pytest.mark.parametrize("digest", [f"sha256:{SHA256}", f"git:{GIT}", ""])
def test_a_file_arrives(bring, digest):
    assert bring(digest=digest) == CONTENT
    assert bring.seen[-1] == (SIZE, SIZE)


def test_what_broke_off_goes_on_where_it_was(bring, hub):
    hub.breaks = [1000, 2000, None]
    assert bring() == CONTENT
    assert ranges(hub) == [None, "bytes=1000-", "bytes=3000-"]
    assert bring.waits == [0.0, 0.0]  # as long as more arrives, there is no reason to wait


@pytest.mark.parametrize("digest", [f"sha256:{SHA256}", ""])
def test_a_body_in_chunks_that_ends_too_early_is_not_whole(bring, hub, digest):
    def answer(request):
        del hub.answers["/file"]
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"3e8\r\n" + CONTENT[:1000] + b"\r\n")
        request.close_connection = True

    hub.answers["/file"] = answer
    assert bring(size=None, digest=digest) == CONTENT
    assert ranges(hub) == [None, "bytes=1000-" if digest else None]


def test_what_an_earlier_run_left_is_used(bring, hub):
    bring.part.write_bytes(CONTENT[:5000])
    assert bring() == CONTENT
    assert ranges(hub) == ["bytes=5000-"]


def test_what_is_there_already_as_a_whole_is_not_fetched(bring, hub):
    bring.part.write_bytes(CONTENT)
    assert bring() == CONTENT
    assert hub.requests == []


def test_a_site_without_ranges_sends_the_file_again(bring, hub):
    hub.forgets = True
    hub.breaks = [1000]
    assert bring() == CONTENT


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_rest_of_another_file_is_given_up(bring, hub, size):
    bring.part.write_bytes(b"x" * 5000)
    assert bring(size=size) == CONTENT
    assert ranges(hub) == ["bytes=5000-", None]


def test_a_rest_that_is_longer_than_the_file_is_given_up(bring, hub):
    bring.part.write_bytes(b"x" * (len(CONTENT) + 1))
    assert bring(size=None) == CONTENT
    assert ranges(hub) == [f"bytes={len(CONTENT) + 1}-", None]


def test_a_part_of_the_file_that_was_not_asked_for_is_not_taken(bring, hub):
    def wrong(request):
        hub.answers.clear()
        request.answer(206, CONTENT[:10], {"Content-Range": f"bytes 0-9/{len(CONTENT)}"})

    bring.part.write_bytes(CONTENT[:5000])
    hub.answers["/file"] = wrong
    assert bring() == CONTENT


def test_a_wrong_checksum_is_an_error_and_nothing_stays(bring, hub, tmp_path):
    hub.files["/file"] = CONTENT[:-1] + b"!"
    with pytest.raises(NotLoadable, match=rf"/file' is not what .* its SHA-256 is .* {SHA256}$"):
        bring()
    assert list(tmp_path.glob("file*")) == []


def test_a_wrong_size_is_an_error(bring):
    with pytest.raises(NotLoadable, match="is not what was announced: it has 10240 bytes, expect"):
        bring(size=20000, digest="")


@pytest.mark.parametrize("announces", [True, False])
def test_a_body_without_end_is_cut_off(bring, hub, announces):
    sent = []

    def endless(request):
        request.send_response(200)
        if announces:
            request.send_header("Content-Length", str(1 << 50))
        request.end_headers()
        while len(sent) < 10000:
            request.wfile.write(b"x" * 65536)
            sent.append(1)

    hub.answers["/file"] = endless
    words = r"sends more than the 10240 bytes that it was said to have$"
    with pytest.raises(NotLoadable, match=words):
        bring()
    with pytest.raises(NotLoadable, match=r"/file' has more than 1000000 bytes \(--fetch-max-by"):
        bring(size=None, max_bytes=1_000_000)
    assert len(sent) < 1000
    assert not bring.part.exists() or bring.part.stat().st_size == 0


def test_a_site_that_is_busy_is_asked_again_and_given_up_at_last(bring, hub):
    hub.answers["/file"] = lambda request: request.answer(503, b"", {"Retry-After": "7"})
    with pytest.raises(NotAnswered, match=r"/file' answers with status 503; try again later$"):
        bring()
    assert bring.waits == [7.0, 0.0, 7.0, 1.0, 7.0, 3.0, 7.0, 8.0, 7.0]


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "wants a login"), (403, "may not be read"), (404, "is not there"), (418, "status 418")],
)
def test_a_refusal_is_said_at_once_without_secrets(bring, hub, status, words):
    hub.answers["/file"] = lambda request: request.answer(status, b"hidden")
    with pytest.raises(NotGiven, match=words) as failure:
        bring()
    assert bring.waits == []
    assert "hidden" not in failure.value.message


def test_a_site_that_is_not_there_is_said(bring, hub):
    hub.close()
    with pytest.raises(NotAnswered, match="/file' does not answer: Connection refused"):
        bring()


def test_a_file_without_content_arrives(bring, hub):
    hub.files["/file"] = b""
    assert bring(size=0, digest=f"sha256:{hashlib.sha256().hexdigest()}") == b""


def test_a_size_that_is_announced_does_not_lift_the_limit(bring):
    with pytest.raises(NotLoadable, match=r"/file' has more than 5000 bytes \(--fetch-max-bytes\)"):
        bring(max_bytes=5000)


def test_a_site_that_sends_drops_is_given_up(hub, tmp_path):
    hub.files["/file"] = CONTENT
    seconds = itertools.count(step=100.0)
    web = Web(wait=lambda _: None, clock=lambda: next(seconds))
    words = r"/file' sends less than 60000 bytes in 60 s$"
    with pytest.raises(TooSlow, match=words):
        download(
            web, RemoteFile("file", f"{hub.url}/file"), tmp_path / "file", SIZE, lambda *_: None
        )
    with pytest.raises(TooSlow, match=words):
        web.document(f"{hub.url}/file")
    assert len(hub.requests) == 2


def test_a_large_file_may_take_long(hub, tmp_path):
    hub.files["/file"] = CONTENT * 100
    seconds = itertools.count()
    web = Web(wait=lambda _: None, clock=lambda: next(seconds) * 1.0)
    file = RemoteFile("file", f"{hub.url}/file")
    download(web, file, tmp_path / "file", SIZE * 100, lambda *_: None)
    assert (tmp_path / "file").read_bytes() == CONTENT * 100
