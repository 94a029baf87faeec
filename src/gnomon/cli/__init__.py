"""The command line: one file per noun, and one boundary where errors become exit codes."""

from __future__ import annotations

import os
import sys

import typer

from gnomon.gateways.errors import EXIT_INTERRUPTED, EXIT_USAGE, exit_code_of
from gnomon.model.errors import GnomonError, MissingExtra

HINTS = {
    "unavailable": "start a server with `gnomon up`, or name a database with --database",
    "store_unavailable": "is the database running, and is its URL right? `gnomon config show`",
    "not_found": "`gnomon action list` and `gnomon entity list` show what there is",
    "configuration": "`gnomon config show` prints every setting and where it came from",
    "unauthenticated": "set GNOMON_TOKEN; `gnomon token create` makes a token",
    "internal": "run `gnomon doctor`, and look into the log",
    "bug": "please report this; `gnomon doctor` shows whether what is stored is sound",
}


def main() -> int:
    """Run one command; the exit code says how it went (docs/reference/errors.md)."""
    from gnomon.cli.root import root

    try:
        code = root(standalone_mode=False)
    except GnomonError as exc:
        _show_error(str(exc), None if isinstance(exc, MissingExtra) else HINTS.get(exc.code))
        return exit_code_of(exc)
    except typer.TyperException as exc:
        _show_error(exc.format_message(), "add --help to see how it is used")
        return EXIT_USAGE
    except typer.Exit as exc:
        return exc.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; keep Python from complaining at its own exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code if isinstance(code, int) else 0


def _show_error(message: str, hint: str | None) -> None:
    from gnomon.cli.output import show_error  # loads what prints, which most commands need later

    show_error(message, hint)


__all__ = ["main"]
