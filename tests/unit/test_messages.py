"""What an error shows of a value, it shows as users write it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gnomon.model.errors import InvalidSpec, short


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (timedelta(microseconds=500_000), "0.5 s"),
        (timedelta(days=2), "172800 s"),
        (datetime(2026, 1, 1, 8, tzinfo=UTC), "2026-01-01T08:00:00+00:00"),
        ("a\nb", "'a\\nb'"),
        (5, "5"),
    ],
)
def test_values_are_shown_without_python(value: object, shown: str) -> None:
    """No `datetime.timedelta(microseconds=500000)`; text stays escaped."""
    assert shown == short(value)
    assert str(InvalidSpec("spec.timeout", "is odd", got=value)).endswith(f"(got {shown})")
