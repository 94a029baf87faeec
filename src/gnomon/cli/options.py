"""Options that several commands share, each declared once.

`@on_database` and `@on_server` give them to a command: it declares its own options only, and gets
the shared ones as its first argument, read.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer

from gnomon.app import App
from gnomon.cli.connection import ActionVerbs, EntityVerbs, connect, open_database
from gnomon.cli.output import print_json, say
from gnomon.cli.process import run
from gnomon.config import Settings, load_settings
from gnomon.model.errors import InvalidRequest

P = ParamSpec("P")
T = TypeVar("T")

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="File with settings; by default ./gnomon.toml."),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="The database: sqlite:///file or postgresql://user@host/database.",
    ),
]
Schema = Annotated[
    str | None,
    typer.Option("--schema", metavar="NAME", help="The schema in PostgreSQL; by default gnomon."),
]
Server = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="Call this server; by default the local one."),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="TEXT", envvar="GNOMON_TOKEN", show_envvar=False,
        help="For a server that needs one. Better set GNOMON_TOKEN: others can see arguments.",
    ),
]  # fmt: skip
Import = Annotated[
    str | None,
    typer.Option(
        "--import", metavar="MODULE:APP", help="Load the functions and stages of your App."
    ),
]
Queues = Annotated[
    str | None,
    typer.Option(
        "--queues", metavar="NAME,…", help="Serve these queues only; other workers serve the rest."
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics", metavar="HOST:PORT",
        help="Let Prometheus scrape /metrics here, 127.0.0.1:9321; all processes added up.",
    ),
]  # fmt: skip
MetricsOpen = Annotated[
    bool,
    typer.Option(
        "--metrics-open",
        help="With --metrics off loopback: without a token, on a network of yours.",
    ),
]
Processes = Annotated[
    int,
    typer.Option(
        "--processes", metavar="N", min=1, max=64,
        help="How many worker processes; more than one needs PostgreSQL.",
    ),
]  # fmt: skip
Port = Annotated[
    int | None, typer.Option("--port", metavar="N", help="Port of the REST API; 0: any free port.")
]
GrpcPort = Annotated[
    int | None,
    typer.Option(
        "--grpc-port", metavar="N", help="Serve gRPC too, on this port; 0: any free port."
    ),
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="Show at most this many.")]
Host = Annotated[
    str | None,
    typer.Option(
        "--host", metavar="HOST", help="Listen here; on loopback only, unless calls need a token."
    ),
]


def noun(summary: str) -> typer.Typer:
    """The commands of one noun."""
    return typer.Typer(help=summary, no_args_is_help=True, rich_markup_mode=None)


def examples(*lines: str) -> str:
    """The epilog of a command: examples, one a line, as they are typed."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def queue_names(text: str) -> str:
    """As given, if it is names with commas between them. Errors: InvalidRequest."""
    if not all(name.strip() for name in text.split(",")):
        raise InvalidRequest(f"--queues {text!r}: write names with commas between, mail,reports")
    return text


def metrics_flags(listen: str | None, *, open_: bool) -> dict[str, object]:
    """The settings of `--metrics` and `--metrics-open`."""
    return {"metrics.listen": listen, "metrics.open": True if open_ else None}


def settings_of(
    config: Path | None,
    *,
    database: str | None = None,
    schema: str | None = None,
    port: int | None = None,
    host: str | None = None,
    grpc_port: int | None = None,
    queues: str | None = None,
    metrics: str | None = None,
    metrics_open: bool = False,
) -> Settings:
    """The settings as these flags make them."""
    flags = {
        "database.url": database,
        "database.schema": schema,
        "server.port": port,
        "server.host": host,
        "server.grpc_port": grpc_port,
        "worker.only_queues": None if queues is None else queue_names(queues),
        **metrics_flags(metrics, open_=metrics_open),
    }
    return load_settings(file=config, flags=flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOptions:
    """The shared options of a command that works on the database itself."""

    settings: Settings
    json: bool

    def work(self, work: Callable[[App], Awaitable[T]]) -> T:
        """Open the database, as it is, and work on it."""

        async def opened() -> T:
            async with open_database(self.settings) as app:
                return await work(app)

        return run(opened())

    def tell(self, result: object, line: str) -> None:
        """Print the result: as JSON for a program, as a line for people."""
        print_json(result) if self.json else say(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions(DatabaseOptions):
    """The shared options of a command that a server answers, or the database itself."""

    server: str | None
    token: str | None

    def call(self, work: Callable[[ActionVerbs], Awaitable[T]]) -> T:
        """Call verbs of actions, wherever they are."""

        async def connected() -> T:
            async with connect(self.settings, server=self.server, token=self.token) as reached:
                return await work(reached.scheduler if isinstance(reached, App) else reached)

        return run(connected())

    def call_entities(self, work: Callable[[EntityVerbs], Awaitable[T]]) -> T:
        """Call verbs of entities, wherever they are."""

        async def connected() -> T:
            async with connect(self.settings, server=self.server, token=self.token) as reached:
                return await work(reached.entities)

        return run(connected())


def option(name: str, annotation: Any, default: object = None) -> inspect.Parameter:
    """An option, as a parameter that Typer reads."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


_DATABASE = (
    option("database", Database),
    option("schema", Schema),
    option("config", ConfigFile),
    option("json", Json, default=False),
)
_SERVER = (option("server", Server), option("token", Token), *_DATABASE)


def on_database(
    command: Callable[Concatenate[DatabaseOptions, P], None],
) -> Callable[..., None]:
    """Give a command the options of the database and of the output."""
    return _with_options(command, _DATABASE, DatabaseOptions)


def on_server(command: Callable[Concatenate[ServerOptions, P], None]) -> Callable[..., None]:
    """Give a command the options of the server, of the database and of the output."""
    return _with_options(command, _SERVER, ServerOptions)


def _with_options(
    command: Callable[..., None],
    declared: tuple[inspect.Parameter, ...],
    kind: Callable[..., DatabaseOptions],
) -> Callable[..., None]:
    """A function with the command's own options and the declared ones, as Typer reads them."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        shared = {option.name: values.pop(option.name) for option in declared}
        place = {name: shared.pop(name) for name in ("config", "database", "schema")}
        settings = settings_of(**place)
        command(kind(settings=settings, **shared), **values)

    wrapped.__signature__ = inspect.Signature([*own, *declared])  # type: ignore[attr-defined]
    return wrapped
