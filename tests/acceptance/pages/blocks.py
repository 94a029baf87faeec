"""The code blocks of README, tutorials and how-tos, and which of them cannot be run here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PATTERNS = ("README.md", "docs/tutorial/*.md", "docs/howto/*.md")
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

# Pages whose blocks are one story, with a test of its own.
STORIES = {
    "docs/tutorial/curl.md": "test_curl_story.py",
    "docs/tutorial/grpc.md": "test_grpc_story.py",
    "docs/tutorial/sql.md": "test_sql_story.py",
    "docs/howto/testing.md": "test_testing_page.py",
    "docs/howto/blocking.md": "test_blocking_page.py",
    "docs/howto/django.md": "test_django.py",
    "docs/howto/fastapi.md": "test_web_frameworks.py",
}

# By page and first line. Code of other tools, which has a title, needs their libraries.
NOT_RUN = {
    ("README.md", "$ make test               # installs"): "it would run the tests in a test",
    ("docs/howto/install.md", "pip install gnomon-scheduler"): "there is no release yet",
    ("docs/howto/install.md", "pip install 'gnomon-scheduler["): "there is no release yet",
    ("docs/howto/tracing.md", "$ pip install"): "there is no release yet; test_tracing.py has it",
    (
        "docs/howto/change.md",
        "$ gnomon action retry --all",
    ): "asks on a terminal; test_action_all.py has it",
    ("docs/howto/install.md", "gnomon --install-completion"): "changes the shell of whoever tests",
    ("docs/howto/install.md", "error: PostgreSQL needs"): "tests/integration/test_extras.py has it",
    ("docs/howto/sql.md", 'CREATE ROLE "reports"'): "parts of what the command above prints",
    (
        "docs/howto/sql-tasks.md",
        "$ gnomon tasks --dsn postgresql://admin@db/postgres --conf-file",
    ): "three databases and their logins; test_tasks_story.py has two",
    (
        "docs/howto/stages.md",
        "import asyncio\nfrom gnomon.stages.stage_server",
    ): "serves for ever; tests/conformance/stages/test_serving.py has it",
}


@dataclass(frozen=True, slots=True)
class Block:
    """One block as it is printed."""

    page: str
    number: int
    language: str
    title: str | None
    text: str

    @property
    def reason_not_run(self) -> str | None:
        """Why it cannot be run here."""
        if self.title is not None:
            return f"code of {self.title}"
        for (page, start), reason in NOT_RUN.items():
            if page == self.page and self.text.startswith(start):
                return reason
        return None

    @property
    def file(self) -> str | None:
        """The name of the file that it is, if its first line says so."""
        found = re.match(r"# (\w+\.\w+)\n", self.text)
        return found[1] if found else None


@cache
def all_blocks() -> tuple[Block, ...]:
    """In the order of the pages."""
    paths = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))
    return tuple(block for path in paths for block in _blocks_of(path))


def to_run(page: str, *languages: str) -> list[Block]:
    """The blocks of a page that can be run, of these languages."""
    return [
        block
        for block in all_blocks()
        if block.page == page and block.language in languages and block.reason_not_run is None
    ]


def pages_with(*languages: str) -> list[str]:
    """Pages that have such blocks, and no story of their own."""
    found = dict.fromkeys(block.page for block in all_blocks() if block.language in languages)
    return [page for page in found if page not in STORIES and to_run(page, *languages)]


def _blocks_of(path: Path) -> list[Block]:
    page = str(path.relative_to(ROOT))
    found = []
    for number, (head, text) in enumerate(FENCE.findall(path.read_text())):
        language, _, rest = head.partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        found.append(Block(page, number, language, title[1] if title else None, text))
    return found
