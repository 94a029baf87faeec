"""Spans by the API of OpenTelemetry. Where they go to is set up by the program: its SDK.

create → begin → execute → finish are one trace. What repeats is not: a trace that grows for months
helps nobody, so each of its attempts begins one, which links to the creation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import time_ns
from uuid import UUID

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gnomon import __version__
from gnomon.contracts.store import BegunAttempt
from gnomon.model.spec import Once

TRACEPARENT = "traceparent"
UNRECORDED_MAX = 10_000  # spans of results on their way; more are not told of
GOOD = ("succeeded", "cancelled")
NANO = 1_000_000_000


@dataclass(slots=True)
class SpanAttempt:
    """The span of an attempt that is being executed."""

    span: Span
    carrier: Mapping[str, str] = field(default_factory=dict)

    def finish(self, outcome: str, error: str | None) -> None:
        self.span.set_attribute("gnomon.outcome", outcome)
        if outcome not in GOOD:
            self.span.set_status(Status(StatusCode.ERROR, error))


class OpenTelemetryTracing:
    """The `Tracing` of this library."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("gnomon", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._finishing: dict[UUID, Span] = {}

    def __repr__(self) -> str:
        return f"OpenTelemetryTracing({len(self._finishing)} finishing)"

    @contextmanager
    def trace_create(self, verb: str, id: str | None) -> Iterator[str | None]:
        attributes = {} if id is None else {"gnomon.action.id": id}
        with self._tracer.start_as_current_span(
            f"gnomon {verb}", kind=SpanKind.PRODUCER, attributes=attributes
        ):
            yield self._carrier().get(TRACEPARENT)

    @contextmanager
    def trace_request(self, carrier: Mapping[str, str]) -> Iterator[None]:
        token = contexts.attach(self._propagator.extract(carrier))
        try:
            yield
        finally:
            contexts.detach(token)

    @contextmanager
    def trace_attempt(
        self, begun: BegunAttempt, *, kind: str, lateness_s: float
    ) -> Iterator[SpanAttempt]:
        begin = self._begin_span(begun, lateness_s)
        context = trace.set_span_in_context(begin, contexts.Context())
        with self._tracer.start_as_current_span(
            f"gnomon execute {kind}",
            context=context,
            kind=SpanKind.CONSUMER,
            attributes=_attributes(begun) | {"gnomon.effect": kind},
        ) as span:
            try:
                yield SpanAttempt(span, self._carrier())
            finally:
                self._begin_finish(begun)

    def trace_finish(self, attempt_id: UUID, recorded: str) -> None:
        span = self._finishing.pop(attempt_id, None)
        if span is not None:
            span.set_attribute("gnomon.recorded", recorded)
            span.end()

    def _begin_span(self, begun: BegunAttempt, lateness_s: float) -> Span:
        """From the time at which it was due until now."""
        now = time_ns()
        carrier = {TRACEPARENT: begun.spec.traceparent} if begun.spec.traceparent else {}
        context = self._propagator.extract(carrier, contexts.Context())
        links = []
        if not isinstance(begun.spec.policy, Once):
            created = trace.get_current_span(context).get_span_context()
            links = [Link(created)] if created.is_valid else []
            context = contexts.Context()
        span = self._tracer.start_span(
            "gnomon begin",
            context=context,
            kind=SpanKind.CONSUMER,
            attributes=_attributes(begun),
            links=links,
            start_time=now - int(max(0.0, lateness_s) * NANO),
        )
        span.end(now)
        return span

    def _begin_finish(self, begun: BegunAttempt) -> None:
        if len(self._finishing) < UNRECORDED_MAX:
            self._finishing[begun.attempt_id] = self._tracer.start_span(
                "gnomon finish", attributes=_attributes(begun)
            )

    def _carrier(self) -> dict[str, str]:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier


def _attributes(begun: BegunAttempt) -> dict[str, str | int]:
    return {
        "gnomon.action.id": begun.id,
        "gnomon.attempt.id": str(begun.attempt_id),
        "gnomon.attempt.no": begun.status.attempts,
        "gnomon.occurrence.no": begun.status.occurrence_no,
        "gnomon.queue": begun.spec.queue,
    }
