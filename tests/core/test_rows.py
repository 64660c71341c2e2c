from inferd.core.rows import INDEPENDENT, UNKNOWN, Verdict, verdict_of


class Silent:
    """An instance whose backend says nothing."""


class Telling:
    verdict = Verdict(INDEPENDENT, "every operator keeps rows apart")


def test_an_instance_tells_its_verdict_and_a_silent_one_leaves_it_open():
    assert verdict_of(Telling()) is Telling.verdict
    assert verdict_of(Silent()) == UNKNOWN
    assert UNKNOWN.rows == "open"
