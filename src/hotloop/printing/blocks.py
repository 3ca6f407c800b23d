"""The text blocks of the seed systems: components with bars, the summary per episode, the rollout's timing.

What lives here: books in, plain text out, by the standard library alone, because training prints them itself; the command line
shows the same blocks of a session. Every percentage has one denominator, the wall time of the main track.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..model import shard as m
from ..model.ledger import PROFILER, UNATTRIBUTED, WAITING, Ledger, Operation
from ..model.listing import share_out_own_times
from ..model.sheet import HANDED, SPAN, Row, Sheet, make_sheet, round_shares, sheet_of_iterations
from .text import escape, shorten

MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Books:
    """What the blocks are made of."""

    shard: m.Shard  # the process that counts the iterations
    ledger: Ledger
    sheet: Sheet | None
    resources: Mapping[str, Any]

    @property
    def wall_ns(self) -> int:
        return self.sheet.wall_ns if self.sheet else 0


def close_books(shard: m.Shard, ledger: Ledger, resources: Mapping[str, Any]) -> Books:
    sheet = make_sheet(ledger, ledger.balances[0]) if ledger.balances else None
    return Books(shard, ledger, sheet, resources)


VIEWS = ("components", "episodes", "rollout")


def view_text(view: str, shard: m.Shard, ledger: Ledger, resources: Mapping[str, Any], *more: Any) -> str:
    """One of the blocks, by name."""
    if view == "rollout":
        return rollout_block(shard, *more)
    books = close_books(shard, ledger, resources)
    return component_block(books, *more) if view == "components" else episode_block(books)


# ---- components ----


def component_block(books: Books, width: int = 80) -> str:
    """Numbered components with their parts and bars; what nobody measured is a row like the others."""
    sheet = books.sheet
    rule = "-" * min(60, width)
    if sheet is None or not sheet.wall_ns:
        return f"Component Breakdown:\n{rule}\nnothing was recorded"
    shares = round_shares(sheet)
    top, above = 0, [0]
    while len(spans := [i for i in sheet.children_of(top) if sheet.rows[i].kind == SPAN]) == 1 and _has_spans(sheet, spans[0]):
        top = spans[0]
        above.append(top)
    name_width = max(18, min(34, width - 46))
    lines = ["Component Breakdown:", rule]
    number = 0
    outer = [i for at in above[:-1] for i in sheet.children_of(at) if i not in above]
    for i in sheet.children_of(top) + outer:
        row = sheet.rows[i]
        number += row.kind == SPAN
        head = f"{number}. " if row.kind == SPAN else "   "
        lines.append(head + _component(row, shares[i], name_width, width))
        parts = [c for c in _parts(sheet, i) if shares[c] >= 1]
        lines += ["   - " + _component(sheet.rows[c], shares[c], name_width - 2, width) for c in parts]
    lines.append(rule)
    lines.append("   " + _component(sheet.rows[0], shares[0], name_width, width, title="Total", bar=False))
    return "\n".join(lines)


def _parts(sheet: Sheet, index: int) -> list[int]:
    """The rows below; a hand-over is passed through to the work itself."""
    out = []
    for i in sheet.children_of(index):
        out += sheet.children_of(i) if sheet.rows[i].name == HANDED else [i]
    return out


def _has_spans(sheet: Sheet, index: int) -> bool:
    return any(sheet.rows[i].kind == SPAN and sheet.rows[i].branch >= 0 for i in sheet.children_of(index))


def _component(row: Row, share: int, name_width: int, width: int, title: str = "", bar: bool = True) -> str:
    mark = "≈ " if row.inferred else ""
    name = shorten(mark + (title or pretty(row.name)), name_width)
    text = f"{name:<{name_width}} {row.ns / 1e9:>8.2f}s ({share / 10:>5.1f}%)"
    room = max(8, min(38, width - 52))
    return text + ("  " + "█" * max(1, round(room * share / 1000)) if bar and share else "")


def pretty(name: str) -> str:
    """`data_collection` → `Data Collection`; a name that is not written like an identifier stays.

    >>> pretty("student_forward"), pretty("GPU->CPU"), pretty("(no span open)")
    ('Student Forward', 'GPU->CPU', '(no span open)')
    """
    shown = escape(name)
    return shown.replace("_", " ").title() if shown.replace("_", "").isalnum() and shown == shown.lower() else shown


# ---- per episode ----

_GROUPS = (
    ("Environment Operations", ("env", "reset", "step", "battle", "render")),
    ("Learning Operations", ("gradient", "optimizer", "loss", "update", "learn", "train", "backward", "gae", "advantage")),
    ("Agent Operations", ("agent", "policy", "action", "value", "inference", "forward")),
)


def episode_block(books: Books) -> str:
    """Times per episode, in groups, and the machine's resources."""
    episodes, unit = _episodes(books.shard)
    wall = books.wall_ns
    lines = [f"PERFORMANCE SUMMARY (per {unit})", "-" * 40, f"Total {unit.title()} Time: {wall / 1e9 / episodes:.3f}s", ""]
    shown = [o for o in books.ledger.operations if o.kind in (m.USER, m.OVERFLOW) and (o.calls or o.open)]
    inside = _always_inside(books.ledger)
    largest = find_largest(books.ledger, books.sheet)
    for title, members in _grouped(shown):
        lines.append(f"{title}:")
        lines += [f"  {_episode_row(o, episodes, wall, inside, o.name == largest)}" for o in members]
        lines.append("")
    if books.sheet is not None:
        waiting, lost = books.sheet.total_ns(WAITING), books.sheet.total_ns(UNATTRIBUTED)
        lines += [
            "Main thread:",
            f"  Waiting: {waiting / 1e9 / episodes:.3f}s ({_percent(waiting, wall)})",
            f"  Unattributed: {lost / 1e9 / episodes:.3f}s ({_percent(lost, wall)})",
            "",
        ]
    return "\n".join([*lines, *_resource_lines(books)])


def find_largest(ledger: Ledger, sheet: Sheet | None) -> str | None:
    """The operation with most time of its own, running or waiting; waiting for handed-over work is that work's."""
    own = share_out_own_times(sheet, ledger.tree)[0] if sheet else {}
    times = {name: x.self_s + (x.waiting_s or 0.0) for (name, _), x in own.items()}
    return max(times, key=lambda name: times[name]) if times else None


def _episodes(shard: m.Shard) -> tuple[int, str]:
    episodes = shard.counters.get("episodes", 0)
    return (episodes, "episode") if episodes > 0 else (max(1, shard.iterations_closed), "iteration")


def _grouped(operations: Sequence[Operation]) -> list[tuple[str, list[Operation]]]:
    groups: dict[str, list[Operation]] = {title: [] for title in (*(title for title, _ in _GROUPS), "Other Operations")}
    for o in operations:
        words = o.name.lower().replace("-", "_").replace(" ", "_").split("_")
        groups[next((title for title, keys in _GROUPS if words[0] in keys), "Other Operations")].append(o)
    return [(title, members) for title, members in groups.items() if members]


def _episode_row(o: Operation, episodes: int, wall_ns: int, inside: Mapping[str, str], largest: bool) -> str:
    first, _, rest = o.name.partition("_")
    name = pretty(rest if rest and first in ("env", "agent") else o.name)
    text = f"{name}: {o.union_ns / 1e9 / episodes:.3f}s ({_percent(o.union_ns, wall_ns)})"
    notes = []
    if o.name in inside:
        notes.append(f"inside {escape(inside[o.name])}")
    if o.concurrency > 1.005:
        notes.append(f"{o.busy_ns / 1e9 / episodes:.3f}s of thread time, {o.concurrency:.1f} at once")
    return text + (f"  [{'; '.join(notes)}]" if notes else "") + ("  <-- largest" if largest else "")


def _always_inside(ledger: Ledger) -> dict[str, str]:
    """Labels that only ever run directly below one other: their time is part of that one's."""
    above: dict[str, set[str]] = defaultdict(set)
    for branch in ledger.tree:
        if branch.kind == m.USER:
            parent = branch.parent
            while parent >= 0 and ledger.tree[parent].kind == m.HANDOFF:
                parent = ledger.tree[parent].parent
            above[branch.name].add(ledger.tree[parent].name if parent >= 0 and ledger.tree[parent].kind == m.USER else "")
    return {name: next(iter(parents)) for name, parents in above.items() if len(parents) == 1 and "" not in parents}


def _percent(part: int, whole: int) -> str:
    return f"{min(part, whole) / whole * 100:.1f}%" if whole else "0.0%"


def _resource_lines(books: Books) -> list[str]:
    r = books.resources
    lines = ["SYSTEM RESOURCE USAGE", "-" * 30]
    if "peak_memory_mb" in r:
        lines.append(f"Peak Memory Usage: {_memory(r['peak_memory_mb'])} (this process)")
    if "rss_peak" in r:
        lines.append(f"Peak Memory with children: {_memory(r['rss_peak'])} (sampled; mean {_memory(r['rss_mean'])})")
    cores = r.get("cores") or 1
    if "cpu_mean" in r and r.get("sampled_s", 0.0) >= 0.5 * r.get("wall_s", 0.0):  # else it is too short for samples
        lines.append(
            f"Average CPU Usage: {r['cpu_mean'] / cores:.1f}% of {cores:.0f} cores, with children "
            f"(peak {r['cpu_peak'] / cores:.1f}%)"
        )
    elif "cpu_s" in r and r.get("wall_s"):
        used = r["cpu_s"] / r["wall_s"]
        lines.append(f"Average CPU Usage: {used / cores * 100:.1f}% of {cores:.0f} cores ({used:.2f} cores busy)")
    if "gpu_mean" in r:
        lines.append(f"Average GPU Usage: {r['gpu_mean']:.1f}% (peak {r['gpu_peak']:.1f}%)")
    if "gpu_peak_mb" in r or "gpu_memory_peak" in r:
        lines.append(f"Peak GPU Memory: {_memory(r.get('gpu_peak_mb', r.get('gpu_memory_peak', 0.0)))}")
    return [*lines, "not measured"] if len(lines) == 2 else lines


def _memory(mb: float) -> str:
    return f"{mb / 1024:.2f} GB" if mb >= 1024 else f"{mb:.1f} MB"


# ---- the rollout ----


def rollout_block(shard: m.Shard, last: int = 10) -> str:
    """Milliseconds per iteration over the latest iterations, nested, the largest flagged."""
    rows = shard.iterations[-last:] if last > 0 else shard.iterations
    done = sum(row.merged for row in rows)
    total = shard.counters.get("env_steps", 0) or shard.iterations_closed
    rule = "=" * 60
    lines = [rule, f"Rollout Timing Profile (agent_step={total})", rule]
    if not done:
        return "\n".join([*lines, "  no iteration was closed yet: call step() at the end of each", rule])
    sheet = sheet_of_iterations(shard, rows)
    shown = _shown_rows(sheet)
    leaves = [i for i in shown if sheet.rows[i].leaf and sheet.rows[i].kind != PROFILER]
    largest = max(leaves, key=lambda i: sheet.rows[i].ns, default=-1)
    names = {i: _rollout_name(sheet, i, depth) for i, depth in shown.items()}
    wide = max([26, *(len(name) for name in names.values())])
    lines.append(f"{'  Iteration Total:':<{wide}}{sheet.wall_ns / 1e6 / done:>10.2f} ms   (mean of {done})")
    for i, name in names.items():
        mark = "  ≈" if sheet.rows[i].inferred else ""
        flag = "  <-- BOTTLENECK" if i == largest else ""
        lines.append(f"{name:<{wide}}{sheet.rows[i].ns / 1e6 / done:>10.2f} ms{mark}{flag}")
    return "\n".join([*lines, rule])


def _shown_rows(sheet: Sheet, most: int = 40) -> dict[int, int]:
    """Row -> depth: what took 1/1000 of the whole or 1/100 of its parent; a hand-over is passed through to the work."""
    depths = {0: -1}
    shown: dict[int, int] = {}
    for i, row in enumerate(sheet.rows[1:], 1):
        small = row.ns * 1000 < sheet.wall_ns and row.ns * 100 < sheet.rows[row.parent].ns
        if row.parent not in depths or small or len(shown) >= most:
            continue
        handed = row.name == HANDED
        depths[i] = depths[row.parent] + (not handed)
        if not handed:
            shown[i] = depths[i]
    return shown


def _rollout_name(sheet: Sheet, index: int, depth: int) -> str:
    row = sheet.rows[index]
    bullet = "- " if depth == 0 else "• "
    name = pretty(row.name)
    name += " Total" if not row.leaf and depth == 0 and not name.endswith("Total") else ""
    return shorten("    " + "    " * depth + bullet + name + ":", 48)
