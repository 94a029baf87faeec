"""When the connection of a call is kept for the next one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from gnomon.executors.http.caller import HttpResponse


class Connection:
    """Notes how it ends; `unsent`: bytes of the request that the network has not taken yet."""

    def __init__(self, *, unsent: int | None = 0) -> None:
        self.ended: list[str] = []
        self.transport: Any = None
        if unsent is not None:
            self.transport = SimpleNamespace(get_write_buffer_size=lambda: unsent)

    def close(self) -> None:
        self.ended.append("closed")

    def release(self) -> None:
        self.ended.append("kept")


def answered(connection: Any) -> HttpResponse:
    headers = CIMultiDictProxy[str](CIMultiDict())
    message: Any = SimpleNamespace(code=200, headers=headers)
    content: Any = None
    return HttpResponse(connection, message, content)


@pytest.mark.parametrize(("unsent", "ended"), [(0, "kept"), (1, "closed"), (None, "closed")])
def test_a_connection_is_kept_when_all_of_the_request_is_sent(
    unsent: int | None, ended: str
) -> None:
    """An answer may come early; the rest of its request must not run into the next one."""
    connection = Connection(unsent=unsent)
    with answered(connection):
        pass
    assert [ended] == connection.ended


def test_a_connection_is_closed_when_its_answer_could_not_be_read() -> None:
    """Whatever the reason: what is still to come would be taken for the next answer."""
    connection = Connection()
    with pytest.raises(KeyboardInterrupt), answered(connection):
        raise KeyboardInterrupt
    assert ["closed"] == connection.ended
