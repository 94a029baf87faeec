"""`gnomon config`: what is set, and by whom."""

from __future__ import annotations

from gnomon.cli import options
from gnomon.cli.output import print_json, print_table
from gnomon.config import show_settings

noun = options.noun("Look at the settings.")

EPILOG = options.examples(
    "gnomon config show",
    "GNOMON_WORKER_CONCURRENCY=5 gnomon config show --json",
)


@noun.command("show", epilog=EPILOG)
@options.on_database
def show(shared: options.DatabaseOptions) -> None:
    """Print every setting and where it came from; passwords are masked."""
    shown = show_settings(shared.settings)
    if shared.json:
        print_json({item.path: {"value": item.value, "source": item.source} for item in shown})
    else:
        print_table(("setting", "value", "source"), [(s.path, s.value, s.source) for s in shown])
