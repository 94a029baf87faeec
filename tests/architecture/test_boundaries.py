"""Who may catch every exception: three named boundaries."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.sources import Module, source_modules

BROAD = frozenset({"Exception", "BaseException"})
ALLOWED = {
    "model.attempt_boundary.__exit__": "somebody else's code was called: it fails alone",
    "boundary.__exit__": "a round of a service failed: it is told, and the loop goes on",
    "gateways.boundary.guarding": "a request failed: its caller is told",
}
# `model`: a row that nobody can decide. `boundary`: a thread hands on whatever was raised in it.
MAY_USE_THE_ATTEMPT_BOUNDARY = frozenset(
    {"executors", "stages", "tasks", "worker", "model", "boundary"}
)


def test_every_exception_is_caught_in_named_places_only() -> None:
    """A broad `except` elsewhere would hide a bug."""
    places = {place for module in source_modules() for place in broad_places(module)}
    assert set(ALLOWED) == {place for place in places if not place.startswith("testing.")}


def test_the_attempt_boundary_is_for_attempts() -> None:
    """Gateways and stores translate what they know."""
    users = {
        module.name.removeprefix("gnomon.").partition(".")[0]
        for module in source_modules()
        if any(isinstance(node, ast.Name) and node.id == "AttemptBoundary" for node in module.nodes)
    }
    assert users <= MAY_USE_THE_ATTEMPT_BOUNDARY


def broad_places(module: Module) -> Iterator[str]:
    """The functions with a handler of every exception that does not raise it again, and those that
    end a `with` and may say that nothing was raised."""
    for function in module.nodes:
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if may_swallow(function) or any(is_broad(node) for node in own_nodes(function)):
            yield f"{module.name.removeprefix('gnomon.')}.{function.name}"


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from own_nodes(node)


def may_swallow(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    if function.name not in ("__exit__", "__aexit__"):
        return False
    return not isinstance(function.returns, ast.Constant)  # `-> None` never does


def is_broad(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress")):
            return any(isinstance(name, ast.Name) and name.id in BROAD for name in node.args)
    if not isinstance(node, ast.ExceptHandler):
        return False
    caught = ast.walk(node.type) if node.type is not None else [ast.Name("BaseException")]
    names = {part.id for part in caught if isinstance(part, ast.Name)}
    is_raised = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
    return bool(names & BROAD) and not is_raised


def test_the_rule_refuses_a_broad_except() -> None:
    """And lets one pass that cleans up and raises again."""
    bad = "def f():\n    try:\n        g()\n    except Exception:\n        h()\n"
    assert ["bad.f"] == list(broad_places(Module.of_text("gnomon.bad", bad)))
    assert not list(broad_places(Module.of_text("gnomon.good", bad + "        raise\n")))


def test_the_rule_refuses_what_swallows_without_an_except() -> None:
    """And lets those pass that swallow nothing, or name what they do."""
    exit_of = "class C:\n    def __exit__(self, *_: object) -> {}: ...\n"
    suppressing = "def f():\n    with suppress({}):\n        g()\n"
    for bad in (exit_of.format("bool"), suppressing.format("Exception")):
        assert 1 == len(list(broad_places(Module.of_text("gnomon.bad", bad))))
    for good in (exit_of.format("None"), suppressing.format("OSError")):
        assert [] == list(broad_places(Module.of_text("gnomon.good", good)))
