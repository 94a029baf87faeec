"""`gnomon action`: look at actions. Creating them is in `create`, changing them in `change`."""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import options, view
from gnomon.cli.selection import Filters, filtered

noun = options.noun("Create actions, look at them, change how they go.")

Id = Annotated[str, typer.Argument(metavar="ID", help="The action's id.")]

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
@filtered
def list_actions(
    shared: options.ServerOptions,
    filters: Filters,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="NEXT", help="Go on where a page ended: its `next`."),
    ] = None,
    limit: options.Limit = 100,
) -> None:
    """List actions in order of id; all given conditions must hold."""
    selection = filters.selection()
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


@noun.command(
    "why", epilog=options.examples("gnomon action why hello", "gnomon action why hello --json")
)
@options.on_server
def why(
    shared: options.ServerOptions,
    id: Id,
) -> None:
    """Say why an action waits."""
    view.show_why(shared.call(lambda verbs: verbs.why(id)), as_json=shared.json)
