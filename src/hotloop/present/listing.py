"""Sessions side by side, as a table.

What lives here: the rows of `hotloop list` in, a rich table out; names are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..analyse.diagnosis import Diagnosis
from ..model.session import DIED, ENDED, RUNNING
from ..printing.blocks import find_largest
from ..printing.text import escape
from .tables import seconds
from .units import duration_text, rate_text, share_text


def list_row(path: str, diagnosis: Diagnosis) -> dict[str, Any]:
    """A session as one row; also what `--json` prints."""
    states = {process.state for process in diagnosis.processes}
    name = find_largest(diagnosis.ledger, diagnosis.sheet)
    largest = next((o for o in diagnosis.operations if o.name == name), None)
    return {
        "session": path,
        "name": diagnosis.name,
        "start_unix_s": diagnosis.start_unix_ns / 1e9,
        "state": RUNNING if RUNNING in states else DIED if diagnosis.processes[0].state == DIED else ENDED,
        "processes": len(diagnosis.processes),
        **seconds(diagnosis, "wall loop"),
        "iterations": diagnosis.iterations_closed,
        "sps": diagnosis.sps,
        "coverage": diagnosis.numbers.coverage,
        "largest": largest.name if largest else None,
        "largest_share": min(1.0, largest.union_ns / diagnosis.wall_ns) if largest and diagnosis.wall_ns else None,
    }


def list_table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("SESSION", overflow="fold", min_width=min(34, max([7, *(len(row["session"]) for row in rows)])))
    table.add_column("state", no_wrap=True)
    for head in ("wall", "iters", "steps/s", "covered"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("largest", overflow="ellipsis", no_wrap=True, min_width=10)
    for row in rows:
        if "problem" in row:  # said below the table
            continue
        share = f" {share_text(row['largest_share'])}" if row["largest_share"] is not None else ""
        table.add_row(
            escape(row["session"]),
            Text(row["state"], style="red" if row["state"] == "died" else ""),
            duration_text(row["wall_s"] * 1e9),
            f"{row['iterations']:,}" if row["iterations"] else "",
            rate_text(row["sps"]) if row["sps"] is not None else "",
            share_text(row["coverage"]),
            escape(row["largest"] or "") + share,
        )
    return table
