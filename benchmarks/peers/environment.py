"""The virtual environments of the peers: one each, made on first use, at fixed versions."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".venv-peers"
REQUIREMENTS = Path(__file__).parent / "requirements"
STAMP = ".made-of"
INSTALL_S = 600.0
TOLD_CHARS_MAX = 300


class PeerMissing(RuntimeError):  # noqa: N818 - a state of the machine
    """The peer cannot be installed here."""


def python_of(name: str) -> Path:
    """The interpreter of the peer's environment, which is made if it is not there or is made of
    other versions."""
    folder, wanted = ENVIRONMENTS / name, made_of(REQUIREMENTS / f"{name}.txt")
    python, stamp = folder / "bin" / "python", folder / STAMP
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
        _install(python, REQUIREMENTS / f"{name}.txt")
    except (OSError, subprocess.SubprocessError) as exc:
        raise PeerMissing(f"{name} cannot be installed: {_told(exc)}") from exc
    stamp.write_text(wanted)
    return python


def made_of(requirements: Path) -> str:
    """What an environment is made of: this Python, these packages."""
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    return f"{sys.version_info.major}.{sys.version_info.minor} {digest}\n"


def version_of(name: str, package: str) -> str:
    """As the requirements file fixes it."""
    for line in (REQUIREMENTS / f"{name}.txt").read_text().splitlines():
        if line.startswith(f"{package}=="):
            return line.removeprefix(f"{package}==").split()[0]
    raise ValueError(f"{name}.txt does not fix {package}")


def _install(python: Path, requirements: Path) -> None:
    # --no-deps: see scripts/make-venv.
    subprocess.run(
        [python, *("-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
         "--require-hashes", "--no-deps", "-r", requirements],
        check=True, capture_output=True, text=True, timeout=INSTALL_S,
    )  # fmt: skip


def _told(exc: Exception) -> str:
    """The last line that says something."""
    text = getattr(exc, "stderr", None) or str(exc)
    lines = [line for line in str(text).splitlines() if line.strip()]
    return (lines or [type(exc).__name__])[-1][:TOLD_CHARS_MAX]
