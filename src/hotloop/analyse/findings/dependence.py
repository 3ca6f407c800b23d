"""Does a call in a loop need what was computed the time before? Then no batch replaces the loop.

What lives here: the text of a loop's body in, a verdict out, by following names from statement to statement. Pure. What cannot
be read counts as independent.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping

_STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)


def needs_its_past(text: Mapping[int, str], first: int, last: int, line: int) -> bool:
    """Do the calls on this line, in a loop whose body has these lines, take what goes on from one time round to the next, and
    lead to it? What only comes of it (a loss of each state) can be computed of all together, when the loop is done.

    >>> body = {1: "    state = model(state, moves[:, t])", 2: "    total = total + score(seen[t])", 3: "    t += 1"}
    >>> body[4] = "    losses.append(loss(state))"
    >>> [needs_its_past(body, 1, 4, line) for line in (1, 2, 4)]
    [True, False, False]
    """
    try:
        body = ast.parse(textwrap.dedent("\n".join(text.get(n, "") for n in range(first, last + 1))))
    except (SyntaxError, ValueError, RecursionError):
        return False
    comes_from: dict[str, set[str]] = {}
    for node in ast.walk(body):
        for target in _targets(node):
            comes_from.setdefault(target, set()).update(_sources(node))
    at = line - first + 1
    calls: set[str] = set()
    made: set[str] = set()
    for node in ast.walk(body):
        if isinstance(node, (ast.Call, *_STATEMENTS)) and node.lineno <= at <= (node.end_lineno or at):
            if isinstance(node, ast.Call):
                calls.update(name for part in (*node.args, *node.keywords) for name in _names(part))
            else:
                made.update(_targets(node.value if isinstance(node, ast.Expr) else node))
    anew = _set_anew(body)
    for name in calls:
        sources = _reaches(name, comes_from)
        around = {x for x in sources if name in _reaches(x, comes_from)}  # it comes from these, and they from it
        if around - anew and (not made or made & sources):
            return True
    return False


def _set_anew(body: ast.Module) -> set[str]:
    """Names that each time round begin with a value of its own: set by the body itself before they are used in it."""
    used: set[str] = set()
    found: set[str] = set()
    for statement in body.body:
        if isinstance(statement, ast.Assign):
            used.update(_names(statement.value))
            found.update(name for target in statement.targets for name in _names(target) if name not in used)
        used.update(_names(statement))
    return found


def _reaches(name: str, comes_from: Mapping[str, set[str]]) -> set[str]:
    """All it comes from, directly or not."""
    found: set[str] = set()
    todo = [name]
    while todo:
        for source in comes_from.get(todo.pop(), ()):
            if source not in found:
                found.add(source)
                todo.append(source)
    return found


def _targets(node: ast.AST) -> Iterator[str]:
    """What it may change: names it assigns to, and what a method is called on with something (`rows.append(x)`). What only
    counts (`t += 1`) changes nothing."""
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        if not _counts(node):
            for target in node.targets if isinstance(node, ast.Assign) else (node.target,):
                yield from _names(target)
    elif isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
        yield from _names(node.func.value)


def _sources(node: ast.AST) -> Iterator[str]:
    """What the targets of a node come from. A list that is only appended to does not come from itself."""
    if isinstance(node, ast.Call):
        for part in (*node.args, *node.keywords):
            yield from _names(part)
    elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and node.value is not None:
        yield from _names(node.value)
        if isinstance(node, ast.AugAssign):
            yield from _names(node.target)


def _counts(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> bool:
    value = node.value
    if isinstance(value, ast.BinOp):
        value = value.right
    return isinstance(value, ast.Constant)


def _names(node: ast.AST) -> Iterator[str]:
    """The variables in it; an attribute is one of its own (`self.state`)."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield f"{node.value.id}.{node.attr}"
    else:
        for child in ast.iter_child_nodes(node):
            yield from _names(child)
