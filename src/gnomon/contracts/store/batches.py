"""How much of entities is loaded or sent at once: a batch is bounded by bytes besides rows.

A document and each of its states have up to 1 MiB, so that a batch of 500 rows could be a gigabyte.
A batch ends with the entity by which it reaches the bound: so it has at least one, however large
that is, and who gets one of that size knows that there may be more.
"""

from __future__ import annotations

from collections.abc import Iterable

BATCH_BYTES_MAX = 8 * 1024 * 1024  # what a worker holds is a few of these for each stage


def bytes_of(text: str | None) -> int:
    """Of a document; a tombstone has none."""
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode())


def first_within(sizes: Iterable[int]) -> int:
    """How many of these, from the first, make one batch: it ends with the one that reaches
    `BATCH_BYTES_MAX`."""
    count = total = 0
    for size in sizes:
        if total >= BATCH_BYTES_MAX:
            break
        count, total = count + 1, total + size
    return count
