"""Several worker processes under one: started, restarted when they crash, stopped together."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from gnomon.cli.supervisor import VARIABLES
from gnomon.clock import wait_set
from gnomon.config import Settings, environment_of
from gnomon.contracts.observer import Observer
from gnomon.contracts.store import Capabilities
from gnomon.model.errors import NotSupported

BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 30.0
HEALTHY_AFTER_S = 60.0
KILL_MARGIN = timedelta(seconds=10)  # beyond the drain time of the worker itself


def require_parallel(capabilities: Capabilities) -> None:
    """Errors: NotSupported, when several processes on one database make no sense."""
    if not capabilities.parallel_writers:
        raise NotSupported(
            "several worker processes", engine=capabilities.engine, remedy="use PostgreSQL"
        )


def worker_arguments(
    config: Path | None, imported: str | None, queues: str | None = None
) -> list[str]:
    """What the command of a worker process is given; the database is in its environment."""
    given = {"--config": config, "--import": imported, "--queues": queues}
    return [
        part for name, value in given.items() if value is not None for part in (name, str(value))
    ]


async def keep_workers(
    settings: Settings,
    arguments: Sequence[str],
    *,
    sockets: Sequence[Path],
    stop: asyncio.Event,
    observer: Observer,
) -> None:
    """Keep worker processes alive until `stop` is set; then let them drain. There is one for each
    of the sockets, where it tells its metrics."""
    async with asyncio.TaskGroup() as group:
        for number, path in enumerate(sockets):
            own = [*arguments, "--metrics-socket", str(path)]
            keeper = _Keeper(number, settings, own, stop=stop, observer=observer)
            group.create_task(keeper.keep())


class _Keeper:
    """Keeps one process alive."""

    def __init__(
        self,
        number: int,
        settings: Settings,
        arguments: Sequence[str],
        *,
        stop: asyncio.Event,
        observer: Observer,
    ) -> None:
        self._number = number
        self._arguments = arguments
        self._environment = {
            name: text for name, text in environment_of(settings).items() if name not in VARIABLES
        }
        self._patience_s = (settings.worker.drain + KILL_MARGIN).total_seconds()
        self._stop = stop
        self._observer = observer

    async def keep(self) -> None:
        backoff_s = BACKOFF_FIRST_S
        while not self._stop.is_set():
            began_at = asyncio.get_running_loop().time()
            code = await self._run_once()
            if self._stop.is_set():
                return
            if asyncio.get_running_loop().time() - began_at > HEALTHY_AFTER_S:
                backoff_s = BACKOFF_FIRST_S
            self._observer.event(
                "worker_crashed", number=self._number, exit_code=code, restart_in_s=backoff_s
            )
            await wait_set(self._stop, backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _run_once(self) -> int:
        """Start it and wait for its end, or for the order to stop."""
        # A session of its own: Ctrl-C reaches only this process, which forwards it once.
        # The pipe: if this process is killed, the child sees its input end, and drains.
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gnomon", "worker", "--stop-with-stdin", *self._arguments,
            env=self._environment, stdin=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        ended = asyncio.create_task(child.wait())
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                child.send_signal(signal.SIGTERM)
                await asyncio.wait({ended}, timeout=self._patience_s)
        finally:
            stopped.cancel()
            if child.returncode is None:
                child.kill()
        return await ended
