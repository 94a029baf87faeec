"""Errors of the driver, as callers see them."""

from __future__ import annotations

import asyncpg
import pytest

from gnomon.model.errors import StoreUnavailable
from gnomon.stores.postgres.errors import translated_errors


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InternalClientError("cannot switch to state 15; another operation is in progress"),
        asyncpg.ConnectionDoesNotExistError("closed in the middle of operation"),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_session_that_the_server_ended_is_no_bug(error: Exception) -> None:
    """Whatever the driver makes of it. A process that stood still in a transaction finds its
    session ended, and the driver may be in the middle of reading that."""
    with pytest.raises(StoreUnavailable), translated_errors("commit", expected=2):
        raise error
