"""The report as a person reads it in a terminal: where the time went, that the books close, what is odd.

What lives here: results in, rich renderables out; `report_text` makes plain text of them. What a run wants to be told first is
in `opening`, what all sections draw with in `drawing`.
"""

from __future__ import annotations

import io
import time
from collections import Counter
from textwrap import wrap

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ..analyse.diagnosis import Diagnosis
from ..model.ledger import PROFILER, UNATTRIBUTED, WAITING, Operation
from ..model.sheet import KINDS, SPAN, Sheet, fold_small, round_shares
from ..printing.text import escape, losses_text, own_cost_text
from .devices import device_sections
from .drawing import FAINT, FILL, STYLE, WORD, balance_parts, draw_bar, fold_text, join_facts, make_table
from .opening import opening
from .sentences import end_text, hook_notes, inferred_text, learners_text, work_facts
from .units import count_text, duration_text, interval_text, rate_text, round_parts, share_text, spark_text

OPERATIONS_SHOWN, LANES_SHOWN = 20, 24


def report_text(diagnosis: Diagnosis, width: int = 100) -> str:
    """The whole report as plain text."""
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    show_report(console, diagnosis)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def show_report(console: Console, diagnosis: Diagnosis) -> None:
    width = console.width
    for part in (
        _header(diagnosis, width),
        *opening(diagnosis, width),
        _balance(diagnosis, width),
        _operations(diagnosis, width),
        _lanes(diagnosis, width),
        _iterations(diagnosis, width),
        *device_sections(diagnosis, width),
        _quality(diagnosis),
    ):
        if part is not None:
            console.print(part, highlight=False, soft_wrap=False)


# ---- header ----


def _header(diagnosis: Diagnosis, width: int) -> RenderableType:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(diagnosis.start_unix_ns / 1e9)) if diagnosis.start_unix_ns else ""
    states = Counter(process.state for process in diagnosis.processes)
    processes = ", ".join(f"{n} {state}" for state, n in states.items())
    title = Text.assemble(("HotLoop  ", "bold"), (escape(diagnosis.name), "bold"), f"  {when}")
    facts = [
        f"wall {duration_text(diagnosis.wall_ns)}",
        f"loop {duration_text(diagnosis.loop_ns)}",
        f"coverage {share_text(diagnosis.numbers.coverage)}",
    ]
    if diagnosis.sps is not None:
        facts.append(f"{rate_text(diagnosis.sps)} env steps/s")
    if diagnosis.iterations_closed:
        facts.append(f"{diagnosis.iterations_closed:,} iterations")
    if not diagnosis.phases.known:
        facts += [f"{count_text(n)} {escape(name)}" for name, n in diagnosis.counters.items() if name != "env_steps"]
    facts.append(f"{len(diagnosis.processes)} process{'es' * (len(diagnosis.processes) != 1)} ({processes})")
    rows = [title, Text(join_facts(facts, width))]
    if diagnosis.learners > 1:
        rows += fold_text(learners_text(diagnosis), width, "", "")
    if diagnosis.phases.known and diagnosis.counters:
        rows.append(Text(join_facts(work_facts(diagnosis.counters), width)))
    return Group(*rows, *fold_text(end_text(diagnosis.meta), width, "", "", "red"), "")


# ---- balance sheet ----


def _balance(diagnosis: Diagnosis, width: int) -> RenderableType | None:
    if diagnosis.sheet is None or not diagnosis.sheet.wall_ns:
        return None
    track = diagnosis.ledger.balances[0].name
    sheet = fold_small(diagnosis.sheet, diagnosis.sheet.wall_ns // 200, most_children=10)
    bar = 24 if width >= 100 else 14
    title = f"WHERE THE TIME WENT  ({escape(track)})"
    table = make_table(title, "share", "time", "calls", room=width - bar - 32, gap=1)
    table.add_column("", no_wrap=True, width=bar)
    shares = round_shares(sheet)
    guides = _guides(sheet)
    mixes = _mixes(sheet)
    for i, row in enumerate(sheet.rows):
        name = Text(guides[i], style=FAINT)
        name.append("≈ " if row.inferred and not sheet.rows[row.parent].inferred else "", style=FAINT)
        name.append(escape(row.name), style="bold" if row.depth <= 1 and row.kind == SPAN else _shade(row.kind, row.leaf))
        table.add_row(
            name, f"{shares[i] / 10:.1f} %", duration_text(row.ns), count_text(row.calls) if row.calls else "",
            draw_bar(mixes[i], sheet.wall_ns, bar),
        )  # fmt: skip
    return Group(table, *_sum_lines(diagnosis, diagnosis.sheet, width), *_owners(diagnosis, width), "")


def _shade(kind: str, leaf: bool) -> str:
    return STYLE[kind] if leaf and kind != SPAN else ""


def _sum_lines(diagnosis: Diagnosis, sheet: Sheet, width: int) -> list[Text]:
    totals = [sheet.total_ns(kind) for kind in KINDS]
    steps = round_parts(totals)
    line = Text("  ")
    for i, (kind, step) in enumerate(zip(KINDS, steps, strict=True)):
        line.append(" + " if i else "")
        line.append(f"{FILL[kind]} ", style=STYLE[kind])
        line.append(f"{WORD[kind]} {step / 10:.1f}")
    line.append(" = 100.0 %")
    return [line, *fold_text(inferred_text(diagnosis), width, style=FAINT)]


def _owners(diagnosis: Diagnosis, width: int) -> list[RenderableType]:
    known = {name: ns for name, ns in diagnosis.owners.items() if name not in (WAITING, UNATTRIBUTED, PROFILER)}
    if not known or set(known) == {"unknown"}:
        return []
    shares = round_parts(list(diagnosis.owners.values()))
    parts = [f"{name} {share / 10:.1f} %" for name, share in zip(diagnosis.owners, shares, strict=True) if share]
    return [Text(join_facts([f"owned by: {parts[0]}", *parts[1:]], width, "  "))]


def _guides(sheet: Sheet) -> list[str]:
    """The branches drawn in front of each row."""
    last: dict[int, int] = {}
    for i, row in enumerate(sheet.rows):
        last[row.parent] = i
    prefix: list[str] = []
    guides: list[str] = []
    for i, row in enumerate(sheet.rows):
        if row.depth == 0:
            guides.append("")
            prefix.append("")
            continue
        ends = last[row.parent] == i
        guides.append(prefix[row.parent] + ("└ " if ends else "├ "))
        prefix.append(prefix[row.parent] + ("  " if ends else "│ "))
    return guides


def _mixes(sheet: Sheet) -> list[dict[str, int]]:
    """Per row: what its leaves hold, by kind."""
    mixes: list[dict[str, int]] = [dict.fromkeys(KINDS, 0) for _ in sheet.rows]
    for i in range(len(sheet.rows) - 1, -1, -1):
        row = sheet.rows[i]
        if row.leaf:
            mixes[i][row.account] += row.ns
        if row.parent >= 0:
            for kind in KINDS:
                mixes[row.parent][kind] += mixes[i][kind]
    return mixes


# ---- tables ----


def _operations(diagnosis: Diagnosis, width: int) -> RenderableType | None:
    shown = diagnosis.user_operations
    if not shown:
        return Padding(Text('No span was recorded: wrap a part of the loop in `with hotloop.profile("name")`.'), (0, 0, 1, 0))
    rows = [(escape(o.name), _cells(o, diagnosis.wall_ns)) for o in shown[:OPERATIONS_SHOWN]]
    room = max(18, width // 3)
    names = min(max(len(name) for name, _ in rows), room)
    heads = _choose_columns([cells for _, cells in rows], width - names - 2)
    table = make_table("OPERATIONS", *heads, room=room)
    for name, cells in rows:
        table.add_row(name, *(cells[head] for head in heads))
    rest = shown[OPERATIONS_SHOWN:]
    left = [
        f"  … {len(rest)} more with {duration_text(sum(o.self_ns for o in rest))} of their own; all are in --json and --html"
    ]
    key = "total: time open, summed over threads; wall: share of the wall time with at least one open; conc: total ÷ that"
    notes = [Text(x, style=FAINT) for x in wrap(key, width, initial_indent="  ", subsequent_indent="  ")]
    return Group(table, *(left if rest else []), *notes, "")


_COLUMNS = ("calls", "total", "self", "avg", "p95", "max", "wall", "conc", "mem peak", "gpu peak")
_LEAST_WANTED = ("gpu peak", "mem peak", "max", "conc", "self", "p95", "avg")  # left out in this order


def _choose_columns(rows: list[dict[str, str]], room: int) -> list[str]:
    """The columns that fit, whole; one that is empty is left out."""
    sizes = {head: max(len(head), *(len(cells[head]) for cells in rows)) + 2 for head in _COLUMNS}
    heads = [head for head in _COLUMNS if any(cells[head] for cells in rows)]
    for head in _LEAST_WANTED:
        if sum(sizes[head] for head in heads) <= room:
            break
        heads = [other for other in heads if other != head]
    return heads


def _cells(o: Operation, wall_ns: int) -> dict[str, str]:
    measured = o.peak_readings or o.end_readings
    share = share_text(min(1.0, o.union_ns / wall_ns) if wall_ns else 0.0)
    if o.union_high_ns > o.union_ns and wall_ns:
        share = interval_text(o.union_ns / wall_ns, min(1.0, o.union_high_ns / wall_ns))
    return {
        "calls": count_text(o.calls) + (f"+{o.open} open" if o.open else ""),
        "total": duration_text(o.busy_ns),
        "self": duration_text(o.self_ns),
        "avg": duration_text(o.mean_ns),
        "p95": duration_text(o.percentile_ns(0.95)),
        "max": duration_text(o.max_ns),
        "wall": share,
        "conc": f"{o.concurrency:.2f}",
        "mem peak": ("" if o.peak_readings else "~") + f"{o.rise_max_bytes / (1 << 20):.1f} MB" if measured else "",
        "gpu peak": f"{o.gpu_peak_bytes / (1 << 20):.1f} MB" if o.gpu_peak_bytes else "",
    }


def _lanes(diagnosis: Diagnosis, width: int) -> RenderableType | None:
    balances = diagnosis.ledger.balances
    if not balances:
        return None
    bar = width - 84
    table = make_table("THREADS", "lifetime", *(WORD[k] for k in KINDS), room=22)
    if bar >= 10:
        table.add_column("", no_wrap=True, width=bar)
    order = sorted(range(len(balances)), key=lambda i: (balances[i].shard != 0, i != 0, -balances[i].lifetime_ns))
    for i in order[:LANES_SHOWN]:
        b = balances[i]
        process = diagnosis.processes[b.shard]
        owner = "" if b.shard == 0 else f"{process.name or 'process'} {process.pid} / "
        state = "" if process.state == "ended" else f" ({process.state})"
        parts = balance_parts(b)
        shares = round_parts(list(parts.values()))
        table.add_row(
            escape(owner + b.name + state), duration_text(b.lifetime_ns), *(f"{x / 10:.1f} %" for x in shares),
            *([draw_bar(parts, b.lifetime_ns, bar)] if bar >= 10 else []),
        )  # fmt: skip
    rest = len(order) - LANES_SHOWN
    return Group(table, *([f"  … {rest} more threads"] if rest > 0 else []), "")


# ---- iterations ----


def _iterations(diagnosis: Diagnosis, width: int) -> RenderableType | None:
    history = diagnosis.iterations
    if history is None:
        return None
    p, series = history.percentiles, history.series
    lines = [Text("ITERATIONS", style="bold")]
    facts = [
        f"{history.closed:,} closed",
        f"median {duration_text(p['p50'] * 1e9)}",
        f"p95 {duration_text(p['p95'] * 1e9)}",
        f"p99 {duration_text(p['p99'] * 1e9)}",
        f"warm-up: {history.warm_up.reason}",
    ]
    lines.append(Text(join_facts(facts, width, "  ")))
    wide = min(60, width - 48)
    lines.append(Text(f"  time per iteration  {spark_text(series.seconds, wide)}"))
    if "env_steps" in series.rates:
        sps = series.rates["env_steps"]
        ends = f"{rate_text(sps.min())}–{rate_text(sps.max())}"
        latest = f", {rate_text(diagnosis.sps_latest)} in the latest ones" if diagnosis.sps_latest is not None else ""
        lines.append(Text(f"  env steps/s         {spark_text(sps, wide)}  {ends}{latest}"))
    if history.trends:
        for t in history.trends[:5]:
            why = f"calls ×{t.calls_growth:.2f}, time per call ×{t.cost_growth:.2f}"
            text = f"  '{escape(t.name)}' {t.trend.verdict} ×{t.trend.growth:.2f} over the run "
            text += f"[{t.trend.growth_low:.2f}, {t.trend.growth_high:.2f}]: {why}"
            lines.append(Text(text, style="red" if t.trend.verdict == "grows" else ""))
    else:
        lines.append(Text(f"  trend: {history.overall.reason or 'no label grows or falls with the run'}"))
    for change in history.changes[:3]:
        before, after = duration_text(change.before * 1e9), duration_text(change.after * 1e9)
        lines.append(Text(f"  level change at #{change.iteration}: {before} → {after} an iteration (×{change.ratio:.2f})"))
    for slow in history.slowest[:3]:
        if slow.times_median < 1.2:
            break
        name = f"#{slow.number}" if slow.merged == 1 else f"#{slow.number}–{slow.number + slow.merged - 1}"
        why = ", ".join(f"{escape(n)} +{duration_text(s * 1e9)}" for n, s in slow.excess)
        lines.append(Text(f"  slow: {name} {duration_text(slow.seconds * 1e9)} (×{slow.times_median:.1f} the median) {why}"))
    return Group(*lines, "")


# ---- trust ----


def _quality(diagnosis: Diagnosis) -> RenderableType:
    q = diagnosis.quality
    spans = f"{q.recorded:,} spans recorded" + (f", {q.open_spans:,} open" if q.open_spans else "")
    parts = [spans, losses_text(q.losses), own_cost_text(q.own_cost_ns, q.own_cost_error_ns, q.profiler_share)]
    if any(o.peak_readings or o.end_readings for o in diagnosis.operations):
        parts.append(f"memory: {q.memory_method}")
    if not q.native:
        parts.append("recorded by the Python recorder")
    lines: list[RenderableType] = [Text("QUALITY", style="bold"), *(Text("  " + part) for part in parts)]
    if q.died:
        lines.append(
            Text(f"  died: process {', '.join(str(pid) for pid in q.died)}; what they recorded is included", style="red")
        )
    lines += [Text(f"  note: {text}", style="red") for text in hook_notes(diagnosis.hooks)]
    lines += [Text(f"  note: {escape(text)}") for text in q.problems[:20]]
    if len(q.problems) > 20:
        lines.append(Text(f"  … {len(q.problems) - 20} more notes in --json"))
    for name, site in q.held_across_yield.items():
        lines.append(
            Text(f"  note: '{escape(name)}' is held across a yield ({escape(site)}): use @profile_function on the generator")
        )
    return Group(*lines)
