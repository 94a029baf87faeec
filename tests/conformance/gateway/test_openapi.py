"""The OpenAPI document says what is there. Whether it is true is for test_schemathesis to find."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest
from starlette.responses import Response

from gnomon.gateways.auth import Principal, check_spec
from gnomon.gateways.changes import permitted
from gnomon.gateways.errors import TABLE
from gnomon.gateways.rest.route import Route
from gnomon.gateways.rest.routes import ROUTES, openapi_document
from gnomon.model.errors import Forbidden, InvalidRequest
from gnomon.model.spec import Mock, Spec
from gnomon.scheduler import Request
from tests.conformance.gateway.conftest import Gateway

METHODS = ("get", "put", "post", "patch", "delete")


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield method.upper(), path, item[method]


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_every_route_is_described_and_no_other() -> None:
    described = {(method, path) for method, path, _ in operations(openapi_document())}
    assert {(route.method, route.path) for route in ROUTES} == described
    assert len(described) == len(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_every_handler_takes_what_its_path_names(route: Route) -> None:
    """The variables of the path, and nothing else but the call; it answers what the row says."""
    parameters = list(inspect.signature(route.handler).parameters)
    assert ["call", *re.findall(r"{(\w+)}", route.path)] == parameters
    hints = get_type_hints(route.handler)
    assert hints["return"] in (route.answer, Response, type(None))
    assert (0 < route.bytes_max) == bool(route.bodies)


def test_every_reference_leads_somewhere() -> None:
    document = openapi_document()
    for reference in set(references(document)):
        found: Any = document
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
        assert found, reference


def test_every_operation_has_its_name_and_what_may_go_wrong() -> None:
    """One name each; 401, 403, 429 and 503 are possible everywhere."""
    found = list(operations(openapi_document()))
    names = [operation["operationId"] for _, _, operation in found]
    assert len(names) == len(set(names))
    for _, path, operation in found:
        assert {"401", "403", "429", "500", "503"} <= operation["responses"].keys(), path


def test_every_status_of_ours_is_described() -> None:
    """Each status of the table of errors has its problem document, with its codes."""
    described = openapi_document()["components"]["responses"]
    for row in TABLE.values():
        assert row.code in described[f"Problem{row.http}"]["description"]


async def test_the_document_says_whether_a_token_is_needed(gateway: Gateway) -> None:
    """It may be left out on an open server; /health never needs one."""
    document = (await gateway.call("GET", "/openapi.json")).json
    assert [{}, {"bearer": []}] == document["security"]
    assert json.loads(json.dumps(openapi_document(is_required=False))) == document
    assert [{"bearer": []}] == openapi_document(is_required=True)["security"]
    assert [] == document["paths"]["/health"]["get"]["security"]


async def test_options_names_all_methods(gateway: Gateway) -> None:
    answer = await gateway.call("OPTIONS", "/v1/actions/a")
    assert (204, "DELETE, GET, OPTIONS, PUT") == (answer.status, answer.headers["Allow"])


# -- actions that need more than `write` ----------------------------------------------------------


class Tagged:
    """Stands for an action of the kind `sql`, whose target is what counts."""

    target = "reports"

    class __struct_config__:  # noqa: N801 - as msgspec names it
        tag = "sql"


@pytest.mark.parametrize(
    ("scopes", "is_allowed"),
    [
        ({"write", "sql:reports"}, True),
        ({"admin"}, True),
        ({"write", "read"}, False),
        ({"write", "sql:other"}, False),
        ({"write", "sql:"}, False),
    ],
)
def test_sql_needs_the_scope_of_its_target(scopes: set[str], is_allowed: bool) -> None:
    """In a list the refused one is told at its place, and spoils no other."""
    principal = Principal(name="shop", scopes=frozenset(scopes))
    spec = Spec(action=Tagged())  # type: ignore[arg-type]
    request, plain = Request(spec=spec), Request(spec=Spec(action=Mock()))
    bad = InvalidRequest("already refused")
    assert plain is permitted(principal, plain)
    assert bad is permitted(principal, bad)
    if is_allowed:
        check_spec(principal, spec)
        assert request is permitted(principal, request)
    else:
        with pytest.raises(Forbidden) as refused:
            check_spec(principal, spec)
        assert "sql:reports" == refused.value.scope
        assert isinstance(permitted(principal, request), Forbidden)
