"""Who may catch every exception: three named boundaries, and threads that hand an error on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.sources import Module, source_modules

BROAD = frozenset({"Exception", "BaseException"})
ALLOWED = {
    # The attempt boundary. All others go through `gnomon.boundary.AttemptBoundary`; these catch
    # more than `Exception`, or are too far down to import it.
    "worker.attempt.perform": "SystemExit of an action's function",
    "executors.python.execute": "SystemExit of a user's function",
    "executors.python._call": "whatever a user's function raises in its thread",
    "model.transition.decide": "a row that nobody can decide ends; pure, so it imports nothing",
    # The service-loop boundary is `gnomon.boundary.Round`. The gateways' boundary:
    "gateways.boundary.guarding": "",
    # Nothing is swallowed: whoever waits for the thread's answer gets the error.
    "executors._threads.perform": "",
    "stores.sqlite.connection._answered": "",
    "tasks.sqlite.thread._serve": "",
    "worker.heartbeat.body": "",
}
MAY_USE_THE_ATTEMPT_BOUNDARY = frozenset({"executors", "stages", "tasks", "worker", "boundary"})


def test_every_exception_is_caught_in_named_places_only() -> None:
    """A broad `except` elsewhere would hide a bug."""
    found = {place for module in source_modules() for place in broad_places(module)}
    found = {place for place in found if not place.startswith("testing.")}
    assert set(ALLOWED) == found


def test_the_attempt_boundary_is_for_attempts() -> None:
    """Gateways and stores translate what they know."""
    users = {
        module.name.removeprefix("gnomon.").partition(".")[0]
        for module in source_modules()
        if any(
            isinstance(node, ast.Name) and node.id == "AttemptBoundary"
            for node in ast.walk(module.tree)
        )
    }
    assert users <= MAY_USE_THE_ATTEMPT_BOUNDARY


def broad_places(module: Module) -> Iterator[str]:
    """The functions with a handler of every exception that does not raise it again."""
    for function in ast.walk(module.tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any(is_broad(node) for node in own_nodes(function)):
            yield f"{module.name.removeprefix('gnomon.')}.{function.name}"


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from own_nodes(node)


def is_broad(node: ast.AST) -> bool:
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
