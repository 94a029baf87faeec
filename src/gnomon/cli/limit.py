"""`gnomon limit`: what may happen at once and how often, changed while everything goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from gnomon.cli import options
from gnomon.cli.output import print_json, print_table
from gnomon.contracts.store import LimitUse
from gnomon.model.limits import Limit, LimitKind

noun = options.noun("Limit queues and targets, at run time, over all workers together.")

Kind = Annotated[
    LimitKind, typer.Argument(metavar="KIND", help="What is limited: queue, target or stage.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]


@noun.command(
    "set",
    epilog=options.examples(
        "gnomon limit set queue mail --parallel 10 --rate 50",
        "gnomon limit set target billing --rate 0.5 --burst 5",
        "gnomon limit set queue reports --parallel 0",
    ),
)
@options.on_server
def set_limit(
    shared: options.ServerOptions,
    kind: Kind,
    name: Name,
    parallel: Annotated[
        int | None,
        typer.Option("--parallel", metavar="N", help="At most this many at once; 0: none."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="At most this many begin a second.")
    ] = None,
    burst: Annotated[
        int | None,
        typer.Option(
            "--burst", metavar="N", help="This many may begin at once after a quiet time."
        ),
    ] = None,
) -> None:
    """Set a limit, or change it; what is left out is not limited any more."""
    limit = Limit(kind=kind, name=name, parallel=parallel, rate=rate, burst=burst)
    use = shared.call(lambda verbs: verbs.set_limit(limit))
    shared.tell(use, f"{limit.key}: {limit_text(use.limit)}")


@noun.command("list", epilog=options.examples("gnomon limit list", "gnomon limit list --json"))
@options.on_server
def list_limits(
    shared: options.ServerOptions,
) -> None:
    """List all limits, and how much of them is in use."""
    show_limits(shared.call(lambda verbs: verbs.list_limits()), as_json=shared.json)


@noun.command("drop", epilog=options.examples("gnomon limit drop queue mail"))
@options.on_server
def drop(
    shared: options.ServerOptions,
    kind: Kind,
    name: Name,
) -> None:
    """Remove a limit."""
    use = shared.call(lambda verbs: verbs.drop_limit(kind, name))
    shared.tell(use, f"{use.limit.key}: dropped")


def show_limits(uses: Sequence[LimitUse], *, as_json: bool) -> None:
    """A table; `granted` is what workers may use at the moment, `wanted` what they would."""
    if as_json:
        print_json({"limits": uses})
        return
    columns = ("kind", "name", "parallel", "rate", "burst", "granted", "wanted")
    rows = []
    for use in uses:
        limit = use.limit
        rate = None if limit.rate is None else f"{limit.rate:g}/s"
        has_use = limit.parallel is not None
        rows.append(
            (
                limit.kind, limit.name, limit.parallel, rate, limit.burst,
                use.granted if has_use else None, use.wanted if has_use else None,
            )
        )  # fmt: skip
    print_table(columns, rows)


def limit_text(limit: Limit) -> str:
    """`10 at once, 50/s`."""
    parts = [] if limit.parallel is None else [f"{limit.parallel} at once"]
    if limit.rate is not None:
        burst = "" if limit.burst is None else f" (up to {limit.burst} together)"
        parts.append(f"{limit.rate:g}/s{burst}")
    return ", ".join(parts)
