"""The second half of docs/reference/python.md: every public name with its signature."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"
MARK = "<!-- From here on made by scripts/signatures.py; see `make docs`. -->"
MODULES = ("gnomon", "gnomon.stages", "gnomon.testing", "gnomon.client")
PLACES = re.compile(r"\b(?:gnomon|collections|datetime|typing|uuid|asyncio)(?:\.\w+)*\.(?=\w)")
WIDTH_MAX = 96
STARS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def python_page() -> str:
    """What people wrote, and below the mark what the code says."""
    written = PAGE.read_text(encoding="utf-8").partition(MARK)[0].rstrip()
    parts = "".join(_module(name) for name in MODULES)
    return f"{written}\n\n{MARK}\n\n## All signatures\n{parts}"


def _module(name: str) -> str:
    module = importlib.import_module(name)
    names = sorted(word for word in module.__all__ if not word.startswith("__"))
    entries = "".join(_entry(word, getattr(module, word)) for word in names)
    return f"\n### From `{name}`\n{entries}"


def _entry(name: str, value: Any) -> str:
    if not isinstance(value, type):
        kind = "def " if callable(value) else ""
        return _block(name, [f"{kind}{name}{_signature(value)}"], _first(value))
    if issubclass(value, BaseException):
        return f"\n**`{name}`**: {_first(value)}\n"
    lines = [f"class {name}{_signature(value)}"]
    if issubclass(value, enum.Enum):
        lines = [f"class {name}: " + ", ".join(f"{each.name} = {each.value!r}" for each in value)]
    lines += [f"    {line}" for line in _methods(value)]
    return _block(name, lines, _first(value))


def _block(name: str, lines: list[str], text: str) -> str:
    return f"\n**`{name}`**: {text}\n\n```python\n" + "\n".join(lines) + "\n```\n"


def _methods(cls: type) -> Iterator[str]:
    """Its own public ones, in the order of the source."""
    for name, item in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(item, property):
            answer = inspect.signature(item.fget).return_annotation if item.fget else ""
            yield f"{name}: {_annotation(answer)}"
        elif inspect.isfunction(item):
            kind = "async def" if inspect.iscoroutinefunction(item) else "def"
            yield f"{kind} {name}{_signature(item)}"


def _signature(value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    if isinstance(value, type) and any(name.startswith("_") for name in found.parameters):
        return ""  # Gnomon makes it
    parameters = [*_parameters(found)]
    answer = "" if isinstance(value, type) else f" -> {_annotation(found.return_annotation)}"
    line = f"({', '.join(parameters)}){answer}"
    if len(line) <= WIDTH_MAX:
        return line
    return "(\n" + "".join(f"        {part},\n" for part in parameters) + f"    ){answer}"


def _parameters(found: inspect.Signature) -> Iterator[str]:
    """As they are written, with `/` and `*` where they stand."""
    before: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for each in found.parameters.values():
        if before is inspect.Parameter.POSITIONAL_ONLY and each.kind is not before:
            yield "/"
        if each.kind is each.KEYWORD_ONLY and before not in (each.kind, each.VAR_POSITIONAL):
            yield "*"
        stars = STARS.get(each.kind, "")
        kind = "" if each.annotation is each.empty else f": {_annotation(each.annotation)}"
        default = "" if each.default is each.empty else f" = {_default(each.default)}"
        yield f"{stars}{each.name}{kind}{default}"
        before = each.kind


def _annotation(value: Any) -> str:
    """Without the module in front of a name."""
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    return PLACES.sub("", text)


def _default(value: Any) -> str:
    """What has no short form, such as a value made for each call, is left out."""
    text = PLACES.sub("", repr(value))
    return "…" if text.startswith("<") or " at 0x" in text else text


def _first(value: Any) -> str:
    """The first sentence of its docstring."""
    lines = (inspect.getdoc(value) or "").split("\n\n")[0].split()
    return " ".join(lines)
