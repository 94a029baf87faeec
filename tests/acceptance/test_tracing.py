"""Traces: one from the caller over the worker, another process, to the receiver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import gnomon
from gnomon.config import Settings
from gnomon.telemetry.config import TracingConfig
from tests.fixtures.processes import Processes

pytestmark = pytest.mark.acceptance

WAIT_S = 40.0
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
# A worker's program sets up its SDK: here each span is a line of a file.
PROGRAM = """
import json
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

import gnomon

SPANS = Path(__file__).parent / "spans.jsonl"


class Lines(SpanExporter):
    def export(self, spans):
        with SPANS.open("a") as out:
            out.writelines(json.dumps(json.loads(span.to_json())) + "\\n" for span in spans)
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Lines()))
trace.set_tracer_provider(provider)
app = gnomon.App("sqlite:///:memory:")


def present():
    return format(trace.get_current_span().get_span_context().span_id, "016x")


@app.action
async def coroutine(ctx: gnomon.Attempt) -> str:
    return present()


@app.action
def thread(ctx: gnomon.Attempt) -> str:
    return present()


@app.action
async def failing(ctx: gnomon.Attempt) -> None:
    raise RuntimeError("no")
"""


@pytest_asyncio.fixture
async def app(tmp_path: Path, processes: Processes) -> AsyncIterator[gnomon.App]:
    """An installation whose worker, another process, traces; and this process traces, too."""
    (tmp_path / "program.py").write_text(PROGRAM)
    url = f"sqlite:///{tmp_path}/gnomon.db"
    settings = Settings(tracing=TracingConfig(enabled=True))
    settings = replace(settings, database=replace(settings.database, url=url))
    async with gnomon.App(settings=settings) as opened:
        worker = processes.start_gnomon(
            "worker", "--database", url, "--import", "program:app",
            env={
                "PYTHONPATH": str(tmp_path), "GNOMON_TRACING__ENABLED": "true",
                "GNOMON_HTTP__ALLOW_LOOPBACK": "true",
            },
        )  # fmt: skip
        worker.wait_for_line("working on")
        yield opened


@pytest.fixture
def own_spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans of this process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", lambda *_: provider.get_tracer("test"))
    return exporter


async def worker_spans(folder: Path, id: str, *, count: int = 3) -> dict[str, Any]:
    """The spans of an action in the worker, by name; as soon as there are so many."""
    path = folder / "spans.jsonl"
    async with asyncio.timeout(WAIT_S):
        while True:
            lines = path.read_text().splitlines() if path.exists() else []
            spans = [json.loads(line) for line in lines]
            found = [one for one in spans if one["attributes"].get("gnomon.action.id") == id]
            if len(found) >= count:
                return {one["name"]: one for one in found}
            await asyncio.sleep(0.05)


def span_id(span: dict[str, Any]) -> str:
    return str(span["context"]["span_id"]).removeprefix("0x")


def parent_id(span: dict[str, Any]) -> str:
    return str(span["parent_id"]).removeprefix("0x")


@pytest.mark.parametrize("function", ["coroutine", "thread"])
async def test_one_trace_from_create_to_finish(
    own_spans: InMemorySpanExporter, app: gnomon.App, tmp_path: Path, function: str
) -> None:
    """create → begin → execute → finish, each below the one before, over two processes; and within
    a function its own span is the present one."""
    tracer = trace.get_tracer("")
    with tracer.start_as_current_span("request") as request:
        await app.schedule(gnomon.Python(function=function), id="traced")

    created, _ = own_spans.get_finished_spans()
    assert "gnomon create" == created.name
    assert created.parent is not None
    assert request.get_span_context().span_id == created.parent.span_id

    spans = await worker_spans(tmp_path, "traced")
    begin, execute, finish = (
        spans[name] for name in ("gnomon begin", "gnomon execute python", "gnomon finish")
    )
    trace_id = format(request.get_span_context().trace_id, "032x")
    assert {f"0x{trace_id}"} == {span["context"]["trace_id"] for span in spans.values()}
    assert format(created.context.span_id, "016x") == parent_id(begin)
    assert span_id(begin) == parent_id(execute)
    assert span_id(execute) == parent_id(finish)
    assert "succeeded" == execute["attributes"]["gnomon.outcome"]
    assert "applied" == finish["attributes"]["gnomon.recorded"]
    (attempt,) = await app.scheduler.attempts("traced")
    assert json.dumps(span_id(execute)) == attempt.answer


async def test_a_failure_is_an_error_of_its_span(
    own_spans: InMemorySpanExporter, app: gnomon.App, tmp_path: Path
) -> None:
    """With what was said."""
    await app.schedule(gnomon.Python(function="failing"), id="failing")
    execute = (await worker_spans(tmp_path, "failing"))["gnomon execute python"]
    assert {"status_code": "ERROR", "description": "RuntimeError: no"} == execute["status"]


async def test_what_repeats_begins_a_trace_each_time(
    own_spans: InMemorySpanExporter, app: gnomon.App, tmp_path: Path
) -> None:
    """Which links to the creation: no trace grows for months."""
    await app.schedule(gnomon.Python(function="coroutine"), id="often", every="1h")
    (created,) = own_spans.get_finished_spans()
    begin = (await worker_spans(tmp_path, "often"))["gnomon begin"]
    assert begin["parent_id"] is None
    (link,) = begin["links"]
    assert f"0x{created.context.span_id:016x}" == link["context"]["span_id"]


async def test_the_receiver_is_told(
    own_spans: InMemorySpanExporter, app: gnomon.App, tmp_path: Path
) -> None:
    """By the header `traceparent`, which names the span of the attempt."""
    heads: asyncio.Queue[str] = asyncio.Queue()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await heads.put((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(receive, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        await app.schedule(gnomon.Http("GET", f"http://127.0.0.1:{port}/"), id="call")
        async with asyncio.timeout(WAIT_S):
            head = await heads.get()
    execute = (await worker_spans(tmp_path, "call"))["gnomon execute http"]
    trace_id = str(execute["context"]["trace_id"]).removeprefix("0x")
    assert f"\r\ntraceparent: 00-{trace_id}-{span_id(execute)}-0" in head


async def test_a_callers_trace_goes_on_over_rest(
    own_spans: InMemorySpanExporter, app: gnomon.App, tmp_path: Path, processes: Processes
) -> None:
    """The header of the request is what the stored action belongs to."""
    server = processes.start_gnomon(
        "server", "--database", f"sqlite:///{tmp_path}/gnomon.db", "--port", "0",
        env={"GNOMON_TRACING__ENABLED": "true"},
    )  # fmt: skip
    address = server.wait_for_line(r"serving (http://\S+)").group(1)
    body = {"id": "rest", "spec": {"action": {"type": "python", "function": "coroutine"}}}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{address}/v1/actions", json=body, headers={"traceparent": CALLER}) as answer,
    ):
        assert 201 == answer.status
    begin = (await worker_spans(tmp_path, "rest"))["gnomon begin"]
    assert f"0x{CALLER.split('-')[1]}" == begin["context"]["trace_id"]


async def test_without_it_nothing_is_stored(tmp_path: Path) -> None:
    """Off is the default: no span, no trace in the spec, though somebody traces here."""
    async with gnomon.App(f"sqlite:///{tmp_path}/plain.db") as plain:
        assert None is plain.env.tracing
        stored = await plain.schedule(gnomon.Mock(), id="plain")
        assert None is stored.spec.traceparent


async def test_an_equal_spec_stays_equal_in_another_trace(
    own_spans: InMemorySpanExporter, app: gnomon.App
) -> None:
    """Who declares its actions at every start changes nothing by it."""
    options: Any = {"id": "declared", "every": "1h", "if_exists": "replace"}
    first = await app.schedule(gnomon.Mock(), **options)
    second = await app.schedule(gnomon.Mock(), **options)
    assert None is not first.spec.traceparent
    assert first.meta.guid == second.meta.guid
