"""Write the generated pages of docs/reference anew; tests compare them with the code."""

from __future__ import annotations

from pathlib import Path

from gnomon.cli.page import cli_page
from gnomon.config.page import configuration_page
from gnomon.gateways.errors import errors_page
from gnomon.telemetry.metrics import metrics_page
from scripts.names import names_page
from scripts.signatures import python_page

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
PAGES = {
    "cli.md": cli_page,
    "configuration.md": configuration_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "names.md": names_page,
    "python.md": python_page,
}


def main() -> None:
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
        print(f"wrote docs/reference/{name}")


if __name__ == "__main__":
    main()
