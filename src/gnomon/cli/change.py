"""`gnomon action delete | pause | resume | run | retry`: one action, or everything that matches."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import UUID

import msgspec
import typer

from gnomon.cli import options, view
from gnomon.cli.connection import ActionVerbs
from gnomon.cli.output import print_json, progress, say
from gnomon.cli.selection import Chosen, choosing
from gnomon.contracts.store import ChangeResult, Selection
from gnomon.model.errors import InvalidRequest, InvalidSpec
from gnomon.model.pause import pause_terms
from gnomon.scheduler.scheduler import COUNT_MAX
from gnomon.scheduler.selected import StepResult, Verb, selection_for

STEP = 200  # one call: a few seconds at most
EXIT_REFUSED = 1  # some of what matched could not be changed

One = Callable[[ActionVerbs, str], Awaitable[ChangeResult]]

IfMatch = Annotated[
    str | None,
    typer.Option("--if-match", metavar="GUID", help="Change it only if this is its generation."),
]
Running = Annotated[bool, typer.Option("--running", help="Ask the attempt under way to end, too.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why: one line.")]
Until = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="WHEN", help="When it goes on by itself: 2h, or 2026-12-24T06:00+01:00."
    ),
]
Barrier = Annotated[
    bool, typer.Option("--barrier", help="Wait until the attempt under way has ended.")
]


def guid_of(text: str | None) -> UUID | None:
    """The generation that an option names."""
    try:
        return None if text is None else UUID(text)
    except ValueError:
        raise InvalidSpec("--if-match", "must be a guid", got=text) from None


# -- commands -------------------------------------------------------------------------------------


@options.on_server
@choosing
def delete(
    shared: options.ServerOptions,
    chosen: Chosen,
    if_match: IfMatch = None,
    running: Running = False,
    barrier: Barrier = False,
) -> None:
    """Cancel an action: no attempt of it begins any more."""
    if chosen.all:
        chosen.check_all(if_match=if_match, barrier=barrier)
        change_all(shared, chosen, Verb.DELETE, running=running)
        return
    guid = guid_of(if_match)
    change_one(
        shared, chosen, "deleted",
        lambda verbs, id: verbs.delete(id, if_match=guid, running=running, barrier=barrier),
    )  # fmt: skip


def _command(
    verb: Verb,
    summary: str,
    done: str,
    change: Callable[[ActionVerbs, str, UUID | None], Awaitable[ChangeResult]],
) -> Callable[..., None]:
    @options.on_server
    @choosing
    def command(shared: options.ServerOptions, chosen: Chosen, if_match: IfMatch = None) -> None:
        if chosen.all:
            chosen.check_all(if_match=if_match)
            change_all(shared, chosen, verb)
            return
        guid = guid_of(if_match)
        change_one(shared, chosen, done, lambda verbs, id: change(verbs, id, guid))

    command.__doc__ = summary
    return command


run = _command(
    Verb.RUN_NOW, "Make an action due at once.", "due now:",
    lambda verbs, id, guid: verbs.run_now(id, if_match=guid),
)  # fmt: skip
resume = _command(
    Verb.RESUME, "Let a paused action go on.", "resumed",
    lambda verbs, id, guid: verbs.resume(id, if_match=guid),
)  # fmt: skip


@options.on_server
@choosing
def pause(
    shared: options.ServerOptions,
    chosen: Chosen,
    if_match: IfMatch = None,
    reason: Reason = None,
    until: Until = None,
) -> None:
    """Let no attempt begin until it is resumed, or until an end: then it goes on by itself.

    Pausing again replaces the reason and the end.
    """
    pause_terms(reason, until)
    if chosen.all:
        chosen.check_all(if_match=if_match)
        change_all(shared, chosen, Verb.PAUSE, reason=reason, until=until)
        return
    guid = guid_of(if_match)
    change_one(
        shared, chosen, "paused",
        lambda verbs, id: verbs.pause(id, reason=reason, until=until, if_match=guid),
    )  # fmt: skip


@options.on_server
@choosing
def retry(shared: options.ServerOptions, chosen: Chosen) -> None:
    """Try a finished action that did not succeed once more, now.

    With --all: dead ones, unless --state says expired or cancelled.
    """
    if chosen.all:
        chosen.check_all()
        change_all(shared, chosen, Verb.RETRY)
        return
    change_one(shared, chosen, "armed", lambda verbs, id: verbs.retry(id))


def add_to(noun: typer.Typer) -> None:
    """The commands of this module."""
    for name, command, examples in (
        ("delete", delete, ("hello", "hello --running --barrier", "--all --queue mail")),
        ("run", run, ("hello", "--all --id-prefix report-")),
        (
            "pause",
            pause,
            (
                "hello --reason 'the provider is down' --until 2h",
                "--all --recurring --reason 'database move' --until 2026-12-24T06:00+01:00",
            ),
        ),
        ("resume", resume, ("hello", "--all --paused-for 'database move' --yes")),
        ("retry", retry, ("hello", "--all --queue mail --error-contains 'timed out'")),
    ):
        lines = [f"gnomon action {name} {example}" for example in examples]
        noun.command(name, epilog=options.examples(*lines))(command)
    # The word of `app.cancel` and of SQL.
    example = options.examples("gnomon action cancel hello --running")
    noun.command("cancel", hidden=True, epilog=example)(delete)


# -- how ------------------------------------------------------------------------------------------


def change_one(shared: options.ServerOptions, chosen: Chosen, done: str, change: One) -> None:
    """The action that was named."""
    id = chosen.only()
    view.show_changed(shared.call(lambda verbs: change(verbs, id)), as_json=shared.json, done=done)


def change_all(shared: options.ServerOptions, chosen: Chosen, verb: Verb, **terms: Any) -> None:
    """Everything that matches: say how much that is, ask, and do it in steps. `terms`: what the
    verb wants to know besides."""
    selection = selection_for(verb, chosen.filters.selection())
    count = shared.call(lambda verbs: verbs.count(selection))
    if count and not chosen.yes:
        _confirm(verb, count)
    tally = Tally(verb, count, chosen.after)
    if count:
        shared.call(lambda verbs: tally.change(verbs, selection, **terms))
    if shared.json:
        print_json(tally.shown())
    else:
        say(tally.text())
    if tally.done.refused:
        raise typer.Exit(EXIT_REFUSED)


def _confirm(verb: Verb, count: int) -> None:
    """Errors: InvalidRequest if nobody can be asked."""
    matching = _matching(count)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidRequest(f"{verb}: {matching}; add --yes to change them")
    typer.confirm(f"{verb}: {matching}. Go on?", abort=True, err=True)


def _matching(count: int) -> str:
    more = " or more" if count >= COUNT_MAX else ""
    return f"{count:,}{more} action{'s'[: count != 1]} match{'es'[: 2 * (count == 1)]}"


class Tally:
    """How far it got."""

    def __init__(self, verb: Verb, count: int, after: str | None) -> None:
        self.verb = verb
        self.count = count
        self.done = StepResult(next=after)

    async def change(self, verbs: ActionVerbs, selection: Selection, **terms: Any) -> None:
        """Step by step, until nothing is left; if it is stopped, it says where."""
        is_over = False
        try:
            with progress() as bar:
                shown = bar.add_task(str(self.verb), total=self.count)
                while not is_over:
                    step = await verbs.change_selected(
                        self.verb, selection, **terms, after=self.done.next, limit=STEP
                    )
                    self._add(step)
                    bar.update(shown, completed=self.seen)
                    is_over = step.next is None
        finally:
            if not is_over:
                say(f"stopped: {self.text()}")
                say(f"the same command goes on; quicker with --after {self.done.next or '…'}")

    @property
    def seen(self) -> int:
        return self.done.changed + self.done.passed_over + self.done.refused

    def _add(self, step: StepResult) -> None:
        self.done = StepResult(
            changed=self.done.changed + step.changed,
            passed_over=self.done.passed_over + step.passed_over,
            refused=self.done.refused + step.refused,
            problem=self.done.problem or step.problem,
            next=step.next,
        )

    def text(self) -> str:
        """In a line."""
        done = self.done
        parts = [f"{self.verb}: {_matching(self.count)}, {done.changed:,} changed"]
        if done.passed_over:
            parts.append(f"{done.passed_over:,} passed over (changed by others, or under way)")
        if done.refused:
            parts.append(f"{done.refused:,} refused (first: {done.problem})")
        return ", ".join(parts)

    def shown(self) -> dict[str, object]:
        """For programs."""
        return {"matched": self.count, **msgspec.structs.asdict(self.done)}
