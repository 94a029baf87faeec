"""Functions as the command line shows them."""

from __future__ import annotations

from gnomon.cli.function import signature
from gnomon.model.function import FunctionParameter, FunctionRecord


def test_a_signature_is_written_as_in_python() -> None:
    """By place only, by place or name, by name only; defaults as JSON, and … for what has none."""
    function = FunctionRecord(
        name="greet",
        parameters=(
            FunctionParameter(name="user", required=True, place=0, named=False),
            FunctionParameter(name="times", place=1, default=2),
            FunctionParameter(name="colour", default="red"),
            FunctionParameter(name="at"),
        ),
        takes_more=True,
    )
    assert 'greet(user, /, times=2, *, colour="red", at=…, …)' == signature(function)
    assert "tick()" == signature(FunctionRecord(name="tick"))
