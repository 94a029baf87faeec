"""Spec texts to specs. Actions that were stored in bulk often share one text, so it is remembered.

Who has a spec shares it with others: it is frozen, and who hands out what is inside copies it.
"""

from __future__ import annotations

from gnomon.model.codec import read_spec
from gnomon.model.spec import Spec

SPECS_CACHED = 1024
SPEC_CHARS_CACHED = 4096  # longer ones seldom repeat; so the cache stays within a few megabytes


class SpecCache:
    """Reads specs. May be used by several threads: at worst one of them reads a text again."""

    def __init__(self) -> None:
        self._specs: dict[str, Spec] = {}

    def read(self, text: str) -> Spec:
        spec = self._specs.get(text)
        if spec is None:
            spec = read_spec(text)
            if len(text) <= SPEC_CHARS_CACHED:
                if len(self._specs) >= SPECS_CACHED:
                    self._specs.clear()
                self._specs[text] = spec
        return spec
