"""The balance sheet as the page shows it: columns, shares that add up, small rows in groups.

What lives here: selection and rounding. Invariants: a row's nanoseconds and its share are the sums of those below it; the first
row is the wall time and 100 %.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any

from ...model.sheet import KINDS, SPAN, Row, Sheet, fold_small, round_shares
from ..units import STEPS, round_parts
from .names import Names

MAX_DEPTH = 64
LARGE = 12  # rows shown below a parent before one asks for the others
SEEN = 2000  # a smaller part of the wall time reads 0.0 %


def totals_data(sheet: Sheet | None) -> list[dict[str, Any]] | None:
    if sheet is None:
        return None
    sums = [(sheet.total_ns(kind), sheet.total_ns(kind, inferred=True)) for kind in KINDS]
    shares = round_parts([ns for ns, _ in sums])
    return [
        {"ns": ns, "share": share, "inferred_ns": inferred, "inferred_share": round_parts([inferred, ns - inferred], share)[0]}
        for (ns, inferred), share in zip(sums, shares, strict=True)
    ]


def sheet_data(sheet: Sheet | None, names: Names, limit: int) -> dict[str, Any] | None:
    if sheet is None:
        return None
    least_ns = sorted((row.ns for row in sheet.rows), reverse=True)[limit] + 1 if len(sheet.rows) > limit else 0
    folded = fold_small(sheet, least_ns, most_children=limit, most_depth=MAX_DEPTH)
    grouped, groups = group_small(folded, gathered={row.name for row in folded.rows} - {row.name for row in sheet.rows})
    return {
        "there": len(sheet.rows),
        "kept": len(folded.rows),
        "groups": groups,
        "parent": [row.parent for row in grouped.rows],
        "name": [names(row.name) for row in grouped.rows],
        "kind": [KINDS.index(row.account if row.leaf else row.kind) for row in grouped.rows],
        "inferred": [int(row.inferred) for row in grouped.rows],
        "ns": [row.ns for row in grouped.rows],
        "share": round_shares(grouped, STEPS),
        "calls": [row.calls for row in grouped.rows],
        "busy_ns": [row.busy_ns for row in grouped.rows],
    }


def group_small(sheet: Sheet, gathered: Set[str] = frozenset()) -> tuple[Sheet, list[int]]:
    """The sheet, largest rows first, with the small rows of each parent below a row of their own; and which rows those are.

    A thousand rows of 0.001 % cannot be rounded one by one: as a group they have a share that is right.
    """
    below = sheet.children()
    rows: list[Row] = []
    groups: list[int] = []
    stack: list[tuple[int, int, list[int]]] = [(0, -1, [])]  # index in the sheet, new parent, and of a group what is in it
    while stack:
        index, parent, members = stack.pop()
        at = len(rows)
        depth = rows[parent].depth + 1 if parent >= 0 else 0
        if members:
            groups.append(at)
            rows.append(_sum_rows(parent, depth, [sheet.rows[i] for i in members]))
            stack += [(i, at, []) for i in reversed(members)]
            continue
        rows.append(replace(sheet.rows[index], parent=parent, depth=depth))
        children = sorted(below[index], key=lambda i: (sheet.rows[i].name in gathered, -sheet.rows[i].ns))
        seen = [i for i in children if sheet.rows[i].name not in gathered and sheet.rows[i].ns * SEEN >= sheet.wall_ns]
        large = min(len(seen), LARGE)
        if len(children) - large > 1:
            stack.append((-1, at, children[large:]))
            children = children[:large]
        stack += [(i, at, []) for i in reversed(children)]
    return Sheet(tuple(rows)), groups


def _sum_rows(parent: int, depth: int, rows: Sequence[Row]) -> Row:
    ns, calls, busy_ns = (sum(column) for column in zip(*((r.ns, r.calls, r.busy_ns) for r in rows), strict=True))
    inferred = all(row.inferred for row in rows)
    return Row(parent, depth, f"({len(rows):,} smaller rows)", SPAN, inferred, ns, calls, busy_ns, -1, leaf=False)
