"""Paths into a JSON document: what a stage watches, what it may write, what a change touched.

A path is its keys joined by dots: `photos.a1.url`; a dot or backslash inside a key is written with
a backslash before it. The empty path, also written `*`, is the whole document. Lists are leaves:
they are replaced whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

WHOLE = ""
PATHS_MAX = 64  # a change with more is told by its first keys only

Json = object

_MISSING = object()


def normal(path: str) -> str:
    """The one way to write a path."""
    return WHOLE if path == "*" else path


def join(parent: str, key: str) -> str:
    """The path of a key below another path."""
    escaped = key.replace("\\", "\\\\").replace(".", "\\.") if "." in key or "\\" in key else key
    return f"{parent}.{escaped}" if parent else escaped


def covers(outer: str, inner: str) -> bool:
    """Whether `inner` is `outer` or lies below it."""
    return outer in (WHOLE, inner) or inner.startswith(outer + ".")


def meet(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether a path of the one kind is, contains or is contained in one of the other kind."""
    others = tuple(others)
    return any(covers(a, b) or covers(b, a) for a in some for b in others)


def outside(paths: Iterable[str], allowed: Iterable[str]) -> list[str]:
    """The paths that lie in none of the allowed ones."""
    allowed = tuple(allowed)
    return [
        path
        for path in paths
        if path not in allowed and not any(covers(each, path) for each in allowed)
    ]


def changed_paths(before: Json, after: Json) -> tuple[str, ...]:
    """Where two documents differ, sorted; equal documents: nothing."""
    found: list[str] = []
    _add_differences(found, before, after, WHOLE)
    found.sort()
    if len(found) <= PATHS_MAX:
        return tuple(found)
    firsts = sorted({_first_key(path) for path in found})
    return tuple(firsts) if len(firsts) <= PATHS_MAX else (WHOLE,)


def _add_differences(found: list[str], before: Json, after: Json, path: str) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            other = after.get(key, _MISSING)
            if other is _MISSING:
                found.append(join(path, key))
            elif other is not value:  # what a patch leaves alone is the same object
                _add_differences(found, value, other, join(path, key))
        found += [join(path, key) for key in after if key not in before]
    elif not same(before, after):
        found.append(path)


def same(one: Json, other: Json) -> bool:
    """Equal as JSON: `1`, `1.0` and `true` are three different things."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def _first_key(path: str) -> str:
    start = 0
    while (dot := path.find(".", start)) >= 0:
        backslashes = len(path[:dot]) - len(path[:dot].rstrip("\\"))
        if backslashes % 2 == 0:
            return path[:dot]
        start = dot + 1
    return path
