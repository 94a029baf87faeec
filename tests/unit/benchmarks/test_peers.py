"""How peers are installed and asked, as far as no peer is needed for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.peers import environment
from benchmarks.peers.environment import PeerMissing, python_of, version_of
from benchmarks.peers.peer import PEERS, Peers
from benchmarks.peers.program import together


def test_a_bulk_has_one_due_time() -> None:
    """And no more rows than a peer takes well."""
    assert [(None, 2), (None, 1), (5.0, 1), (None, 1)] == list(
        together([None, None, None, 5.0, None], 2)
    )


def test_versions_are_those_of_the_requirements() -> None:
    for peer in PEERS:
        assert version_of(peer.key, peer.package)[0].isdigit()


@pytest.fixture
def no_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is installed, and nothing can be."""
    monkeypatch.setattr(environment, "ENVIRONMENTS", tmp_path)

    def refuse(python: Path, _requirements: Path) -> None:
        raise subprocess.CalledProcessError(1, [str(python)], stderr="first\nno such package\n")

    monkeypatch.setattr("venv.create", lambda folder, **_: folder.mkdir())
    monkeypatch.setattr(environment, "_install", refuse)
    return tmp_path


def test_a_peer_that_cannot_be_installed_says_why(no_environments: Path) -> None:
    with pytest.raises(PeerMissing, match="huey cannot be installed: no such package"):
        python_of("huey")


async def test_a_missing_peer_is_left_out(no_environments: Path) -> None:
    """And named for the report."""
    peers = Peers()
    await peers.prepare(PEERS[:1])
    assert [] == peers.on(PEERS[0].engine)
    assert [PEERS[0].key] == list(peers.missing)


def test_an_environment_is_made_once(
    no_environments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And anew when its requirements are others."""
    made = []

    def install(python: Path, _requirements: Path) -> None:
        made.append(python)
        python.parent.mkdir()
        python.touch()

    monkeypatch.setattr(environment, "_install", install)
    assert python_of("huey") == python_of("huey")
    assert 1 == len(made)
    (no_environments / "huey" / environment.STAMP).write_text("something else")
    python_of("huey")
    assert 2 == len(made)
