"""Problem documents become the errors that the server raised."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from gnomon.model.errors import GnomonError, InvalidRequest, Unavailable


def _tree(root: type[GnomonError]) -> Iterator[type[GnomonError]]:
    yield root
    for child in root.__subclasses__():
        yield from _tree(child)


_CLASSES = {cls.code: cls for cls in _tree(GnomonError) if "code" in vars(cls)}


def error_of(status: int, document: Mapping[str, Any]) -> GnomonError:
    """The error with this code, with the fields that were told; unknown codes go by status."""
    detail = str(document.get("detail") or f"the server answered with status {status}")
    cls = _CLASSES.get(str(document.get("code")))
    if cls is None:
        cls = InvalidRequest if status < 500 else Unavailable if status == 503 else GnomonError
    error = _built(cls, document) or GnomonError(detail)
    error.args = (detail,)
    return error


def _built(cls: type[GnomonError], document: Mapping[str, Any]) -> GnomonError | None:
    if cls.__init__ is GnomonError.__init__:
        return cls()
    names = inspect.signature(cls).parameters
    try:
        return cls(**{name: document[name] for name in names if name in document})
    except TypeError:
        return None  # an older or newer server tells other fields
