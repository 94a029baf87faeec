"""A server process that is asked by itself: each question passes the whole REST gateway, from the
request to the last byte of the answer, without a network. Its times are the server's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import uvloop

from benchmarks.sides.worker import Tally, options
from gnomon.app import App, open_task_rows
from gnomon.config import load_settings
from gnomon.contracts.observer import SilentObserver
from gnomon.gateways.rest.app import RestApp, create_rest

OK = 200
STALE_S = 1.1  # the gateway keeps some answers for a second: none is to be asked for within it
HEADERS = [(b"host", b"127.0.0.1:8080")]


async def ask(rest: RestApp, path: str) -> int:
    """One GET; how many bytes it answers."""
    place, _, query = path.partition("?")
    sent: list[Mapping[str, Any]] = []

    async def receive() -> Mapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": place,
        "raw_path": place.encode(), "query_string": query.encode(), "root_path": "",
        "headers": HEADERS, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8080),
    }  # fmt: skip
    await rest(scope, receive, send)  # type: ignore[arg-type]
    size = sum(len(message.get("body", b"")) for message in sent)
    if sent[0]["status"] != OK:
        raise RuntimeError(f"{path}: {sent[0]['status']} {sent[-1].get('body', b'')[:500]!r}")
    return size


async def serve(url: str, asks: Mapping[str, str], times: int, tasks: Mapping[str, str]) -> None:
    """All questions in turn, so many times; how long each took, in seconds."""
    tally = Tally()
    settings = load_settings(flags={"database.url": url, **tasks}, environ={})
    took: dict[str, list[float]] = {name: [] for name in asks}
    sizes: dict[str, int] = {}
    used_s = time.process_time()
    app = App(settings=settings, observer=SilentObserver())
    async with app, open_task_rows(app.settings, app.env) as task_tables:
        rest = create_rest(app.scheduler, task_tables=task_tables)
        await asyncio.to_thread(tally.wait_go)
        for _ in range(times):
            next_at = time.monotonic() + STALE_S
            for name, path in asks.items():
                began = time.perf_counter()
                sizes[name] = await ask(rest, path)
                took[name].append(time.perf_counter() - began)
                tally.add()
                if tally.is_stopped:
                    break
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))
        await asyncio.to_thread(tally.wait_stop)
    tally.bye(took=took, sizes=sizes, used_s=time.process_time() - used_s)


if __name__ == "__main__":
    given = options()
    uvloop.run(serve(given["url"], given["asks"], given["times"], given["tasks"]))
