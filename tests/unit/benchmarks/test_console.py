"""The benchmark of the console asks for all that its views ask for."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from starlette.routing import compile_path

from benchmarks.scenarios.console import asks_of
from gnomon import console
from gnomon.gateways.rest.routes import ROUTES

PAGES = Path(console.__file__).parent / "static"
NOT_MEASURED = {
    "events": "a stream: its first event is what `get` answers",
    "get_limit": "its path is that of changing a limit; the list is read",
    "get_state": "no view asks for it",
}
_TEXT = re.compile(r"""["`](/?(?:v1/|health|openapi)[^"`]*|\$\{\w+\([^`]*?\)\}/[^"`]*)["`]""")
_NAMED = re.compile(r"const (\w+) = \([\w, ]*\) => `(v1/[^`]*)`")
_CALLED = re.compile(r"\$\{(\w+)\((?:[^()]|\([^()]*\))*\)\}")
_HOLE = re.compile(r"\$\{[^{}]*\}")


def asked_by(text: str) -> set[str]:
    """The paths that a file of the console names, with x for what it fills in."""
    named = dict(_NAMED.findall(text))
    paths = set()
    for found in _TEXT.findall(text):
        whole = _CALLED.sub(lambda call: named.get(call[1], call[0]), found)
        paths.add("/" + _HOLE.sub("x", whole).lstrip("/"))
    return paths


def routes_of(paths: set[str]) -> set[str]:
    """The names of the routes that answer a GET of these."""
    return {
        route.operation
        for route in ROUTES
        if route.method == "GET"
        and any(compile_path(route.path)[0].match(urlsplit(path).path) for path in paths)
    }


def test_every_question_of_the_console_is_measured() -> None:
    """A view that asks for something else fails this test until the benchmark asks for it, too."""
    files = [*PAGES.glob("*.js"), *PAGES.glob("views/*.js")]
    asked = routes_of({path for file in files for path in asked_by(file.read_text())})
    ids = dict.fromkeys(("cursor", "waits", "dead", "table"), "x")
    measured = routes_of(set(asks_of(datetime.now(UTC), ids).values()))
    assert {"list", "count", "figures", "attempts", "why", "explain_entity", "get_task"} <= asked
    assert set() == asked - measured - NOT_MEASURED.keys()


def test_a_path_is_found_however_it_is_put_together() -> None:
    """As it stands, as a template, and with another template in it."""
    text = """
        const route = (id) => `v1/actions/${encodeURIComponent(id)}`;
        get("v1/figures"); get(`v1/stages/${name}`); get(`${route(action.meta.id)}/why`);
    """
    assert {"/v1/figures", "/v1/stages/x", "/v1/actions/x", "/v1/actions/x/why"} == asked_by(text)
