"""What a worker must have to perform an effect, as a short text that never changes its form.

Not every worker serves everything: in a rolling deploy some know a function already and others do
not, and a configuration may lack a target. Who begins an action that it does not serve hands it
back by its need, and whoever serves the need begins it.
"""

from __future__ import annotations

from gnomon.model.outcome import cut
from gnomon.model.spec import Effect, Python, Unreadable

NEED_CHARS_MAX = 200  # names are shorter; what came into the store by way of SQL may not be

FUNCTION = "function "


def need_of(effect: Effect | Unreadable) -> str:
    """`function welcome`, `kafka target hub`, or `kind http` for what needs no name."""
    if isinstance(effect, Python):
        return function_need(effect.function)
    kind = str(type(effect).__struct_config__.tag)
    target = getattr(effect, "target", None)
    return kind_need(kind) if target is None else target_need(kind, target)


def function_need(name: str) -> str:
    """Of a call of the function that is registered under this name."""
    return cut(f"{FUNCTION}{name}", NEED_CHARS_MAX)


def target_need(kind: str, name: str) -> str:
    """Of an effect of this kind for the target that is configured under this name."""
    return cut(f"{kind} target {name}", NEED_CHARS_MAX)


def kind_need(kind: str) -> str:
    """Of an effect that every worker can perform which knows its kind."""
    return f"kind {kind}"
