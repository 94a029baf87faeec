"""Settings and JSON on the pages are read by what reads them in the product."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gnomon.config import load_settings
from gnomon.model.task.conf import read_entries
from tests.acceptance.pages.blocks import ROOT, pages_with, to_run

# What a page leaves out because it is elsewhere: the target that a relay goes to.
BESIDE = {
    "docs/howto/stages.md": '[targets.events]\nkind = "kafka"\nbootstrap = "kafka-1:9093"\n',
}


def secrets_for(text: str) -> str:
    """A secret for each name that is used and not declared on the page."""
    used = set(re.findall(r'"secret://([\w-]+)"', text)) - set(
        re.findall(r"\[secrets\.([\w-]+)\]", text)
    )
    return "".join(f'\n[secrets.{name}]\nenv = "A_SECRET"\n' for name in sorted(used))


@pytest.mark.parametrize("page", pages_with("toml"))
def test_settings_are_settings(page: str, tmp_path: Path) -> None:
    """Each block alone is a gnomon.toml that is accepted, with its secrets declared."""
    for block in to_run(page, "toml"):
        file = tmp_path / f"{block.number}.toml"
        file.write_text(block.text + BESIDE.get(page, "") + secrets_for(block.text))
        load_settings(file=file, environ={})


def test_a_list_of_task_tables_is_one() -> None:
    (block,) = to_run("docs/howto/sql-tasks.md", "json")
    assert 3 == len(read_entries(block.text, data="postgres", user="admin"))


@pytest.mark.parametrize("page", sorted(set(pages_with("json")) - {"docs/howto/sql-tasks.md"}))
def test_documents_are_json(page: str) -> None:
    """Whatever else is checked of them: see the acceptance test of the page's subject."""
    for block in to_run(page, "json"):
        json.loads(block.text)


def test_the_push_has_the_fields_that_are_sent() -> None:
    (block,) = to_run("docs/howto/push.md", "json")
    source = (ROOT / "src/gnomon/executors/push.py").read_text()
    assert [] == [name for name in json.loads(block.text) if f'"{name}"' not in source]
