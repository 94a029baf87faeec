"""The Python reference has the signatures of the code."""

from __future__ import annotations

import gnomon
from scripts.signatures import PAGE, python_page


def test_the_page_is_in_step() -> None:
    """Its second half is made out of the code."""
    assert python_page() == PAGE.read_text(), "run `make docs`"


def test_every_public_name_has_its_signature() -> None:
    page = PAGE.read_text()
    assert [] == [name for name in gnomon.__all__ if name[0] != "_" and f"**`{name}`**" not in page]
