"""The page that Prometheus reads: of this process, of its worker processes, of the installation."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from gnomon.telemetry.metrics import Metrics
from gnomon.telemetry.total import join_metrics

PATIENCE_S = 2.0  # for a process on the same machine
PAGE_BYTES_MAX = 16 * 1024 * 1024


async def _nothing() -> None:
    """There is nothing to be done before."""


class MetricsPage:
    """What is counted, as text."""

    content_type = Metrics.content_type

    def __init__(
        self,
        metrics: Metrics,
        *,
        refresh: Callable[[], Awaitable[None]] = _nothing,
        children: Sequence[ChildMetrics] = (),
    ) -> None:
        self._metrics = metrics
        self._refreshes = [refresh]
        self._children = children

    def refresh_also(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Do this, too, before the page is made."""
        self._refreshes.append(refresh)

    async def render(self) -> bytes:
        """All of it, now."""
        await asyncio.gather(*(refresh() for refresh in self._refreshes))
        own = self._metrics.render()
        if not self._children:
            return own
        pages = await asyncio.gather(*(child.read() for child in self._children))
        return join_metrics([own, *(page for read in pages for page in read)])


class ChildMetrics:
    """What one worker process counts, over all its lives: when it is started anew, what the one
    before had counted stays."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._life = b""
        self._last = b""
        self._before = b""

    async def read(self) -> list[bytes]:
        """Its pages; of one that does not answer what it has counted, but no gauges."""
        answer = await self._ask()
        if answer is None:
            return [self._before, join_metrics([self._last], only_counts=True)]
        life, _, page = answer.partition(b"\n")
        if life != self._life:
            self._before = join_metrics([self._before, self._last], only_counts=True)
        self._life, self._last = life, page
        return [self._before, page]

    async def _ask(self) -> bytes | None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = await asyncio.open_unix_connection(self._path)
                try:
                    return await reader.read(PAGE_BYTES_MAX) + await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return None


async def tell_parent(path: Path, page: MetricsPage, stop: asyncio.Event) -> None:
    """Answer the process that started this one, until `stop` is set."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"%d\n" % os.getpid() + await page.render())
            await writer.drain()
        except OSError:
            pass  # it did not wait for the answer
        finally:
            writer.close()

    path.unlink(missing_ok=True)  # noqa: ASYNC240 - of a process that was here before
    async with await asyncio.start_unix_server(answer, path):
        await stop.wait()
