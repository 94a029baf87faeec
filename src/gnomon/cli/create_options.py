"""The options of `gnomon action create`, and how they become a request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from gnomon.model.codec import parse_json
from gnomon.model.duration import parse_duration
from gnomon.model.errors import InvalidSpec
from gnomon.model.spec import Effect, Http, Mock, Python, Retry
from gnomon.scheduler import Request
from gnomon.scheduler.options import Options, request_of


def _text(name: str, meaning: str, metavar: str | None = None) -> Any:
    return Annotated[str | None, typer.Option(name, metavar=metavar, help=meaning)]


def _texts(name: str, meaning: str, metavar: str) -> Any:
    return Annotated[list[str] | None, typer.Option(name, metavar=metavar, help=meaning)]


def _number(name: str, meaning: str) -> Any:
    return Annotated[int | None, typer.Option(name, metavar="N", help=meaning)]


Id = _text("--id", "The action's id; by default a random one.")
Key = _text("--key", "Idempotency key: a repeat of the command changes nothing.")
At = _text("--at", "When it is due first; a time with a zone.", "TIME")
In = _text("--in", "Due first after this long.", "DURATION")
Every = _text("--every", "Due again after each such period.", "DURATION")
CronFields = _text("--cron", "Due at the times of these five cron fields.", "FIELDS")
Timezone = _text("--timezone", "The time zone of --cron; by default UTC.", "NAME")
HttpCall = _text("--http", "Call a URL.", '"METHOD URL"')
Header = _texts("--header", "With --http: a header; repeatable.", '"NAME: VALUE"')
Body = _text("--body", "With --http: the text to send.", "TEXT")
JsonBody = _text("--json-body", "With --http: the JSON to send.", "JSON")
PythonName = _text("--python", "Call a registered function.", "NAME")
Args = _text("--args", "With --python: its arguments, a list or an object.", "JSON")
MockFlag = Annotated[bool, typer.Option("--mock", help="Do nothing, successfully.")]
MockFail = _number("--mock-fail", "Like --mock, but fail the first N attempts.")
RetryMax = _number("--retry-max", "How often a failed occurrence is tried again.")
RetryDelay = _text(
    "--retry-delay", "The pause before each retry; by default growing, from 1s to 1h.", "DURATION"
)
Timeout = _text("--timeout", "How long an attempt may take; by default 15s.", "DURATION")
Deadline = _text("--deadline", "No attempt begins after this.", "TIME")
Queue = _text("--queue", "The queue; by default `default`.", "NAME")
Priority = _number("--priority", "0 is first, 9 is last; by default 5.")
Label = _texts("--label", "A label; repeatable.", "K=V")
SpecFile = _text("--spec", "The whole spec as JSON; `-` is standard input.", "FILE")
LinesFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help='Create many: a line each of {"id": …, "key": …, "spec": {…}}.',
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectOptions:
    """What is to be done, as the options say it."""

    http: str | None
    headers: list[str]
    body: str | None
    json_body: str | None
    python: str | None
    args: str | None
    mock: bool
    mock_fail: int | None

    def effect(self) -> Effect:
        """Exactly one of --http, --python and --mock. Errors: InvalidSpec."""
        is_mock = self.mock or self.mock_fail is not None
        count = (self.http is not None) + (self.python is not None) + is_mock
        if count == 0:
            raise InvalidSpec("action", "say what is to be done: --http, --python or --mock")
        if count > 1:
            raise InvalidSpec("action", "is one thing: say --http, --python or --mock, not several")
        if self.http is None and (self.headers or self.body or self.json_body):
            raise InvalidSpec("--http", "is needed for --header, --body and --json-body")
        if self.python is None and self.args is not None:
            raise InvalidSpec("--python", "is needed for --args")
        if self.http is not None:
            return self._http(self.http)
        return self._python(self.python) if self.python else Mock(fail=self.mock_fail or 0)

    def _http(self, text: str) -> Http:
        method, _, url = text.strip().partition(" ")
        if not url:
            raise InvalidSpec("--http", 'must be "METHOD URL", as in "GET https://example.com/"')
        payload = None if self.json_body is None else parse_json(self.json_body.encode())
        headers = {}
        for header in self.headers:
            name, colon, value = header.partition(":")
            if not colon:
                raise InvalidSpec("--header", 'must be "NAME: VALUE"')
            headers[name.strip()] = value.strip()
        return Http(method.upper(), url.strip(), headers=headers, body=self.body, json=payload)

    def _python(self, function: str) -> Python:
        given = None if self.args is None else parse_json(self.args.encode())
        if isinstance(given, dict):
            return Python(function=function, kwargs=given)
        if given is not None and not isinstance(given, list):
            raise InvalidSpec("--args", "must be a JSON list or object", got=given)
        return Python(function=function, args=given or [])


def make_request(
    effect: Effect,
    timing: dict[str, Any],
    *,
    delay: str | None,
    retry_max: int | None,
    retry_delay: str | None,
) -> Request:
    """A request out of all options."""
    if delay is not None:
        if timing["at"] is not None:
            raise InvalidSpec("--in", "cannot be combined with --at", got=delay)
        timing["at"] = datetime.now(UTC) + parse_duration(delay, "--in")
    if retry_delay is not None:
        if retry_max is None:
            raise InvalidSpec("--retry-delay", "is for --retry-max only", got=retry_delay)
        pause = parse_duration(retry_delay, "--retry-delay")
        timing["retry"] = Retry(max=retry_max, min_period=pause, max_period=pause)
    elif retry_max is not None:
        timing["retry"] = retry_max
    return request_of(effect, cast("Options", timing))
