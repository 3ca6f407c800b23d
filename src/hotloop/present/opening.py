"""The first screen of a run's report: why it is slow, which phases the loop spent its time in, at which lines.

What lives here: findings, phases and lines as rich renderables. Shares are of the training loop. A session without phases
(spans only) has none of this, its report begins with the balance sheet.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ..analyse.diagnosis import Diagnosis
from ..analyse.limits import Limit, verdict
from ..analyse.phases import BETWEEN
from ..model.finding import CRITICAL, NOTE, WARNING, Finding
from ..model.ledger import WAITING
from ..model.phase import phase_name
from ..model.sheet import SPAN
from ..printing.text import escape, shorten
from .drawing import FAINT, FILL, INFERRED, STYLE, draw_bar, fold_text, join_facts, make_table
from .loop import NO_PHASE, LoopRow, ShownLine, fold_rows, inferred_share, list_rows, show_lines, waiting_share
from .units import count_text, duration_text, share_text

FINDINGS_SHOWN, EVIDENCE_SHOWN, LINES_SHOWN, OTHER_LINES_SHOWN, PARTS_SHOWN = 5, 3, 10, 4, 8
_LEAST_SHARE = 5  # tenths of a percent of the loop that are a row of their own
_SEVERITY_STYLE = {CRITICAL: "bold red", WARNING: "yellow", NOTE: ""}


def opening(diagnosis: Diagnosis, width: int) -> list[RenderableType]:
    """The sections, as far as there is something to say."""
    sections: list[RenderableType] = []
    rows = list_rows(diagnosis) if diagnosis.phases.known else ()
    if diagnosis.findings or rows:
        sections.append(_findings(diagnosis, width))
    if rows:
        sections.append(_phases(diagnosis, rows, width))
        sections.append(_limits(diagnosis, width))
    return sections + _lines(diagnosis, width)


# ---- findings ----


def verdict_text(diagnosis: Diagnosis) -> str:
    """The first sentence of a report: how much is open and by what; of a run without a culprit, where its time goes."""
    said, best = verdict(diagnosis.limits, diagnosis.findings)
    has_begun = diagnosis.counters.get("env_steps") or diagnosis.counters.get("updates")
    return (
        escape(said)
        if best is not None
        else f"{escape(said)}: {nothing_text(diagnosis)}"
        if has_begun
        else nothing_text(diagnosis)
    )


def nothing_text(diagnosis: Diagnosis) -> str:
    """What to say of a run without a culprit: where its time goes all the same."""
    if not (diagnosis.counters.get("env_steps") or diagnosis.counters.get("updates")):
        return "nothing to judge: no env step and no update was seen, so the training loop had not begun"
    phases = [row for row in list_rows(diagnosis) if not row.kind] if diagnosis.phases.known else []
    if not phases:
        return "nothing stands out"
    top = phases[0]
    how = "waiting" if 2 * top.waiting_ns > top.ns else "compute-bound"
    return f"nothing stands out: {how} in {escape(top.name)}, {top.share / 10:.1f} % of the loop{_largest(diagnosis, top)}"


def _largest(diagnosis: Diagnosis, phase: LoopRow) -> str:
    """The call that takes most of a phase; where most of it lies between calls, the line."""
    call = max((p for p in phase.parts if p.name != BETWEEN), key=lambda p: p.ns, default=None)
    line = next((spot for spot in show_lines(diagnosis, diagnosis.main_lines) if spot.phase in ("", phase.name)), None)
    if line is not None and phase.parts[0].name == BETWEEN and line.share > (call.share / 1000 if call else 0):
        return f"; the line that takes most is {escape(line.where)} {escape(line.function)}, {share_text(line.share)}"
    return f"; its largest part is {escape(call.name)}, {call.share / 10:.1f} %" if call else ""


def gain_text(finding: Finding) -> str:
    """
    >>> from ..model.finding import Gain
    >>> gain_text(Finding("x", "", "", "", 0, "", 0.5, Gain(1.1, 1.6, 2.0), (), "", ""))
    'predicted 1.60× faster (1.10–2.00×)'
    """
    g = finding.gain
    return f"predicted {g.mid:.2f}× faster ({g.low:.2f}–{g.high:.2f}×)"


def place_text(finding: Finding) -> str:
    where = f"{escape(finding.file)}:{finding.line}" if finding.file and finding.line > 0 else escape(finding.file)
    return " ".join(x for x in (where, escape(finding.function)) if x)


def _findings(diagnosis: Diagnosis, width: int) -> RenderableType:
    findings = diagnosis.findings
    rows: list[RenderableType] = [Text("FINDINGS", style="bold")]
    rows += fold_text(verdict_text(diagnosis), width, "  ", "  ", "bold")
    for number, finding in enumerate(findings[:FINDINGS_SHOWN], 1):
        rows += _finding(finding, number, width, evidence=EVIDENCE_SHOWN if number == 1 else 1)
    for finding in findings[FINDINGS_SHOWN:]:
        head = f"  … {escape(finding.cause)}, {place_text(finding)}, {gain_text(finding)}"
        rows.append(Text(shorten(head, width), style=FAINT))
    if findings:
        rows += fold_text(f"more on a cause: hotloop explain {escape(findings[0].cause)}", width, "  ", "    ", FAINT)
    return Group(*rows, "")


def _finding(finding: Finding, number: int, width: int, evidence: int) -> list[Text]:
    head = f"{number}. {finding.severity} · {escape(finding.cause)}"
    lines = [Text("  " + shorten(head, width - 2), style=_SEVERITY_STYLE[finding.severity])]
    indent = "     "
    lines += fold_text(escape(finding.title), width, indent, indent)
    facts = [place_text(finding), f"{share_text(finding.share)} of {finding.share_of}", gain_text(finding)]
    lines += [Text(shorten(x, width)) for x in join_facts(filter(None, facts), width, indent).splitlines()]
    for word, text in (
        *(("seen", escape(x)) for x in finding.evidence[:evidence]),
        ("do", escape(finding.action)),
        ("check", escape(finding.verify)),
    ):
        if text:
            style = "" if word == "do" else FAINT
            lines += fold_text(text, width, f"{indent}{word + ':':<7}", indent + " " * 7, style)
    return lines


# ---- phases ----


def _phases(diagnosis: Diagnosis, rows: Sequence[LoopRow], width: int) -> RenderableType:
    bar = min(40, width - 60)
    heads = ("PHASES OF THE LOOP", "share", "time", "inferred", "waiting")
    table = make_table(*heads, room=max(20, width - max(bar, 0) - 36), gap=1)
    if bar >= 10:
        table.add_column("", no_wrap=True, width=bar)
    loop = diagnosis.phases.loop_ns

    def add(name: Text, row: LoopRow) -> None:
        cells = [share_text(row.share / 1000), duration_text(row.ns)]
        cells += [share_text(x / 1000) if x else "" for x in (inferred_share(row), waiting_share(row))]
        table.add_row(name, *cells, *([draw_bar(_mix(row), loop, bar)] if bar >= 10 else []))

    for row in rows:
        add(Text(escape(row.name), style="bold" if not row.kind else STYLE[row.kind]), row)
        below = fold_rows(row.parts, _LEAST_SHARE, PARTS_SHOWN)
        for i, part in enumerate(below):
            name = Text("└ " if i == len(below) - 1 else "├ ", style=FAINT)
            name.append("≈ " if part.inferred_ns else "", style=FAINT).append(escape(part.name))
            add(name, part)
    if diagnosis.phases.startup_ns:
        table.add_row(Text("(start-up, shut-down)", style=FAINT), "", duration_text(diagnosis.phases.startup_ns), "", "")
    key = Text("  ")
    for i, (kind, word) in enumerate(((SPAN, "measured"), (INFERRED, "≈ inferred"), (WAITING, "waiting"))):
        key.append("   " if i else "").append(f"{FILL[kind]} ", style=STYLE[kind]).append(word)
    note = (
        f"{share_text(diagnosis.numbers.measured_share)} of the loop was measured directly, "
        f"{share_text(diagnosis.numbers.inferred_share)} is inferred (≈): it lies between two measured calls, or in a call "
        "outside its measured parts; its phase follows from the calls around it and the lines seen there."
    )
    return Group(table, key, *fold_text(note, width, "  ", "  ", FAINT), "")


def _limits(diagnosis: Diagnosis, width: int) -> RenderableType:
    """Phase by phase: what its time is spent on, and what would be left of it."""
    table = make_table("LIMITS", "time", "limit", "headroom", room=24, gap=2)
    table.add_column("spent on", no_wrap=True, width=max(20, width - 56))
    for row in limit_rows(diagnosis):
        most = sorted(row.mechanisms.items(), key=lambda item: -item[1])
        spent = ", ".join(f"{name} {ns / row.ns * 100:.0f} %" for name, ns in most if ns * 20 >= row.ns)
        table.add_row(
            Text(escape(row.name) or NO_PHASE), duration_text(row.ns), duration_text(row.limit_ns), f"{row.headroom:.2f} ×",
            Text(shorten(spent, max(20, width - 56))),
        )  # fmt: skip
    lines = fold_text(headroom_text(diagnosis), width, "  ", "  ")
    for text in curve_texts(diagnosis):
        lines += fold_text(text, width, "  ", "    ", FAINT)
    return Group(table, *lines, "")


def limit_rows(diagnosis: Diagnosis) -> list[Limit]:
    """The phases that are long enough for a row of their own."""
    return [row for row in diagnosis.limits.phases if row.ns * 1000 >= _LEAST_SHARE * diagnosis.phases.loop_ns]


def headroom_text(diagnosis: Diagnosis) -> str:
    limits = diagnosis.limits
    said = f"headroom of the loop: {limits.headroom:.2f} × with learning unchanged"
    if limits.batched >= limits.headroom + 0.05:
        said += f", {limits.batched:.2f} × with more samples per call (more environments, larger minibatches)"
        said += ", which may change what is learnt"
    return said


def curve_texts(diagnosis: Diagnosis) -> list[str]:
    """The networks, one sentence each: what a call costs, and what it would cost with more rows."""
    said = []
    for curve in diagnosis.session.probes.curves:
        what = f"{escape(curve.network)}{'.' + escape(curve.method) if curve.method else ''}"
        points = [p for p in curve.points if p.rows in (curve.rows, 8 * curve.rows, 16 * curve.rows)]
        costs = ", ".join(f"{duration_text(round(p.ns))} for {p.rows} row{'s' * (p.rows != 1)}" for p in points)
        said.append(
            f"{phase_name(curve.phase)}, {what}: {costs} (measured after the run{', with its backward pass' * curve.grad})"
        )
    return said


def _mix(row: LoopRow) -> dict[str, int]:
    if row.kind:
        return {row.kind: row.ns}
    return {SPAN: row.direct_ns - row.waiting_ns, INFERRED: row.inferred_ns, WAITING: row.waiting_ns}


# ---- lines ----


def _lines(diagnosis: Diagnosis, width: int) -> list[RenderableType]:
    own, others = show_lines(diagnosis, diagnosis.main_lines), show_lines(diagnosis, diagnosis.other_lines)
    sections: list[RenderableType] = []
    if own:
        total = sum(x.samples for x in own)
        title = f"LINES  (share of the {'loop' if diagnosis.phases.known else 'time'}, {total:,} samples)"
        sections.append(_spots(title, own[:LINES_SHOWN], width))
    if others:
        title = "LINES OF OTHER THREADS AND PROCESSES  (share of their samples at work)"
        sections.append(_spots(title, others[:OTHER_LINES_SHOWN], width))
    return sections


def _spots(title: str, spots: Sequence[ShownLine], width: int) -> RenderableType:
    """Two rows each: where and in which phase; what stands there, and what it leads to."""
    rows: list[RenderableType] = [Text(title, style="bold")]
    counts = [count_text(x.samples) for x in spots]
    room = max(map(len, counts))
    for i, spot in enumerate(spots):
        head = f"{share_text(spot.share):>8}  {counts[i]:>{room}}  "
        span = span_text(spot)
        space = width - len(head) - len(span) - 2
        if space < 20:  # the span goes below
            span, space = "", width - len(head)
        line = Text(head + fit_place(escape(spot.where), escape(spot.function), space).ljust(space if span else 0))
        rows.append(line.append(f"  {span}" if span else "", style=FAINT))
        known = i and (spots[i - 1].file, spots[i - 1].line) == (spot.file, spot.line)
        said = [] if known else [escape(spot.text)]
        said += [f"→ {escape(spot.inner)}"] if spot.inner else []
        text = "  ".join(filter(None, said if span else [*said, span_text(spot)]))
        if text:
            rows.append(Text(" " * len(head) + shorten(text, width - len(head)), style=FAINT))
    return Group(*rows, "")


def span_text(spot: ShownLine) -> str:
    """The innermost span, with the phase where its name does not say it."""
    if not spot.span:
        return escape(spot.phase) or BETWEEN
    if not spot.phase or spot.span.startswith(f"{spot.phase}/"):
        return escape(spot.span)
    return escape(f"{spot.phase}/…/{spot.span}")


def fit_place(where: str, function: str, limit: int) -> str:
    """File, line and function; where there is no room, first without the outer folders.

    >>> fit_place("a/long/path/train.py:3", "f", 30), fit_place("a/long/path/train.py:3", "f", 20)
    ('a/long/path/train.py:3 f', '…/path/train.py:3 f')
    """
    text = f"{where} {function}"
    while len(text) > limit and "/" in where.removeprefix("…/"):
        where = "…/" + where.removeprefix("…/").partition("/")[2]
        text = f"{where} {function}"
    return shorten(text, limit)
