"""What the architecture tests look at: the project's files, their imports and their names.

Every rule is a function from text to a list of findings, so that its test can feed it a bad example
and see it refused; a rule that cannot fail says nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PACKAGE = "gnomon"
GENERATED = SOURCE / PACKAGE / "v1"


@dataclass(frozen=True)
class Module:
    """One Python file, parsed."""

    name: str  # dotted, as it is imported
    path: Path
    text: str
    tree: ast.Module

    @classmethod
    def of_text(cls, name: str, text: str) -> Module:
        """For the self-tests: a module that is on no disk."""
        path = SOURCE / Path(*name.split(".")).with_suffix(".py")
        return cls(name, path, text, ast.parse(text))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the tree: a dozen rules look at each."""
        return tuple(ast.walk(self.tree))

    def where(self, node: ast.AST) -> str:
        line = getattr(node, "lineno", 1)
        return f"{self.path.relative_to(ROOT)}:{line}"

    def is_in(self, *packages: str) -> bool:
        """Whether it is one of these modules, or inside one of these packages of ours."""
        names = [f"{PACKAGE}.{package}" for package in packages]
        return any(self.name == name or self.name.startswith(f"{name}.") for name in names)


@dataclass(frozen=True, slots=True)
class Import:
    """`target` is dotted; `from a import b` gives `a.b`, for `b` may be a module."""

    target: str
    source: str  # the module part: `a` in `from a import b`, `a.b` in `import a.b`
    node: ast.stmt


@cache
def source_modules() -> tuple[Module, ...]:
    """Every Python file of the product, generated ones left out; read once for all rules."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        if GENERATED in path.parents:
            continue
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        found.append(Module(name, path, text, ast.parse(text, filename=str(path))))
    return tuple(found)


def imports_of(module: Module) -> Iterator[Import]:
    """All of them: at the top, inside functions, and for type checking only."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, alias.name, node)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:  # relative: forbidden by the linter, understood all the same
                parents = module.name.split(".")
                if module.path.name != "__init__.py":
                    parents = parents[:-1]
                parents = parents[: len(parents) - (node.level - 1)]
                source = ".".join((*parents, *filter(None, [source])))
            for alias in node.names:
                yield Import(f"{source}.{alias.name}", source, node)


def dotted_uses(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """Each use of an imported name, in full: `t.monotonic` after `import time as t` is
    `time.monotonic`. Uses count, not calls: a default argument is as bad as a call."""
    full_names: dict[str, str] = {}
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                full_names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full_names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in module.nodes:
        if isinstance(node, ast.Name) and node.id in full_names:
            yield full_names[node.id], node
        elif isinstance(node, ast.Attribute):
            parts = [node.attr]
            value = node.value
            while isinstance(value, ast.Attribute):
                parts.append(value.attr)
                value = value.value
            if isinstance(value, ast.Name) and value.id in full_names:
                yield ".".join((full_names[value.id], *reversed(parts))), node
