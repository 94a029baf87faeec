"""The pytest plugin: two fixtures. It does nothing, and loads nothing, until a test asks for one.

`gnomon_app` is for you to override, in a conftest.py, with the app that you test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gnomon.app import App
    from gnomon.testing.action_bench import ActionBench


@pytest.fixture
def gnomon_app() -> App | None:
    """The app that `gnomon_bench` takes over; None: an app of its own."""
    return None


@pytest.fixture
def gnomon_bench(gnomon_app: App | None) -> Iterator[ActionBench]:
    """Your app on SQLite in memory, under a clock that the test moves."""
    from gnomon.testing.action_bench import ActionBench

    with ActionBench(gnomon_app) as bench:
        yield bench
