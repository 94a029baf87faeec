"""The console: pages for a browser, as files. All they show comes from the public REST API.

Nothing is made or built here; a gateway serves the files under their paths.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

STATIC = Path(__file__).parent / "static"
INDEX = "index.html"
FOLDER = "/console/"  # where all files but the first page are found
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",  # licences
}


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    """A file as a browser gets it."""

    content: bytes
    media_type: str
    etag: str


def load_files() -> Mapping[str, ConsoleFile]:
    """All files by their path on a server: the page is `/`, the others are below `/console/`."""
    paths = (path for path in sorted(STATIC.rglob("*")) if path.suffix in MEDIA_TYPES)
    return {_place_of(path): _read(path) for path in paths}


def _place_of(path: Path) -> str:
    name = path.relative_to(STATIC).as_posix()
    return "/" if name == INDEX else FOLDER + name


def _read(path: Path) -> ConsoleFile:
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return ConsoleFile(content, MEDIA_TYPES[path.suffix], etag)
