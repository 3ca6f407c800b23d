"""Sessions side by side, as a table.

What lives here: the rows of `hotloop list` in, a rich table out; names are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..record.summary import escape
from .units import duration_text, rate_text, share_text


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
