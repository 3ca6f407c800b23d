"""The tests themselves: each asserts something."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ASSERTING = ("check", "assert", "expect", "raises", "warns", "fail")


def names_called(function: ast.AST) -> set[str]:
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}


def asserts(function: ast.AST, helpers: dict[str, ast.AST]) -> bool:
    """By itself, in a script that it runs, or by a function of the same file."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "assert " in node.value:
            return True
    called = names_called(function)
    rest = {name: helper for name, helper in helpers.items() if name not in called}
    return any(name.startswith(ASSERTING) for name in called) or any(
        asserts(helper, rest) for name, helper in helpers.items() if name in called
    )


def without_assertion(source: str) -> list[str]:
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    helpers: dict[str, ast.AST] = {function.name: function for function in functions}
    return [function.name for function in functions if function.name.startswith("test_") and not asserts(function, helpers)]


def test_every_test_asserts_something():
    files = sorted(TESTS.rglob("test_*.py"))
    assert len(files) > 50
    assert {str(file): found for file in files if (found := without_assertion(file.read_text()))} == {}


def test_a_test_without_assertion_is_found():
    source = "def helper():\n    assert 1\ndef test_a():\n    helper()\ndef test_b():\n    print('assertion')\n"
    assert without_assertion(source) == ["test_b"]
