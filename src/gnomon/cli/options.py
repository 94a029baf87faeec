"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gnomon.config import Settings, load_settings

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings; else ./gnomon.toml.")
]
Database = Annotated[
    str | None,
    typer.Option(
        "--database", metavar="URL", help="sqlite:///file or postgresql://user@host/database."
    ),
]
Schema = Annotated[
    str | None, typer.Option("--schema", metavar="NAME", help="Schema in PostgreSQL.")
]
Server = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="The REST API; else the local one.")
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="TEXT", envvar="GNOMON_TOKEN", show_envvar=False,
        help="For a server that needs one; better in GNOMON_TOKEN, for others see arguments.",
    ),
]  # fmt: skip
Import = Annotated[
    str | None,
    typer.Option("--import", metavar="MODULE:APP", help="Load the functions of your App."),
]
Processes = Annotated[
    int, typer.Option("--processes", min=1, max=64, help="Worker processes (PostgreSQL).")
]
Port = Annotated[int | None, typer.Option("--port", help="Port of the API; 0: any free one.")]
GrpcPort = Annotated[
    int | None, typer.Option("--grpc-port", help="Serve gRPC, too; usually 8322; 0: any free port.")
]
Host = Annotated[
    str | None, typer.Option("--host", help="A loopback address, unless server.auth is token.")
]


def examples(*lines: str) -> str:
    """The epilog of a command: examples, one a line, as they are typed."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def settings_of(
    config: Path | None,
    *,
    database: str | None = None,
    schema: str | None = None,
    port: int | None = None,
    host: str | None = None,
    grpc_port: int | None = None,
) -> Settings:
    """The settings as these flags make them."""
    flags = {
        "database.url": database,
        "database.schema": schema,
        "server.port": port,
        "server.host": host,
        "server.grpc_port": grpc_port,
    }
    return load_settings(file=config, flags=flags)
