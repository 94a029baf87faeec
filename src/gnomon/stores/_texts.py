"""Short lists of texts that stand in one column as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

KEPT_LENGTH_MAX = 4  # longer lists may be large

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(tuple[str, ...])


def write_texts(texts: Sequence[str]) -> str:
    if type(texts) is tuple and len(texts) <= KEPT_LENGTH_MAX:
        return _written(texts)
    return _ENCODER.encode(texts).decode()


@lru_cache(1_024)  # the same few come again and again
def _written(texts: tuple[str, ...]) -> str:
    return _ENCODER.encode(texts).decode()


def read_texts(text: str, *, unreadable: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What stands there; one row that somebody spoilt must not hide the others."""
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return unreadable
