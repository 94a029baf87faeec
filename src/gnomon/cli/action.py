"""`gnomon action`: look at actions and change how they go. Creating them is in `create`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated
from uuid import UUID

import typer

from gnomon.cli import options, view
from gnomon.cli.connection import ActionVerbs
from gnomon.contracts.store import ChangeResult, Selection
from gnomon.model.action import State
from gnomon.model.errors import InvalidSpec
from gnomon.scheduler.options import moment_of

noun = options.noun("Create actions, look at them, change how they go.")

Id = Annotated[str, typer.Argument(metavar="ID", help="The action's id.")]
IfMatch = Annotated[
    str | None,
    typer.Option("--if-match", metavar="GUID", help="Change it only if this is its generation."),
]


def guid_of(text: str | None) -> UUID | None:
    """The generation that an option names."""
    try:
        return None if text is None else UUID(text)
    except ValueError:
        raise InvalidSpec("--if-match", "must be a guid", got=text) from None


def labels_of(texts: list[str]) -> dict[str, str]:
    """`k=v` options as a mapping."""
    labels = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidSpec("--label", "must be name=value", got=text)
        labels[name] = value
    return labels


# -- look -----------------------------------------------------------------------------------------


@noun.command(
    "get", epilog=options.examples("gnomon action get hello", "gnomon action get hello --json")
)
@options.on_server
def get(
    shared: options.ServerOptions,
    id: Id,
) -> None:
    """Show one action."""
    view.show_action(shared.call(lambda verbs: verbs.get(id)), as_json=shared.json)


@noun.command(
    "list",
    epilog=options.examples(
        "gnomon action list --state dead",
        "gnomon action list --id-prefix invoice- --label customer=7 --limit 20",
        "gnomon action list --due-before 2030-01-01T00:00:00Z --json",
    ),
)
@options.on_server
def list_actions(
    shared: options.ServerOptions,
    state: Annotated[
        list[State] | None,
        typer.Option("--state", metavar="STATE", help="In this state; repeatable."),
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="NAME", help="In this queue.")
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option("--id-prefix", metavar="TEXT", help="With ids that begin with this."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="K=V", help="With this label; repeatable."),
    ] = None,
    due_before: Annotated[
        str | None,
        typer.Option(
            "--due-before", metavar="TIME", help="Due before this time, which has a time zone."
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="NEXT", help="Go on where a page ended: its `next`."),
    ] = None,
    limit: options.Limit = 100,
) -> None:
    """List actions in order of id; all given conditions must hold."""
    selection = Selection(
        states=tuple(state or ()),
        queue=queue,
        id_prefix=prefix,
        labels=labels_of(label or []),
        due_before=None if due_before is None else moment_of(due_before, "--due-before"),
    )
    page = shared.call(lambda verbs: verbs.list(selection, after=after, limit=limit))
    view.show_page(page, as_json=shared.json)


@noun.command("attempts", epilog=options.examples("gnomon action attempts hello --limit 10"))
@options.on_server
def attempts(
    shared: options.ServerOptions,
    id: Id,
    limit: options.Limit = 100,
) -> None:
    """Show the attempts of an action, newest first."""
    log = shared.call(lambda verbs: verbs.attempts(id, limit=limit))
    view.show_attempts(log, as_json=shared.json)


# -- change ---------------------------------------------------------------------------------------


@noun.command(
    "delete",
    epilog=options.examples("gnomon action delete hello", "gnomon action delete hello --barrier"),
)
@options.on_server
def delete(
    shared: options.ServerOptions,
    id: Id,
    if_match: IfMatch = None,
    barrier: Annotated[
        bool, typer.Option("--barrier", help="Wait until the attempt under way has ended.")
    ] = False,
) -> None:
    """Cancel an action: no attempt of it begins any more."""
    guid = guid_of(if_match)
    changed = shared.call(lambda verbs: verbs.delete(id, if_match=guid, barrier=barrier))
    view.show_changed(changed, as_json=shared.json, done="deleted")


def _add_verb(
    name: str,
    summary: str,
    done: str,
    verb: Callable[[ActionVerbs, str, UUID | None], Awaitable[ChangeResult]],
) -> None:
    @noun.command(name, help=summary, epilog=options.examples(f"gnomon action {name} hello"))
    @options.on_server
    def command(
        shared: options.ServerOptions,
        id: Id,
        if_match: IfMatch = None,
    ) -> None:
        guid = guid_of(if_match)
        changed = shared.call(lambda verbs: verb(verbs, id, guid))
        view.show_changed(changed, as_json=shared.json, done=done)


_add_verb(
    "run", "Make an action due at once.", "due now:",
    lambda verbs, id, guid: verbs.run_now(id, if_match=guid),
)  # fmt: skip
_add_verb(
    "pause", "Let no attempt begin until it is resumed.", "paused",
    lambda verbs, id, guid: verbs.pause(id, if_match=guid),
)  # fmt: skip
_add_verb(
    "resume", "Let a paused action go on.", "resumed",
    lambda verbs, id, guid: verbs.resume(id, if_match=guid),
)  # fmt: skip


@noun.command("retry", epilog=options.examples("gnomon action retry hello"))
@options.on_server
def retry(
    shared: options.ServerOptions,
    id: Id,
) -> None:
    """Try a finished action that did not succeed once more, now."""
    changed = shared.call(lambda verbs: verbs.retry(id))
    view.show_changed(changed, as_json=shared.json, done="armed")
