"""Phases: what a training loop spends its time on. The one place where they are listed.

What lives here: names and codes, as the recorder writes them into labels. Who may touch it: anyone. Invariant: codes are kept
in files; append, never reorder.
"""

from __future__ import annotations

NONE, COLLECT, LEARN, EVAL, LOG, CHECKPOINT, TRANSFER, WAIT, STARTUP = range(9)
PHASE_NAMES = ("", "collect", "learn", "eval", "log", "checkpoint", "transfer", "wait", "start-up")
DECIDING = (COLLECT, LEARN, EVAL)  # an event of one of these says what the time before it was for


def phase_name(code: int) -> str:
    """
    >>> phase_name(LEARN), phase_name(99)
    ('learn', '')
    """
    return PHASE_NAMES[code] if 0 <= code < len(PHASE_NAMES) else ""
