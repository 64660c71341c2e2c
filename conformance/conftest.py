"""Which server the suite talks to, and the report of its points at the end."""

import json
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from conformance.launch import Target, serve
from conformance.old import OldRest, OldRpc
from conformance.points import SECRET, Tally
from conformance.rest import Rest
from conformance.rpc import Rpc

REPOS = Path(__file__).parent / "repos"
TALLY = pytest.StashKey[Tally]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--url", help="REST address of the server under test: http://host:port")
    group.addoption("--grpc", help="gRPC address of the server under test: host:port")
    group.addoption("--metrics-url", help="where its metrics are: http://host:port/metrics")
    group.addoption("--unready-url", help="REST address of a server whose model `broken` failed")
    group.addoption(
        "--restricted-url",
        help="REST address of a server that restricts metadata to the header in points.SECRET",
    )
    group.addoption(
        "--unshared-url", help="REST address of a server whose shared memory is turned off"
    )
    group.addoption(
        "--explicit-url", help="REST address of a server of v2 whose models clients load and unload"
    )
    group.addoption("--report", type=Path, help="write the outcome of every point here, as JSON")
    group.addoption(
        "--break",
        dest="control",
        help="control address of the wrong server: break the point of each test",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = Tally()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the suite's own test out, unless it is asked for: it runs the suite."""
    if collection_path.name == "test_suite_itself.py":
        return not any(collection_path.name in argument for argument in config.args)
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        config.stash[TALLY].claim(list(item.iter_markers("point")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.config.stash[TALLY].record(list(item.iter_markers("point")), report)
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    tally = config.stash[TALLY]
    if not tally.points:
        return
    write = terminalreporter.write_line
    terminalreporter.section("conformance points")
    counts: dict[str, int] = {}
    for row in tally.rows():
        state = str(row["state"])
        counts[state] = counts.get(state, 0) + 1
        if state != "passed":
            write(f"{state}: {row['point']} {row['level']} {row['text']}")
    unexplained = tally.unexplained()
    write(", ".join(f"{count} {state}" for state, count in counts.items()))
    write(f"{len(unexplained)} unexplained points {' '.join(unexplained)}".rstrip())
    if (path := config.getoption("--report")) is not None:
        report = {"counts": counts, "unexplained": unexplained, "points": tally.rows()}
        path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """The server under test: the one named by --url, else our own, started for the run."""
    url = request.config.getoption("--url")
    if url:
        option = request.config.getoption
        yield Target(url, option("--grpc"), option("--metrics-url"))
    else:
        with serve(REPOS / "v2", "--cache-config=local,size=1000000") as own:
            yield own


@pytest.fixture(scope="session")
def rest(target: Target) -> Rest:
    return Rest(target.url)


@pytest.fixture(scope="session")
def rpc(target: Target) -> Iterator[Rpc]:
    if not target.grpc:
        pytest.skip("needs --grpc host:port")
    client = Rpc(target.grpc)
    yield client
    client.close()


@pytest.fixture(scope="session")
def old(rest: Rest) -> OldRest:
    """The TensorRT Inference Server API over HTTP."""
    return OldRest(rest)


@pytest.fixture(scope="session")
def old_rpc(rpc: Rpc) -> OldRpc:
    """The same over gRPC."""
    return OldRpc(rpc.channel)


@pytest.fixture(scope="session")
def metrics(target: Target) -> str:
    """The URL of the server's metrics."""
    if not target.metrics:
        pytest.skip("needs --metrics-url http://host:port/metrics")
    return target.metrics


@pytest.fixture(scope="session")
def unready(request: pytest.FixtureRequest) -> Iterator[Rest]:
    """A server with strict readiness, one of whose models failed to load."""
    url = request.config.getoption("--unready-url")
    if url:
        yield Rest(url)
    elif request.config.getoption("--url"):
        pytest.skip("needs --unready-url: a server of conformance/repos/broken")
    else:
        with serve(REPOS / "broken", ready=False) as own:
            yield Rest(own.url)


@pytest.fixture(scope="session")
def restricted(request: pytest.FixtureRequest) -> Iterator[Rest]:
    """A server whose metadata only those may see who send the header SECRET."""
    url = request.config.getoption("--restricted-url")
    if url:
        yield Rest(url)
    elif request.config.getoption("--url"):
        pytest.skip("needs --restricted-url: a server that restricts metadata to a header")
    else:
        option = f"--http-restricted-api=metadata:{'='.join(SECRET)}"
        with serve(REPOS / "v2", option) as own:
            yield Rest(own.url)


@pytest.fixture(scope="session")
def unshared(request: pytest.FixtureRequest) -> Iterator[Rest]:
    """A server whose clients may not use shared memory."""
    url = request.config.getoption("--unshared-url")
    if url:
        yield Rest(url)
    elif request.config.getoption("--url"):
        pytest.skip("needs --unshared-url: a server whose shared memory is turned off")
    else:
        with serve(REPOS / "v2", "--allow-client-shm=false") as own:
            yield Rest(own.url)


@pytest.fixture(scope="session")
def explicit(request: pytest.FixtureRequest) -> Iterator[Rest]:
    """A server of the repository v2 whose models clients load and unload."""
    url = request.config.getoption("--explicit-url")
    if url:
        yield Rest(url)
    elif request.config.getoption("--url"):
        pytest.skip("needs --explicit-url: a server whose models clients load and unload")
    else:
        with serve(REPOS / "v2", "--model-control-mode=explicit") as own:
            yield Rest(own.url)


@pytest.fixture(autouse=True)
def _fault(request: pytest.FixtureRequest) -> None:
    """With --break, have the (wrong) server break exactly this test's points while it runs."""
    control = request.config.getoption("control")
    if control:
        points = [mark.args[0] for mark in request.node.iter_markers("point")]
        assert len(points) == 1, "a test proves one point"
        assert Rest(control).request("POST", f"/fault/{points[0]}").status == 200
