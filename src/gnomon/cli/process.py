"""Running: the event loop, signals, and parts of a process that live and end together."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from gnomon.app import App
from gnomon.cli.output import say
from gnomon.cli.supervisor import Supervisor
from gnomon.clock import SystemClock
from gnomon.config import Settings
from gnomon.extras import is_installed
from gnomon.gateways.errors import EXIT_INTERRUPTED
from gnomon.telemetry.events import EventLog
from gnomon.telemetry.fanout import Fanout
from gnomon.telemetry.log import LineHandler, log_to

if TYPE_CHECKING:
    from gnomon.telemetry.metrics import Metrics

T = TypeVar("T")

YOUNG_MAX = 10_000  # objects made since the last look: a megabyte or two


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on uvloop where it exists."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets; the second signal ends the process at once."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(EXIT_INTERRUPTED)
        stop.set()
        say("stopping: attempts under way may end; press Ctrl-C again to stop at once")

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop


def stop_with_stdin(stop: asyncio.Event) -> None:
    """Stop when standard input ends: the process that started this one is gone."""

    def on_readable() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin.fileno())
            stop.set()

    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), on_readable)


def calm_collector() -> None:
    """Let Python look for garbage seldom, in a process that is all ours. What was loaded so far
    stays, and attempts leave none behind: to look at them every 700 objects costs a tenth."""
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])


async def together(*parts: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    """Run the parts of a process; when one ends, the others are told to stop, too."""
    calm_collector()
    tasks = [asyncio.create_task(part) for part in parts]
    telling = asyncio.create_task(Supervisor(os.environ).watch(stop))
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await asyncio.wait(tasks)
    telling.cancel()
    await asyncio.wait([telling])
    for task in tasks:
        task.result()


class Telemetry:
    """What a lasting process tells about itself."""

    def __init__(self, settings: Settings) -> None:
        log_to(LineHandler(settings.log), settings.log)
        self.metrics = _metrics()
        log = EventLog(SystemClock())
        self.observer = Fanout(log, *([] if self.metrics is None else [self.metrics]))


def _metrics() -> Metrics | None:
    """None where their library, an extra, is not installed: then nobody can ask for them."""
    if not is_installed("metrics"):
        return None
    from gnomon.telemetry.metrics import Metrics  # its library has a server, and loads long

    return Metrics()


def load_app(settings: Settings, telemetry: Telemetry, imported: App | None) -> App:
    """The app of this process, with the functions and stages of the user's own."""
    app = App(settings=settings, observer=telemetry.observer, migrate=True)
    if imported is not None:
        app.adopt(imported)
    return app
