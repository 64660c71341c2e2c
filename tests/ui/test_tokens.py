import stat
import threading

import pytest

from inferd.ui.tokens import SESSION_S, OwnUses, Tokens, own_tokens, shared_tokens


@pytest.fixture
def clock():
    """The time, which the test changes: clock.now."""

    class Clock:
        now = 1000.0

        def __call__(self):
            return self.now

    return Clock()


def test_a_token_gives_a_session_once():
    tokens = own_tokens()
    token = tokens.token()
    session = tokens.unlock(token)
    assert session and tokens.is_session(session)
    assert tokens.unlock(token) is None
    assert tokens.token() != token
    assert tokens.unlock(tokens.token())


def test_what_was_not_given_opens_nothing():
    tokens, others = own_tokens(), own_tokens()
    for wrong in (
        "",
        "x",
        others.token(),
        tokens.token()[:-1],
        tokens.token() + "x",
        "ä",
        "\ud800",
    ):
        assert tokens.unlock(wrong) is None
    assert tokens.unlock(tokens.token())  # nothing of that used it up


def test_a_session_of_another_server_is_none():
    tokens, others = own_tokens(), own_tokens()
    session = others.unlock(others.token())
    assert not tokens.is_session(session)


def test_nobody_can_change_a_session(clock):
    tokens = Tokens(b"secret", OwnUses(), clock)
    until, nonce, signature = tokens.unlock(tokens.token()).split(".")
    assert tokens.is_session(f"{until}.{nonce}.{signature}")
    for wrong in (
        f"{int(until) + 1}.{nonce}.{signature}",
        f"{until}.{nonce}x.{signature}",
        f"{until}.{nonce}.{signature[:-1]}",
        f"{until}.{nonce}.",
        signature,
        "",
        "..",
        "ä.ö.ü",
    ):
        assert not tokens.is_session(wrong)


def test_a_token_is_no_session():
    tokens = own_tokens()
    assert not tokens.is_session(tokens.token())
    assert not tokens.is_session(f"token 0.{tokens.token()}")


def test_a_session_ends(clock):
    tokens = Tokens(b"secret", OwnUses(), clock)
    session = tokens.unlock(tokens.token())
    clock.now += SESSION_S - 1
    assert tokens.is_session(session)
    clock.now += 1
    assert not tokens.is_session(session)


def test_all_processes_of_a_server_have_the_same_tokens_and_sessions(tmp_path):
    one, other = shared_tokens(tmp_path), shared_tokens(tmp_path)
    token = one.token()
    assert other.token() == token
    session = other.unlock(token)
    assert one.is_session(session)
    assert one.unlock(token) is None
    assert shared_tokens(tmp_path).unlock(token) is None  # one that is started later
    assert one.token() == other.token() != token


def test_of_many_processes_one_takes_a_token(tmp_path):
    token = shared_tokens(tmp_path).token()
    processes = [shared_tokens(tmp_path) for _ in range(8)]
    start, given = threading.Barrier(len(processes)), []

    def take(tokens):
        start.wait()
        given.append(tokens.unlock(token))

    threads = [threading.Thread(target=take, args=(one,)) for one in processes]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(given) == len(processes)
    assert sum(session is not None for session in given) == 1


def test_what_the_processes_share_is_readable_by_them_alone(tmp_path):
    tokens = shared_tokens(tmp_path)
    tokens.unlock(tokens.token())
    files = list(tmp_path.iterdir())
    assert sorted(file.name for file in files) == ["ui-secret", "ui-token-0"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        shared_tokens(tmp_path / "nowhere")
