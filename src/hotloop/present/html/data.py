"""What the HTML report shows, as JSON-ready data: columns of numbers, one table of names, shares that add up.

What lives here: selection and rounding, no markup. Invariants: every text went through `show`; rows beyond a limit are gathered
into one that says how many they are; shares are whole tenths of a percent and add up to their parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ...analyse.diagnosis import Diagnosis
from ...analyse.owners import UNKNOWN
from ...analyse.timeline import Timeline
from ...model import shard as m
from ...model.ledger import Operation
from ...model.session import DIED, ENDED
from ...model.sheet import KINDS
from ...printing.text import losses_text
from ..drawing import balance_parts
from ..sentences import end_text, hook_notes, replay_ratio
from ..tables import pick
from ..units import round_parts
from .devices import device_data, operators_data
from .limits import limits_data
from .loop import findings_data, lines_data, phases_data
from .names import Names, show
from .series import history_data, round_number
from .sheet import sheet_data, totals_data

VERSION = 1
_KIND_OF_LABEL = {m.WAIT: 1, m.ROOT: 2, m.HANDOFF: 2, m.PROFILER: 3}  # index into KINDS; all others are work


@dataclass(frozen=True, slots=True)
class Limits:
    """How many rows are shown one by one."""

    sheet: int = 2000
    operations: int = 10_000
    lanes: int = 400
    notes: int = 40
    lines: int = 400
    device: int = 400
    name_chars: int = 2000
    names_bytes: int = 320_000

    def halved(self) -> Limits:
        return Limits(*(max(20, getattr(self, field.name) // 2) for field in fields(self)))

    @property
    def is_least(self) -> bool:
        return self.operations <= 20 and self.names_bytes <= 20


def page_data(diagnosis: Diagnosis, limits: Limits) -> dict[str, Any]:
    """Everything the page draws."""
    names = Names()
    data = {
        "version": VERSION,
        "session": _session(diagnosis),
        "quality": _quality(diagnosis),
        "notes": _notes(diagnosis, limits.notes),
        "findings": findings_data(diagnosis),
        "phases": phases_data(diagnosis),
        "limits": limits_data(diagnosis),
        "lines": lines_data(diagnosis, limits.lines),
        "totals": totals_data(diagnosis.sheet),
        "owners": _owners(diagnosis),
        "sheet": sheet_data(diagnosis.sheet, names, limits.sheet),
        "timeline": _timeline(diagnosis.timeline, diagnosis, names),
        "history": history_data(diagnosis.iterations, names) if diagnosis.iterations else None,
        "device": device_data(diagnosis, names, limits.device),
        "operators": operators_data(diagnosis, names, limits.device),
        "operations": _operations(diagnosis, names, limits.operations),
        "lanes": _lanes(diagnosis, limits.lanes),
    }
    data["names"] = names.finish(limits.name_chars, limits.names_bytes)
    return data


def _session(diagnosis: Diagnosis) -> dict[str, Any]:
    meta, host = diagnosis.meta, diagnosis.meta.get("host")
    command = meta.get("command")
    start_ms = diagnosis.start_unix_ns // 1_000_000
    return {
        "name": show(diagnosis.name, 300),
        "start_ms": start_ms if 0 < start_ms < 8_640_000_000_000_000 else None,  # what a Date takes
        **pick(diagnosis, "wall_ns loop_ns learners"),
        "coverage": diagnosis.numbers.coverage,
        "sps": round_number(diagnosis.sps),
        "sps_latest": round_number(diagnosis.sps_latest),
        "loop_known": diagnosis.phases.known,
        "iterations": diagnosis.iterations_closed,
        "counters": [[show(name, 60), value] for name, value in list(diagnosis.counters.items())[:20]],
        "replay_ratio": round_number(replay_ratio(diagnosis.counters)),
        "processes": len(diagnosis.processes),
        "tracks": len(diagnosis.ledger.balances),
        "command": show(" ".join(map(str, command)), 500) if isinstance(command, list) else "",
        "host": [show(f"{key} {value}", 120) for key, value in list(host.items())[:12]] if isinstance(host, dict) else [],
    }


def _quality(diagnosis: Diagnosis) -> dict[str, Any]:
    q = diagnosis.quality
    return {
        **pick(q, "recorded profiler_share native memory_method"),
        "events": q.events_kept,
        "open": q.open_spans,
        "losses": show(losses_text(q.losses), 400),
        "lost": any(name not in m.HARMLESS_LOSSES for name in q.losses),
        "own_cost_ns": round_number(q.own_cost_ns),
        "own_cost_error_ns": round_number(q.own_cost_error_ns),
        "died": len(q.died),
    }


def _notes(diagnosis: Diagnosis, limit: int) -> list[str]:
    """What is odd, in sentences."""
    q = diagnosis.quality
    notes = [text for text in (end_text(diagnosis.meta), *hook_notes(diagnosis.hooks)) if text]
    notes += [f"a problem while reading: {text}" for text in q.problems]
    for process in diagnosis.processes:
        if process.state != ENDED:
            name = f"process {process.pid}" + (f" ({process.name})" if process.name else "")
            died = "died; what it recorded is complete to its last finished span"
            notes.append(f"{name} {died if process.state == DIED else 'is still running: this is what it had recorded by now'}")
    for name, site in q.held_across_yield.items():
        notes.append(f"'{show(name, 80)}' is held across a yield ({show(site, 120)}): use @profile_function on the generator")
    if not q.native:
        notes.append("recorded by the Python recorder: spans cost more than with the native one, and some waits are not seen")
    shown = [show(note, 600) for note in notes[:limit]]
    return shown + ([f"and {len(notes) - limit:,} more notes"] if len(notes) > limit else [])


def _owners(diagnosis: Diagnosis) -> list[list[Any]] | None:
    """Name, nanoseconds, share; None where no place in the code is known."""
    if not set(diagnosis.owners) - {UNKNOWN, *KINDS}:
        return None
    shares = round_parts(list(diagnosis.owners.values()))
    return [[name, ns, share] for (name, ns), share in zip(diagnosis.owners.items(), shares, strict=True)]


def _timeline(timeline: Timeline, diagnosis: Diagnosis, names: Names) -> dict[str, Any]:
    """Blocks by lane; starts as differences within a lane, which are short numbers."""
    used = sorted(set(timeline.name.tolist()))
    number = {name: i for i, name in enumerate(used)}
    starts: list[int] = []
    lane, before = -1, 0
    for own, start in zip(timeline.lane.tolist(), timeline.start_ns.tolist(), strict=True):
        starts.append(start - (before if own == lane else 0))
        lane, before = own, start
    return {
        "end_ns": timeline.end_ns,
        "lanes": [[_lane_name(diagnosis, x.shard, x.name), x.rows] for x in timeline.lanes],
        "labels": [[names(timeline.names[i][0]), _KIND_OF_LABEL.get(timeline.names[i][1], 0)] for i in used],
        "lane": timeline.lane.tolist(),
        "row": timeline.row.tolist(),
        "start": starts,
        "dur": timeline.dur_ns.tolist(),
        "label": [number[name] for name in timeline.name.tolist()],
        "spans": [[i, n] for i, n in enumerate(timeline.spans.tolist()) if n != 1],
        "windows": [[w.first, w.last, w.start_ns, w.end_ns] for w in timeline.windows],
        "marks": [list(mark) for mark in timeline.marks],
        "there": timeline.there,
        "drawn": timeline.drawn,
    }


def _operations(diagnosis: Diagnosis, names: Names, limit: int) -> dict[str, Any]:
    """Columns; what few rows have is listed beside them by row."""
    every = [o for o in diagnosis.operations if o.kind in (m.USER, m.OVERFLOW, m.WAIT, m.GARBAGE) and (o.calls or o.open)]
    rows, rest = every[:limit], every[limit:]
    files = Names()
    sites = [diagnosis.sites.get(o.name, "").rpartition(":") for o in rows]
    return {
        "name": [names(o.name) for o in rows],
        "wait": [i for i, o in enumerate(rows) if o.kind == m.WAIT],
        "file": [files(file) for file, _, _ in sites],
        "line": [int(line) if line.isascii() and line.isdigit() else 0 for _, _, line in sites],
        "files": [show(file, 300) for file in files.all()],
        **{name: [getattr(o, name) for o in rows] for name in ("calls", "busy_ns", "self_ns")},
        "p50_ns": [round(o.percentile_ns(0.5)) for o in rows],
        "p95_ns": [round(o.percentile_ns(0.95)) for o in rows],
        **{name: [getattr(o, name) for o in rows] for name in ("max_ns", "union_ns")},
        "union_high_ns": [[i, o.union_high_ns] for i, o in enumerate(rows) if o.union_high_ns > o.union_ns],
        "open": [[i, o.open] for i, o in enumerate(rows) if o.open],
        "memory": [
            [i, o.rise_max_bytes, int(o.peak_readings > 0)] for i, o in enumerate(rows) if o.peak_readings or o.end_readings
        ],
        "gpu": [[i, o.gpu_peak_bytes] for i, o in enumerate(rows) if o.gpu_peak_bytes],
        "gathered": _gather(rest) if rest else None,
    }


def _gather(rest: Sequence[Operation]) -> dict[str, int]:
    """What adds up over labels; unions and percentiles do not."""
    return {"rows": len(rest), **{name: sum(getattr(o, name) for o in rest) for name in ("calls", "busy_ns", "self_ns")}}


def _lanes(diagnosis: Diagnosis, limit: int) -> dict[str, Any]:
    balances = diagnosis.ledger.balances
    rest = [balance_parts(b).values() for b in balances[limit:]]
    sums = [sum(column) for column in zip(*rest, strict=True)]
    return {
        "rows": [
            [
                _lane_name(diagnosis, b.shard, b.name),
                diagnosis.processes[b.shard].state,
                b.coverage,
                list(balance_parts(b).values()),
                round_parts(list(balance_parts(b).values())),
            ]
            for b in balances[:limit]
        ],
        "gathered": [len(rest), sums, round_parts(sums)] if rest else None,
    }


def _lane_name(diagnosis: Diagnosis, shard: int, track: str) -> list[str]:
    """Process and track; the main process goes without saying."""
    process = diagnosis.processes[shard]
    owner = "" if shard == 0 else f"{process.name} {process.pid}".strip()
    return [show(owner, 80), show(track, 120)]
