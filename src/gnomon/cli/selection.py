"""Which actions a command is about: the filters of `action list`, and of `--all`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from gnomon.cli.options import option
from gnomon.contracts.store import Selection
from gnomon.model.action import State
from gnomon.model.arguments import read_arguments
from gnomon.model.errors import InvalidRequest, InvalidSpec
from gnomon.scheduler.options import moment_of

WHICH = "name an action, or write --all with filters such as --state dead --queue mail"

Id = Annotated[str | None, typer.Argument(metavar="ID", help="The action's id; or use --all.")]
All = Annotated[bool, typer.Option("--all", help="Everything that matches the filters.")]
Yes = Annotated[bool, typer.Option("--yes", help="With --all: do not ask.")]
After = Annotated[
    str | None,
    typer.Option("--after", metavar="NEXT", help="With --all: go on where it was stopped."),
]
States = Annotated[
    list[State] | None, typer.Option("--state", metavar="STATE", help="In this state; repeatable.")
]
Queue = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="In this queue.")]
Function = Annotated[
    str | None, typer.Option("--function", metavar="NAME", help="That call this function.")
]
ErrorContains = Annotated[
    str | None,
    typer.Option(
        "--error-contains", metavar="TEXT", help="Whose last attempt failed with this in its error."
    ),
]
IdPrefix = Annotated[
    str | None, typer.Option("--id-prefix", metavar="TEXT", help="With ids that begin with this.")
]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="K=V", help="With this label; repeatable.")
]
Arguments = Annotated[
    list[str] | None,
    typer.Option(
        "--argument", metavar="PATH=VALUE",
        help="With this argument, such as customer.id=7; repeatable.",
    ),
]  # fmt: skip
DueBefore = Annotated[
    str | None,
    typer.Option(
        "--due-before", metavar="TIME", help="Due before this time, which has a time zone."
    ),
]

Search = Annotated[
    str | None,
    typer.Option("--search", metavar="TEXT", help="With this in id, queue or function."),
]
Recurring = Annotated[bool, typer.Option("--recurring", help="That come again.")]
PausedFor = Annotated[
    str | None, typer.Option("--paused-for", metavar="REASON", help="Paused for this reason.")
]

_FILTERS = (
    option("state", States),
    option("queue", Queue),
    option("function", Function),
    option("error_contains", ErrorContains),
    option("id_prefix", IdPrefix),
    option("label", Labels),
    option("argument", Arguments),
    option("due_before", DueBefore),
    option("search", Search),
    option("recurring", Recurring, default=False),
    option("paused_for", PausedFor),
)
_ALL = (
    option("all", All, default=False),
    option("yes", Yes, default=False),
    option("after", After),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Conditions, all of which must hold."""

    state: list[State] | None = None
    queue: str | None = None
    function: str | None = None
    error_contains: str | None = None
    id_prefix: str | None = None
    label: list[str] | None = None
    argument: list[str] | None = None
    due_before: str | None = None
    search: str | None = None
    recurring: bool = False
    paused_for: str | None = None

    @property
    def given(self) -> list[str]:
        """The options that were written."""
        names = [field.name for field in fields(self) if getattr(self, field.name)]
        return ["--" + name.replace("_", "-") for name in names]

    def selection(self) -> Selection:
        """Errors: InvalidSpec."""
        due_before = self.due_before
        return Selection(
            states=tuple(self.state or ()),
            queue=self.queue,
            id_prefix=self.id_prefix,
            labels=labels_of(self.label or []),
            due_before=None if due_before is None else moment_of(due_before, "--due-before"),
            function=self.function,
            error_contains=self.error_contains,
            arguments=read_arguments(self.argument or [], "--argument"),
            search=self.search,
            recurring=self.recurring,
            paused_for=self.paused_for,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One action, or everything that matches."""

    id: str | None
    all: bool
    yes: bool
    after: str | None
    filters: Filters

    def only(self) -> str:
        """The one. Errors: InvalidRequest."""
        if self.id is None:
            raise InvalidRequest(WHICH)
        more = ["--yes"] * self.yes + ["--after"] * (self.after is not None) + self.filters.given
        if more:
            raise InvalidRequest(f"{', '.join(more)}: only with --all, and not with an id")
        return self.id

    def check_all(self, **of_one: object) -> None:
        """Nothing may be said that is for one action. Errors: InvalidRequest."""
        names = ["--" + name.replace("_", "-") for name, value in of_one.items() if value]
        if self.id is not None:
            raise InvalidRequest("an id and --all exclude each other")
        if names:
            raise InvalidRequest(f"{', '.join(names)}: only for one action, not with --all")


def labels_of(texts: list[str]) -> dict[str, str]:
    """`k=v` options as a mapping."""
    labels = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidSpec("--label", "must be name=value", got=text)
        labels[name] = value
    return labels


def filtered(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the filters, as its second argument."""
    return _with_second(command, _FILTERS, _filters)


def choosing(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an id, or `--all` and the filters, as its second argument."""
    declared = (option("id", Id), *_ALL, *_FILTERS)

    def choice(values: dict[str, Any]) -> Chosen:
        filters = _filters(values)
        return Chosen(filters=filters, **{one.name: values.pop(one.name) for one in declared[:4]})

    return _with_second(command, declared, choice)


def _filters(values: dict[str, Any]) -> Filters:
    return Filters(**{one.name: values.pop(one.name) for one in _FILTERS})


def _with_second(
    command: Callable[..., None],
    declared: tuple[inspect.Parameter, ...],
    read: Callable[[dict[str, Any]], object],
) -> Callable[..., None]:
    first, _, *own = inspect.signature(command, eval_str=True).parameters.values()

    @functools.wraps(command)
    def wrapped(shared: object, /, **values: Any) -> None:
        second = read(values)
        command(shared, second, **values)

    wrapped.__signature__ = inspect.Signature([first, *declared, *own])  # type: ignore[attr-defined]
    return wrapped
