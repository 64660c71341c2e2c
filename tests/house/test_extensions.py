"""docs/reference/extensions.md against the code: each tells what the other has."""

import logging
import re
from pathlib import Path

import pytest

from inferd.api.grpc_methods import grpc_methods
from inferd.api.routes import HttpRoutes
from inferd.api.trtis.mount import TrtisMount
from inferd.api.v2.calls import Apis
from inferd.config.options.option import options_of
from inferd.config.server import ServerConfig
from inferd.engine.engine import EXTENSIONS, Engine
from inferd.http.access import OPEN
from inferd.http.failure import FailureLog
from inferd.wire.json.document import OutputParameters
from inferd.wire.v2.grpc import parameters as v2_grpc_parameters
from inferd.wire.v2.rest import parameters as v2_rest_parameters
from inferd.wire.v2.rest.codec import JsonRules

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/extensions.md").read_text()
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
OLD = "The TensorRT Inference Server API"
ABOUT = {"The protocol itself", "Describing itself", OLD}


def offered(name):
    return name in ABOUT or SECTIONS[name].startswith("Offered. ")


def rows(name):
    """The rows of a section's tables, each its cells."""
    lines = re.findall(r"^\|(.*)\|$", SECTIONS[name], re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def spelled_out(path):
    """Return the paths that a path with [parts that may be left out] means."""
    found = re.search(r"\[(.*?)\]", path)
    if not found:
        return {path}
    with_it = path.replace(found[0], found[1], 1)
    return spelled_out(with_it) | spelled_out(path.replace(found[0], "", 1))


def routes_on_page(name):
    """The routes a section names, as (verb, path)."""
    return {
        (verb, path)
        for row in rows(name)
        for verb, pattern in re.findall(r"`([A-Z]+) (/(?:v2|api)[^`]*)`", row[0])
        for path in spelled_out(pattern)
    }


def rpcs_on_page(name):
    return {
        rpc for row in rows(name) if len(row) > 1 for rpc in re.findall(r"\b[A-Z]\w+", row[1])
    } & RPCS.keys()


def parameters_on_page(name):
    return {
        found[1] for row in rows(name) if (found := re.fullmatch(r"`([a-z_]+)(:<path>)?`", row[0]))
    }


async def never():
    raise NotImplementedError


RULES = JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=2**20)
TRTIS = TrtisMount(Engine(), None)
ROUTES = {
    (route.verb, route.path)
    for table in (
        HttpRoutes(Engine(), RULES, not_ready_status=400).table,
        TRTIS.http(OPEN, FailureLog(logging.getLogger("inferd.http")), forwards=False).routes(),
    )
    for route in table
}
RPCS = {
    path.rpartition("/")[2]: method
    for path, method in grpc_methods(
        Engine(), never, typed_answers=False, apis=Apis(mounts=(TRTIS,))
    ).items()
}
OFFERED = [name for name in SECTIONS if offered(name)]
WIRE = "".join(path.read_text() for path in (ROOT / "src/inferd/wire").rglob("*.py"))


def test_each_section_says_whether_it_is_offered():
    for name, text in SECTIONS.items():
        assert name in ABOUT or text.startswith(("Offered. ", "Not offered yet. ")), name


def test_what_the_server_lists_is_offered_and_the_reverse():
    assert set(OFFERED) - ABOUT == set(EXTENSIONS)


def test_each_route_is_on_the_page_once():
    named = [route for name in SECTIONS for route in sorted(routes_on_page(name))]
    assert sorted(named) == sorted(set(named))
    assert set(named) >= ROUTES


@pytest.mark.parametrize("name", OFFERED)
def test_what_is_offered_has_its_routes(name):
    assert routes_on_page(name) <= ROUTES


def test_what_is_not_offered_has_not_all_its_routes_and_calls():
    for name in SECTIONS.keys() - set(OFFERED):
        missing = routes_on_page(name) - ROUTES or (rpcs_on_page(name) and not_offered(name))
        assert missing or not routes_on_page(name), f"{name} is offered, and the page denies it"


def not_offered(name):
    return {rpc for rpc in rpcs_on_page(name) if is_refused(rpc)}


def is_refused(rpc):
    return RPCS[rpc].handler.__qualname__.startswith("_not_offered")


@pytest.mark.parametrize("name", OFFERED)
def test_what_is_offered_has_its_rpcs(name):
    assert not_offered(name) == set()


def test_each_rpc_is_on_the_page():
    assert set().union(*(rpcs_on_page(name) for name in SECTIONS)) == RPCS.keys()


@pytest.mark.parametrize("name", OFFERED)
def test_each_parameter_that_is_offered_is_known_to_the_wire(name):
    for parameter in parameters_on_page(name):
        assert re.search(rf"\b{parameter}\b", WIRE), parameter


def test_each_parameter_the_wire_knows_is_on_the_page():
    known = {
        *v2_rest_parameters._FIELDS,
        *v2_rest_parameters._SEQUENCE,
        *v2_grpc_parameters._KINDS,
        *re.findall(r'^    "([a-z_]+)": _Setting\(', WIRE, re.MULTILINE),
        *OutputParameters.__struct_fields__,
        *re.findall(r"parameters(?:\.get\(|\.pop\(|\[)\"([a-z_]+)\"", WIRE),
    }
    assert known <= set().union(*(parameters_on_page(name) for name in SECTIONS))


@pytest.mark.parametrize("name", SECTIONS)
def test_each_parameter_has_type_place_and_what_holds_without_it(name):
    for row in rows(name):
        if re.fullmatch(r"`[a-z_]+(:<path>)?`", row[0]):
            assert len(row) == 5, row
            assert row[1] and (row[2] or row[3]), row


def test_each_flag_on_the_page_is_an_option():
    flags = {option.flag for option in options_of(ServerConfig).values()}
    assert {flag.partition("=")[0] for flag in re.findall(r"--[a-z-]+[a-z]", PAGE)} <= flags
