"""Sessions as runs that can be compared: read once, reduced once per comparison.

What lives here: directories in, `analyse.runs.Run` out. The unit of work and the length of the warm-up are chosen for all runs
of a comparison together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..analyse.diagnosis import Diagnosis, diagnose
from ..analyse.runs import Run, choose_unit, find_warm_ups, reduce_run
from ..errors import HotloopError
from ..store.reader import read_session
from .trials import OUTPUT, Note, find_return, read_note, read_tail


@dataclass(frozen=True, slots=True)
class Recorded:
    """One session, with what its experiment noted about it."""

    path: Path
    diagnosis: Diagnosis
    note: Note | None
    returned: float | None


def read_recorded(path: Path) -> Recorded:
    diagnosis = diagnose(read_session(path))
    note = read_note(path)
    returned = note.returned if note is not None else find_return(read_tail(path / OUTPUT))
    return Recorded(path, diagnosis, note, returned)


def find_problem(path: Path, unit: str | None) -> str:
    """Why a finished run cannot be compared, in one sentence; "" if it can."""
    try:
        choose_unit([diagnose(read_session(path))], unit)
    except HotloopError as error:
        return str(error)
    return ""


def reduce_arms(a: Sequence[Recorded], b: Sequence[Recorded], unit: str | None = None) -> tuple[list[Run], list[Run]]:
    """Both arms in the same unit, without the same number of iterations at the start."""
    everything = [*a, *b]
    diagnoses = [recorded.diagnosis for recorded in everything]
    chosen = choose_unit(diagnoses, unit)
    warm_ups, cut = find_warm_ups(diagnoses)
    experiments = {recorded.note.experiment if recorded.note else None for recorded in everything}
    paired = len(experiments) == 1 and None not in experiments
    runs = []
    for recorded, warm_up in zip(everything, warm_ups, strict=True):
        note = recorded.note if paired else None
        run = reduce_run(recorded.diagnosis, chosen, warm_up, cut, recorded.returned, note.round if note else None)
        runs.append(replace(run, name=recorded.path.name))
    return runs[: len(a)], runs[len(a) :]
