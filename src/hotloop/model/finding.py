"""A finding: why a run is slow, where, what to change, and what that gains.

What lives here: plain data, and the severities that follow from the gain. Who may touch it: anyone. The file's shape is
`findings.json`, see docs/findings.md.
"""

from __future__ import annotations

from dataclasses import dataclass

CRITICAL, WARNING, NOTE = "critical", "warning", "note"
CRITICAL_GAIN, WARNING_GAIN = 1.5, 1.25
ALWAYS_NOTES = frozenset({"unattributed", "warm-up"})


@dataclass(frozen=True, slots=True)
class Gain:
    """Predicted speed-up of the training loop: partly fixed, as the action says, culprit free."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True, slots=True)
class Finding:
    cause: str  # an id of docs/causes
    title: str  # one sentence with numbers
    span: str
    file: str
    line: int
    function: str
    share: float  # of the training loop, 0-1; of start-up and loop where the span is of the start-up
    gain: Gain
    evidence: tuple[str, ...]
    action: str
    verify: str  # the command that would prove it
    mechanism: str = ""  # what the time it explains is spent on, see model/mechanism.py
    known_by: str = ""  # what its gain was predicted from, see analyse/findings/residuals.py
    changes_learning: bool = False  # the action may change what is learnt, not only how fast

    @property
    def share_of(self) -> str:
        return "start-up and loop" if self.span.startswith("start-up") else "the loop"

    @property
    def severity(self) -> str:
        """
        >>> Finding("x", "", "", "", 0, "", 0.5, Gain(1.1, 1.6, 2.0), (), "", "").severity
        'critical'
        """
        if self.cause in ALWAYS_NOTES or self.gain.mid < WARNING_GAIN:
            return NOTE
        return CRITICAL if self.gain.mid >= CRITICAL_GAIN else WARNING
