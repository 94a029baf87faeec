"""`gnomon action create`: one action out of options or a spec, or many out of a file."""

from __future__ import annotations

from pathlib import Path

import typer

from gnomon.cli import create_options as given
from gnomon.cli import options, view
from gnomon.cli.connection import ActionVerbs
from gnomon.cli.input import chunks, numbered_lines, read_place
from gnomon.cli.output import print_json, progress, say, show_error
from gnomon.cli.selection import labels_of
from gnomon.contracts.store import ChangeResult
from gnomon.gateways.bodies import read_item
from gnomon.gateways.errors import exit_code_of, problem_of
from gnomon.model.codec import build_spec, parse_json
from gnomon.model.errors import GnomonError
from gnomon.scheduler import Request

CHUNK_ITEMS = 1_000
ERRORS_SHOWN_MAX = 10

EPILOG = options.examples(
    "gnomon action create --id hello --in 5s --mock",
    'gnomon action create --id ping --every 1m --http "GET https://example.com/ping"',
    'gnomon action create --cron "0 9 * * MON-FRI" --timezone Europe/Berlin --python report',
    "gnomon action create --at 2030-01-31T12:00:00Z --retry-max 5 --timeout 10s \\",
    '    --http "POST https://example.com/in" --json-body \'{"n": 1}\' --header "X-Key: k"',
    "gnomon action create --id a --spec spec.json",
    "gnomon action create --file actions.jsonl",
)


@options.on_server
def create(
    shared: options.ServerOptions,
    id: given.Id = None,
    key: given.Key = None,
    at: given.At = None,
    delay: given.In = None,
    every: given.Every = None,
    cron: given.CronFields = None,
    timezone: given.Timezone = None,
    http: given.HttpCall = None,
    header: given.Header = None,
    body: given.Body = None,
    json_body: given.JsonBody = None,
    python: given.PythonName = None,
    args: given.Args = None,
    mock: given.MockFlag = False,
    mock_fail: given.MockFail = None,
    retry_max: given.RetryMax = None,
    retry_delay: given.RetryDelay = None,
    timeout: given.Timeout = None,
    deadline: given.Deadline = None,
    queue: given.Queue = None,
    priority: given.Priority = None,
    label: given.Label = None,
    spec: given.SpecFile = None,
    file: given.LinesFile = None,
) -> None:
    """Create an action, or many out of a file."""
    if file is not None:
        bulk = shared.call(lambda verbs: _create_file(verbs, file))
        bulk.report(as_json=shared.json)
        return
    if spec is not None:
        request = Request(id=id, key=key, spec=build_spec(parse_json(read_place(spec))))
    else:
        effect = given.EffectOptions(
            http=http, headers=header or [], body=body, json_body=json_body, python=python,
            args=args, mock=mock, mock_fail=mock_fail,
        ).effect()  # fmt: skip
        timing = {
            "id": id, "key": key, "at": at, "every": every, "cron": cron, "timezone": timezone,
            "deadline": deadline, "timeout": timeout, "queue": queue, "priority": priority,
            "labels": labels_of(label or []),
        }  # fmt: skip
        request = given.make_request(
            effect, timing, delay=delay, retry_max=retry_max, retry_delay=retry_delay
        )
    changed = shared.call(lambda verbs: verbs.create(request))
    view.show_changed(changed, as_json=shared.json, done="created")


# -- many -----------------------------------------------------------------------------------------


class Bulk:
    """What became of the lines of a file."""

    def __init__(self) -> None:
        self.created = 0
        self.repeated = 0
        self.failed: list[tuple[int, GnomonError]] = []

    def note(self, number: int, result: ChangeResult | GnomonError) -> None:
        if isinstance(result, GnomonError):
            self.failed.append((number, result))
        elif result.repeated:
            self.repeated += 1
        else:
            self.created += 1

    def report(self, *, as_json: bool) -> None:
        """Tell it; ends the command with the first failure's exit code."""
        if as_json:
            failed = [{"line": number, "problem": problem_of(exc)} for number, exc in self.failed]
            counts = {"created": self.created, "repeated": self.repeated}
            print_json({**counts, "failed": failed})
        else:
            say(f"{self.created} created, {self.repeated} repeated, {len(self.failed)} failed")
            for number, exc in self.failed[:ERRORS_SHOWN_MAX]:
                show_error(f"line {number}: {exc}")
        if self.failed:
            raise typer.Exit(exit_code_of(self.failed[0][1]))


async def _create_file(verbs: ActionVerbs, path: Path) -> Bulk:
    bulk = Bulk()
    lines = numbered_lines(read_place(str(path)))
    with progress() as bar:
        shown = bar.add_task("creating", total=len(lines))
        for chunk in chunks(((line, len(line[1])) for line in lines), count_max=CHUNK_ITEMS):
            await _create_chunk(verbs, chunk, bulk)
            bar.advance(shown, len(chunk))
    return bulk


async def _create_chunk(verbs: ActionVerbs, chunk: list[tuple[int, bytes]], bulk: Bulk) -> None:
    asked: list[tuple[int, Request]] = []
    for number, text in chunk:
        item = read_item(text)
        if isinstance(item, GnomonError):
            bulk.note(number, item)
        else:
            asked.append((number, item))
    results = await verbs.create_many([request for _, request in asked]) if asked else ()
    for (number, _), result in zip(asked, results, strict=True):
        bulk.note(number, result)


def add_to(noun: typer.Typer) -> None:
    """The command of this module."""
    noun.command("create", epilog=EPILOG)(create)
