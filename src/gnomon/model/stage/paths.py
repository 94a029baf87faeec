"""Paths into a JSON document: what a stage watches, what it may write, what a change touched.

A path is its keys joined by dots: `photos.a1.url`; a dot or backslash inside a key is written with
a backslash before it. The empty path, also written `*`, is the whole document. Lists are leaves:
they are replaced whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

WHOLE = ""
PATHS_MAX = 64  # a change with more is told by its first keys only
PATH_CHARS_MAX = 1_024  # a longer one is told by what lies above it

Json = object

_MISSING = object()
_SCALARS = (str, int, float, bool, type(None), object)


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
        if path not in allowed and not any(covers(outer, path) for outer in allowed)
    ]


def changed_paths(before: Json, after: Json, patch: Json = None) -> tuple[str, ...]:
    """Where two documents differ, sorted; equal documents: nothing. A merge patch that made the
    one of the other tells where to look; without one they are compared whole."""
    return coarse(_differences(before, after, patch, WHOLE))


def coarse(paths: Iterable[str]) -> tuple[str, ...]:
    """Paths as a note holds them, sorted: if there are too many, only their first keys; if there
    are too many of these, the whole document. More may be told by it, never less."""
    rest = iter(paths)
    told = set(islice(rest, PATHS_MAX))
    shorten: Callable[[str], str] = str
    for path in rest:
        told.add(shorten(path))
        if len(told) > PATHS_MAX and shorten is str:
            told, shorten = set(map(_first_key, told)), _first_key
        if len(told) > PATHS_MAX:
            return (WHOLE,)
    return (WHOLE,) if WHOLE in told else tuple(sorted(told))


def _differences(before: Json, after: Json, patch: Json, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        within = patch if type(patch) is dict or isinstance(patch, Mapping) else None
        for key in before.keys() | after.keys() if within is None else within:
            one, other = before.get(key, _MISSING), after.get(key, _MISSING)
            if one is other:  # what a patch leaves alone is the same object
                continue
            here = join(path, key)
            if len(here) > PATH_CHARS_MAX:
                yield from () if same(one, other) else (path,)
            elif isinstance(one, dict) and isinstance(other, dict):
                yield from _differences(one, other, within and within[key], here)
            elif not same(one, other):
                yield here
    elif not same(before, after):
        yield path


def same(one: Json, other: Json) -> bool:
    """Equal as JSON: `1`, `1.0` and `true` are three different things."""
    if type(one) in _SCALARS:  # nearly always; to ask for a mapping is slow
        return type(one) is type(other) and one == other
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
