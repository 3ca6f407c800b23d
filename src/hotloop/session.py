"""A recorded session to work with: `hotloop.load("runs/train-20260101-120000")`.

What lives here: the object users get, and its tables. The rows are plain dataclasses (present/tables.py); the numbers are those
of every other view. Who may touch it: users; nothing in HotLoop imports it.

>>> import tempfile
>>> import hotloop
>>> _ = hotloop.start("example", out=tempfile.mkdtemp())
>>> for _ in range(3):
...     with hotloop.profile("env_step"):
...         hotloop.count("env_steps")
...     hotloop.step()
>>> session = hotloop.load(hotloop.stop())
>>> session.name, session.counters["env_steps"], len(session.iterations)
('example', 3, 3)
>>> session.operations[0].name, session.operations[0].calls
('env_step', 3)
>>> list(session.operations.to_pandas().columns[:4])
['name', 'calls', 'open', 'total_s']
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import cached_property
from html import escape as escape_html
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from .analyse.diagnosis import Diagnosis, diagnose
from .errors import HotloopError
from .model.finding import Finding
from .present.opening import gain_text, place_text
from .present.tables import (
    IterationRow,
    LineRow,
    OperationRow,
    PartRow,
    PhaseRow,
    iteration_rows,
    line_rows,
    operation_rows,
    part_rows,
    phase_rows,
)
from .present.units import count_text, duration_text, rate_text, share_text
from .printing.text import align, escape, shorten
from .store.findings import finding_data
from .store.reader import read_session

if TYPE_CHECKING:
    import pandas as pd

Row = TypeVar("Row")
_ROWS_SHOWN = 15
_WIDEST = 40


def load(path: str | os.PathLike[str]) -> Session:
    """The session in a directory: of a run that goes on, has ended or was killed."""
    return Session(diagnose(read_session(path)))


class Table(Sequence[Row], Generic[Row]):
    """Rows of one kind. It is a sequence; `to_pandas()` makes a data frame of it."""

    def __init__(self, rows: Iterable[Row], plain: Callable[[Any], dict[str, Any]] = asdict) -> None:
        self._rows, self._plain = tuple(rows), plain

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, at: int | slice) -> Row | tuple[Row, ...]:
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    def to_pandas(self) -> pd.DataFrame:
        """A data frame with a column per field; what is nested gets a name such as `counts_env_steps`."""
        try:
            import pandas as pd
        except ImportError:
            raise HotloopError("pandas is not installed; install it: pip install pandas") from None
        return pd.json_normalize([self._plain(row) for row in self._rows], sep="_")

    def __repr__(self) -> str:
        return "\n".join(align(self._cells()))

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        return _html_table(rows, head)

    def _cells(self) -> list[list[str]]:
        """What is shown: the first rows, under their heads."""
        shown = [
            {key: value for key, value in self._plain(row).items() if _is_short(value)} for row in self._rows[:_ROWS_SHOWN]
        ]
        heads = list(shown[0]) if shown else ["(no rows)"]
        rows = [[_cell(row.get(head)) for head in heads] for row in shown]
        left = len(self._rows) - len(shown)
        return [heads, *rows, *([[f"… {left:,} more"] + [""] * (len(heads) - 1)] if left else [])]


class Counters(dict[str, int]):
    """What was counted, by name."""

    def to_pandas(self) -> pd.DataFrame:
        return Table([{"name": name, "count": n} for name, n in self.items()], dict).to_pandas()


class Session:
    """What one session says. Every table is made when it is first asked for."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self._diagnosis = diagnosis

    @property
    def name(self) -> str:
        return self._diagnosis.name

    @property
    def path(self) -> str:
        return self._diagnosis.path

    @property
    def meta(self) -> dict[str, Any]:
        """The command, the machine, the options: `session.json`."""
        return self._diagnosis.meta

    @property
    def wall_s(self) -> float:
        return self._diagnosis.wall_ns / 1e9

    @property
    def loop_s(self) -> float:
        """From the first env step or update to the last."""
        return self._diagnosis.loop_ns / 1e9

    @property
    def steps_per_second(self) -> float | None:
        """Env steps of the whole job, over the whole loop; None where none were counted."""
        return self._diagnosis.sps

    @property
    def coverage(self) -> float:
        """The part of the loop that has a name, 0 to 1."""
        return self._diagnosis.numbers.coverage

    @cached_property
    def counters(self) -> Counters:
        """Env steps, updates, episodes, and what the script counted itself."""
        return Counters(self._diagnosis.counters)

    @cached_property
    def phases(self) -> Table[PhaseRow]:
        """The training loop by phase, largest first."""
        return Table(phase_rows(self._diagnosis))

    @cached_property
    def parts(self) -> Table[PartRow]:
        """What each phase consists of."""
        return Table(part_rows(self._diagnosis))

    @cached_property
    def operations(self) -> Table[OperationRow]:
        """Every label: calls, times, percentiles, memory."""
        return Table(operation_rows(self._diagnosis))

    @cached_property
    def lines(self) -> Table[LineRow]:
        """The lines of the program the samples saw, most seen first."""
        return Table(line_rows(self._diagnosis))

    @cached_property
    def findings(self) -> Table[Finding]:
        """What slows the run down, largest predicted gain first."""
        return Table(self._diagnosis.findings, finding_data)

    @cached_property
    def iterations(self) -> Table[IterationRow]:
        return Table(iteration_rows(self._diagnosis))

    def __repr__(self) -> str:
        return "\n".join([self._headline(), *align(self._phase_cells()), *self._finding_lines(), self._tables_line()])

    def _repr_html_(self) -> str:
        found = "".join(f"<li>{escape_html(line.strip())}</li>" for line in self._finding_lines())
        head, tables = escape_html(self._headline()), escape_html(self._tables_line())
        return f"<p><b>{head}</b></p>{_html_table(self._phase_cells())}<ul>{found}</ul><p>{tables}</p>"

    def _headline(self) -> str:
        facts = [f"wall {duration_text(self.wall_s * 1e9)}", f"loop {duration_text(self.loop_s * 1e9)}"]
        facts += [f"{rate_text(self.steps_per_second)} env steps/s"] if self.steps_per_second is not None else []
        facts += [f"{count_text(n)} {escape(name).replace('_', ' ')}" for name, n in list(self.counters.items())[:4]]
        return f"Session {escape(self.name)}: {', '.join(facts)}"

    def _phase_cells(self) -> list[list[str]]:
        if self.phases:
            rows = [[f"  {p.phase}", share_text(p.share), duration_text(p.total_s * 1e9)] for p in self.phases[:8]]
        else:
            rows = [[f"  {escape(o.name)}", share_text(o.share), duration_text(o.total_s * 1e9)] for o in self.operations[:8]]
        return rows or [["  nothing was recorded"]]

    def _finding_lines(self) -> list[str]:
        lines = [f"  {f.severity} · {escape(f.cause)} · {place_text(f)} · {gain_text(f)}"[:160] for f in self.findings[:5]]
        left = len(self.findings) - 5
        return lines + ([f"  … {left} more findings"] if left > 0 else [])

    def _tables_line(self) -> str:
        names = ("phases", "parts", "operations", "lines", "findings", "iterations")
        return "tables: " + ", ".join(f"{name} ({len(getattr(self, name)):,})" for name in names) + "; each has .to_pandas()"


def _is_short(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return shorten(escape(str(value)), _WIDEST)


def _html_table(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> str:
    heads = "".join(f"<th>{escape_html(cell)}</th>" for cell in head)
    lines = ["".join(f"<td>{escape_html(cell)}</td>" for cell in row) for row in rows]
    return f"<table>{f'<tr>{heads}</tr>' if head else ''}{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
