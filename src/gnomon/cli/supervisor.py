"""What systemd is told: ready, alive, stopping. The protocol is a datagram to a socket it names."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping

from gnomon.clock import wait_set

SOCKET = "NOTIFY_SOCKET"
WATCHDOG = "WATCHDOG_USEC"
WATCHDOG_PID = "WATCHDOG_PID"
VARIABLES = frozenset({SOCKET, WATCHDOG, WATCHDOG_PID})  # for this process, not for its children


class Supervisor:
    """Tells whoever supervises this process; without one it does nothing."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get(SOCKET)
        period_us = int(environ.get(WATCHDOG, "0"))
        is_other = environ.get(WATCHDOG_PID, str(os.getpid())) != str(os.getpid())
        # Half of its patience, as systemd recommends.
        self._every_s = 0.0 if is_other else period_us / 2_000_000

    async def watch(self, stop: asyncio.Event) -> None:
        """Ready now; alive as long as the event loop turns; stopping when `stop` is set."""
        if self._address is None:
            return
        self._tell("READY=1")
        while not await wait_set(stop, self._every_s or None):
            self._tell("WATCHDOG=1")
        self._tell("STOPPING=1")
        while self._every_s:  # draining takes its time; cancelled when that is over
            await asyncio.sleep(self._every_s)
            self._tell("WATCHDOG=1")

    def _tell(self, state: str) -> None:
        assert self._address is not None
        path = self._address
        address = f"\0{path[1:]}" if path.startswith("@") else path
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sending:
            try:
                sending.sendto(state.encode(), address)
            except OSError:
                return  # gone, or too busy to read: it will ask no more, or hear the next one
