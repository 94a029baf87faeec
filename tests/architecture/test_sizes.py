"""A file reads in one sitting, a function on one screen."""

from __future__ import annotations

import ast

from tests.architecture.sources import Module, source_modules

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 80

# Name of a module or `module:function` -> its limit. Empty, and meant to stay so.
ALLOWED: dict[str, int] = {}


def size_findings(module: Module) -> list[str]:
    findings = []
    line_count = len(module.text.splitlines())
    if line_count > ALLOWED.get(module.name, FILE_LINES_MAX):
        findings.append(f"{module.name}: {line_count} lines, at most {FILE_LINES_MAX}")
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            if length > ALLOWED.get(f"{module.name}:{node.name}", FUNCTION_LINES_MAX):
                where = module.where(node)
                findings.append(f"{where}: {node.name} has {length}, at most {FUNCTION_LINES_MAX}")
    return findings


def test_files_and_functions_are_small() -> None:
    """No source file over 500 lines, no function over 80."""
    assert [] == [finding for module in source_modules() for finding in size_findings(module)]


def test_size_rule_can_fail() -> None:
    long_file = "x = 1\n" * (FILE_LINES_MAX + 1)
    long_function = "async def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX
    for text in (long_file, long_function):
        assert 1 == len(size_findings(Module.of_text("gnomon.worker.leases", text)))
    just_right = "def f():\n" + "    x = 1\n" * (FUNCTION_LINES_MAX - 1)
    assert [] == size_findings(Module.of_text("gnomon.worker.leases", just_right))
