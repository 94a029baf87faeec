"""What commands read: a file or standard input, and long lists in chunks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from gnomon.model.errors import InvalidRequest

T = TypeVar("T")

CHUNK_BYTES = 4 * 1024 * 1024  # half of what the server takes in one call


def read_place(place: str) -> bytes:
    """The content of a file; `-` is standard input. Errors: InvalidRequest."""
    if place == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(place).read_bytes()
    except OSError as exc:
        raise InvalidRequest(f"{place} cannot be read: {exc.strerror}") from None


def numbered_lines(text: bytes) -> list[tuple[int, bytes]]:
    """The lines that are not empty, with their numbers."""
    return [(number, line) for number, line in enumerate(text.split(b"\n"), 1) if line.strip()]


def chunks(sized: Iterable[tuple[T, int]], *, count_max: int) -> Iterator[list[T]]:
    """Items in lists that fit into one call each: bounded in number, and in bytes."""
    chunk: list[T] = []
    size = 0
    for item, weight in sized:
        if chunk and (len(chunk) >= count_max or size + weight > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += weight
    if chunk:
        yield chunk
