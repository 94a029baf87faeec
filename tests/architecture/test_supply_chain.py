"""What comes from others is pinned by its hash, and no secret is in what we publish."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peers.peer import PEERS

ROOT = Path(__file__).parents[2]
DEV_LOCK = ROOT / "requirements-dev.lock"
RUN_LOCKS = [ROOT / "requirements.lock", ROOT / "deploy" / "requirements.lock"]
PEER_LOCKS = sorted((ROOT / "benchmarks" / "peers" / "requirements").glob("*.txt"))
FILE_BYTES_MAX = 4 * 1024 * 1024
SECRETS = re.compile(
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{40}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{36}"
    r"|\bgithub_pat_[A-Za-z0-9_]{60}"
    r"|\bglpat-[A-Za-z0-9_-]{20}"
    r"|\bxox[abprs]-[0-9A-Za-z-]{20}"
    r"|\bsk_live_[0-9A-Za-z]{20}"
    r"|\bAIza[0-9A-Za-z_-]{35}"
    r"|\bpypi-AgE[A-Za-z0-9_-]{50}"
    r"|\bgnomon_[A-Za-z0-9_-]{43}\b"
)


@pytest.mark.parametrize(
    "lock", [DEV_LOCK, *RUN_LOCKS, *PEER_LOCKS], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_package_has_its_hashes(lock: Path) -> None:
    """pip then takes these very files, and refuses any other."""
    parts = re.split(r"(?m)^(?=[A-Za-z0-9._-]+==)", lock.read_text())[1:]
    assert (50 if lock == DEV_LOCK else 0) < len(parts)
    assert [] == [part.split()[0] for part in parts if "--hash=sha256:" not in part]


@pytest.mark.parametrize("lock", RUN_LOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_runs_is_what_was_tested(lock: Path) -> None:
    """At the same versions, with the same hashes."""
    tested, running = (set(locked_lines(path)) for path in (DEV_LOCK, lock))
    assert set() == running - tested
    assert 10 < len(running)


def locked_lines(lock: Path) -> list[tuple[str, str]]:
    return re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock.read_text())


def test_every_peer_has_a_lock_of_its_own() -> None:
    """One that is compared with is installed at a fixed version."""
    assert {peer.key for peer in PEERS} == {path.stem for path in PEER_LOCKS}


def test_the_bill_of_materials_names_every_package() -> None:
    """With version and hashes; the same lock file gives the same bill."""
    command = [sys.executable, str(ROOT / "scripts" / "sbom.py"), str(DEV_LOCK)]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in "ab"
    )
    assert first == second
    bill = json.loads(first)
    assert locked_lines(DEV_LOCK) == [
        (each["name"], each["version"]) for each in bill["components"]
    ]
    assert all(each["hashes"] for each in bill["components"])


def published_files() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name]


def test_no_file_holds_a_secret() -> None:
    """By the forms that keys and tokens have; made-up ones in tests are put together there."""
    found = [
        f"{path.relative_to(ROOT)}: {match[0][:12]}…"
        for path in published_files()
        if path.is_file() and path.stat().st_size <= FILE_BYTES_MAX
        for match in SECRETS.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert [] == found


@pytest.mark.parametrize(
    "text", ["AKIA" + "A" * 16, "ghp_" + "a" * 36, "gnomon_" + "x" * 43, "glpat-" + "x" * 20]
)
def test_the_forms_of_secrets_are_known(text: str) -> None:
    assert SECRETS.search(f"token = '{text}'")
