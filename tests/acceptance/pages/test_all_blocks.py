"""Every block of README, tutorials and how-tos is run by some test, or listed with the reason."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.pages.blocks import NOT_RUN, STORIES, all_blocks

HERE = Path(__file__).parent
# Each language has one test that takes all pages with such blocks.
RUN = {
    "python": "test_python_blocks.py",
    "toml": "test_toml_blocks.py",
    "json": "test_toml_blocks.py",
    "console": "test_console_blocks.py",
    "sh": "test_console_blocks.py",
    "sql": "test_sql_blocks.py",
}
NOT_RUN_MAX = 10


def test_every_block_has_a_test() -> None:
    """By its language, or as a part of a page's story."""
    left = [
        f"{block.page} #{block.number} ({block.language})"
        for block in all_blocks()
        if block.reason_not_run is None and block.page not in STORIES and block.language not in RUN
    ]
    assert [] == left
    assert [] == [name for name in set(RUN.values()) if not (HERE / name).exists()]


def test_every_story_is_about_its_page() -> None:
    for page, name in STORIES.items():
        assert Path(page).name in (HERE.parent / name).read_text(), name


def test_what_is_not_run_is_there_and_little() -> None:
    """A reason without a block is out of date."""
    for page, start in NOT_RUN:
        texts = [block.text for block in all_blocks() if block.page == page]
        assert any(text.startswith(start) for text in texts), (page, start)
    assert len(NOT_RUN) <= NOT_RUN_MAX
