"""Sentences that several views say alike: how the script ended, what was counted, what is inferred, which hooks failed.

What lives here: results in, plain sentences out; names from a session are escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..analyse.diagnosis import Diagnosis
from ..printing.text import escape
from .units import count_text, share_text

_FAILED = "failed"
_ODD_STATES = (_FAILED, "note")
_MOST_NOTES = 20
_WORK = ("env_steps", "autoresets", "updates", "samples", "episodes", "resets")
_WORDS = {"autoresets": "steps that only reset"}


def end_text(meta: Mapping[str, Any]) -> str:
    """How the script ended, where that is worth a sentence.

    >>> end_text({"exit": {"code": 137, "how": "killed by SIGKILL"}}), end_text({"exit": {"code": 0, "how": "ended by itself"}})
    ('the script was killed by SIGKILL; this is what it did until then', '')
    """
    said = meta.get("exit")
    how = said.get("how") if isinstance(said, dict) else None
    if not isinstance(how, str) or not how or how == "ended by itself":
        return ""
    return f"{how_text(how[:200])}; this is what it did until then"


def how_text(how: str) -> str:
    """How the script ended, as a sentence goes on with it.

    >>> how_text("killed by SIGINT"), how_text("ended by itself")
    ('the script was killed by SIGINT', 'the script ended by itself')
    """
    return f"the script {'was ' if how.startswith('killed') else ''}{escape(how)}"


def work_facts(counters: Mapping[str, int]) -> list[str]:
    """What was counted, the known counters first, and the replay ratio where it follows.

    >>> work_facts({"samples": 6400, "env_steps": 200, "updates": 100})
    ['200 env steps', '100 updates', '6,400 samples', 'replay ratio 32.0 (samples/env steps)']
    """
    order = [*(name for name in _WORK if name in counters), *(name for name in counters if name not in _WORK)]
    facts = [f"{count_text(counters[name])} {_WORDS.get(name) or escape(name).replace('_', ' ')}" for name in order]
    ratio = replay_ratio(counters)
    if ratio is not None:
        facts.append(f"replay ratio {ratio:{'.1f' if ratio >= 1 else '.2g'}} (samples/env steps)")
    return facts


def replay_ratio(counters: Mapping[str, int]) -> float | None:
    """Samples learned from for each step of the environment, where both were counted."""
    steps, samples = counters.get("env_steps", 0), counters.get("samples", 0)
    return samples / steps if steps > 0 and samples > 0 else None


def learners_text(diagnosis: Diagnosis) -> str:
    """What the headline means where several processes learn."""
    return f"{diagnosis.learners} processes learn: the rate is that of all together, the loop that of the slowest"


def inferred_text(diagnosis: Diagnosis) -> str:
    """Which part of the time was not measured, and how it was found; nothing where all of it was."""
    sheet, numbers = diagnosis.sheet, diagnosis.numbers
    if sheet is None or not sheet.wall_ns:
        return ""
    parts = []
    handed = sum(row.ns for row in sheet.rows if row.leaf and row.waited)
    if handed:
        parts.append(
            f"≈ {share_text(handed / sheet.wall_ns)} was waiting for work that was handed over; it is shared out by the time "
            "that work took"
        )
    if numbers.inferred_ns:
        parts.append(
            f"≈ {share_text(numbers.inferred_share)} of the {'loop' if numbers.known else 'time'} is inferred: it lies between "
            "two measured calls, or in a call outside its measured parts, and is named after the phase of the calls around it"
        )
    return "; ".join(parts)


def hook_notes(hooks: Sequence[Mapping[str, str]]) -> list[str]:
    """The hooks that could not do their work, each once."""
    odd = Counter((x["integration"], x["state"], x["detail"]) for x in hooks if x.get("state") in _ODD_STATES)
    notes = []
    for (integration, state, detail), processes in list(odd.items())[:_MOST_NOTES]:
        verb = "failed" if state == _FAILED else "say"
        where = f" in {processes} processes" if processes > 1 else ""
        notes.append(f"the hooks for {escape(integration)} {verb}{where}: {escape(detail)}")
    if len(odd) > _MOST_NOTES:
        notes.append(f"and {len(odd) - _MOST_NOTES} more notes of hooks; all are in --json")
    return notes
