"""Write a bill of materials (CycloneDX 1.5, JSON) of the packages in a lock file.

    scripts/sbom.py LOCK_FILE > sbom.json

Without a clock and without the network: the same lock file gives the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

_PACKAGE = re.compile(r"(?m)^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def components(lock: str) -> list[dict[str, object]]:
    """One for each package, in the order of the file."""
    found = list(_PACKAGE.finditer(lock))
    ends = [each.start() for each in found[1:]] + [len(lock)]
    return [
        component(each["name"], each["version"], _HASH.findall(lock[each.start() : end]))
        for each, end in zip(found, ends, strict=True)
    ]


def component(name: str, version: str, hashes: list[str]) -> dict[str, object]:
    purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": each} for each in hashes],
    }


def bill(lock: str) -> dict[str, object]:
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "gnomon", "bom-ref": "gnomon"}},
        "components": components(lock),
    }


if __name__ == "__main__":
    print(json.dumps(bill(Path(sys.argv[1]).read_text(encoding="utf-8")), indent=2))
