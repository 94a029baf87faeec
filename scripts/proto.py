"""Write src/gnomon/v1 anew from proto/gnomon/v1; with `--baseline` also proto/baseline.binpb.

The baseline is the protocol as it was last promised: tests refuse a change that a client of then
would not survive. It is written anew with a release, not with a change.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROTO = ROOT / "proto"
BASELINE = PROTO / "baseline.binpb"
FILES = ("action", "entity", "handler", "scheduler", "stage")
FILES_WITH_SERVICES = ("entity", "handler", "scheduler", "stage")


def generate(folder: Path) -> None:
    """Messages, stubs and their types, into `folder`/gnomon/v1."""
    _protoc(FILES, f"--python_out={folder}", f"--mypy_out=quiet:{folder}")
    _protoc(FILES_WITH_SERVICES, f"--grpc_python_out={folder}", f"--mypy_grpc_out=quiet:{folder}")


def describe(file: Path) -> None:
    """The protocol as a FileDescriptorSet."""
    _protoc(FILES, f"--descriptor_set_out={file}", "--include_imports")


def _protoc(names: tuple[str, ...], *arguments: str) -> None:
    # Named in full: the plugins are found although nobody activated the environment.
    folder = Path(sys.executable).parent
    plugins = [f"--plugin={name}={folder / name}" for name in _PLUGINS if (folder / name).exists()]
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", *plugins, *arguments),
            *(f"gnomon/v1/{name}.proto" for name in names),
        ],
        check=True,
        cwd=PROTO,
    )


_PLUGINS = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")


def main() -> None:
    generate(ROOT / "src")
    print("wrote src/gnomon/v1")
    if "--baseline" in sys.argv[1:]:
        describe(BASELINE)
        print("wrote proto/baseline.binpb")


if __name__ == "__main__":
    main()
