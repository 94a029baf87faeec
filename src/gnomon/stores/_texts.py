"""Short lists of texts that stand in one column as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(tuple[str, ...])


def write_texts(texts: Sequence[str]) -> str:
    return _ENCODER.encode(texts).decode()


def read_texts(text: str, *, unreadable: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What stands there; one row that somebody spoilt must not hide the others."""
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return unreadable
