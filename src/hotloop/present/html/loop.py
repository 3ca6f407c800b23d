"""The training loop as the page shows it: what was found, the phases, the lines.

What lives here: selection and rounding, no markup. Invariants: every text went through `show`; the phases' shares are whole
tenths of a percent and add up to 100 %, those of the parts to their phase.
"""

from __future__ import annotations

from typing import Any

from ...analyse.diagnosis import Diagnosis
from ..loop import LoopRow, ShownLine, inferred_share, list_rows, show_lines, waiting_share
from ..opening import span_text, verdict_text
from ..tables import pick
from .names import show

_MOST_FINDINGS = 40


def findings_data(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """None where there is neither a finding nor a phase to speak of."""
    findings = diagnosis.findings
    if not (findings or diagnosis.phases.known):
        return None
    return {
        "verdict": show(verdict_text(diagnosis), 600),
        "rows": [
            {
                "severity": f.severity,
                "shareOf": f.share_of,
                "cause": show(f.cause, 80),
                "title": show(f.title, 600),
                "where": show(f"{f.file}:{f.line}" if f.file and f.line > 0 else f.file, 300),
                "function": show(f.function, 200),
                "span": show(f.span, 200),
                "share": round(min(1.0, max(0.0, f.share)) * 1000),
                "gain": [round(x, 3) for x in (f.gain.low, f.gain.mid, f.gain.high)],
                "evidence": [show(text, 600) for text in f.evidence[:20]],
                "action": show(f.action, 1200),
                "verify": show(f.verify, 600),
            }
            for f in findings[:_MOST_FINDINGS]
        ],
    }


def phases_data(diagnosis: Diagnosis) -> dict[str, Any] | None:
    if not diagnosis.phases.known:
        return None
    return {
        **pick(diagnosis.phases, "loop_ns startup_ns"),
        "direct": round(diagnosis.numbers.measured_share * 1000),
        "rows": [_row(row) for row in list_rows(diagnosis)],
    }


def _row(row: LoopRow) -> dict[str, Any]:
    return {
        "name": show(row.name, 200),
        **pick(row, "kind ns inferred_ns waiting_ns share"),
        "inferred": inferred_share(row),
        "waiting": waiting_share(row),
        "parts": [_row(part) for part in row.parts],
    }


def lines_data(diagnosis: Diagnosis, limit: int) -> dict[str, Any] | None:
    """The lines of the main track, and those of all others; shares are of the samples of each."""
    groups = [show_lines(diagnosis, diagnosis.main_lines), show_lines(diagnosis, diagnosis.other_lines)]
    if not any(groups):
        return None
    return {
        "groups": [
            {
                "samples": sum(spot.samples for spot in group),
                "there": len(group),
                "rows": [_spot(spot) for spot in group[:limit]],
            }
            for group in groups
        ]
    }


def _spot(spot: ShownLine) -> list[Any]:
    return [
        show(spot.where, 200), show(spot.function, 200), show(spot.text, 200), spot.phase, show(span_text(spot), 200),
        spot.samples, round(spot.share * 1000), show(spot.inner, 300), show(f"{spot.file}:{spot.line}", 400),
    ]  # fmt: skip
