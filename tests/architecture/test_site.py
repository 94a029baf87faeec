"""The pages as a site: built strictly, complete, and with nothing from another host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What a browser fetches by itself; a link that somebody may follow is another thing.
FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|embed|object)\b[^>]*\b(?:src|data)="
    r"[\"']?(?:https?:)?//[^\"' >]+"
    r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*href=[\"']?(?:https?:)?//[^\"' >]+"
    r"|(?:url\(|@import )[\"']?(?:https?:)?//[^\"')]+"
)


def built(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)], cwd=root,
        capture_output=True, text=True, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make site` builds it."""
    folder = tmp_path_factory.mktemp("site")
    done = built(ROOT, folder)
    assert 0 == done.returncode, done.stdout + done.stderr
    return folder


def test_a_page_that_is_not_in_the_list_is_noticed(tmp_path: Path) -> None:
    """The build can fail."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "docs" / "howto" / "lost.md").write_text("# Lost\n")
    (tmp_path / "mkdocs.yml").write_text((ROOT / "mkdocs.yml").read_text())
    done = built(tmp_path, tmp_path / "site")
    assert 0 != done.returncode
    assert "howto/lost.md" in done.stdout + done.stderr


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    html = {
        path.with_name("index.html" if path.name == "README.md" else f"{path.stem}.html")
        for path in pages
    }
    assert set() == {path for path in html if not (site / path).exists()}


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    """Neither fonts nor scripts nor pictures: it can be read on a train."""
    found = [
        f"{path.relative_to(site)}: {match[0]}"
        for suffix in ("html", "css")
        for path in site.rglob(f"*.{suffix}")
        for match in FETCHED.finditer(path.read_text())
    ]
    assert [] == found
    # The theme's script would fetch this one, if a page had such a block.
    assert [] == [path for path in site.rglob("*.html") if 'class="mermaid"' in path.read_text()]


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/a.js">',
        "<link rel=stylesheet href=//fonts.example/a.css>",
        "@import 'https://fonts.example/a.css'",
        '<img alt="a" src="http://pictures.example/a.png">',
    ],
)
def test_what_would_be_loaded_is_found(text: str) -> None:
    assert FETCHED.search(text)
    assert not FETCHED.search('<a href="https://www.standardwebhooks.com">')
