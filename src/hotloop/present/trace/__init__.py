"""A session for other people's viewers: Chrome's trace, speedscope's file, collapsed stacks.

What lives here: the door. `export` decides what is in the file; its text comes in pieces, so that no more than `limit`
events and a few thousand lines are held at once. Invariant: every piece is ASCII but for collapsed lines, all are UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...model.ledger import fold
from ...model.session import SessionData
from .chrome import chrome_trace
from .folded import collapsed, speedscope
from .timeline import NO_EVENTS, keep_events, make_timeline

LIMIT = 1_000_000
EARLY_SHARE = 0.25  # of the limit: how a run begins; the rest shows where it got to


@dataclass(frozen=True, slots=True)
class Export:
    pieces: Iterator[str]
    summary: str  # one line: what is in it
    written: int  # events
    left_out: int


def export(session: SessionData, format: str, limit: int = LIMIT) -> Export:
    """The session as text; `format` is chrome, speedscope or collapsed."""
    ledger = fold(session.shards)
    if format == "collapsed":
        total = sum(balance.lifetime_ns for balance in ledger.balances)
        return Export(collapsed(ledger), f"{total / 1e9:.3f} s of thread time, in nanoseconds per stack", 0, 0)
    kept = keep_events(session, limit, EARLY_SHARE if format == "chrome" else 0.0)
    session = replace(session, events=NO_EVENTS)  # ten million of them are 360 MB: let go before the writing begins
    timeline = make_timeline(session.shards, kept)
    summary = f"{timeline.written:,} events"
    if timeline.left_out:
        which = "the first and the latest" if format == "chrome" else "the latest"
        summary += f" of {timeline.there:,}; {timeline.left_out:,} left out by --limit {limit:,}, which keeps {which}"
    spans = sum(shard.recorded + shard.open_count for shard in session.shards)
    if spans > timeline.there:
        summary += f"; the run had {spans:,} spans, of which the recorder keeps the first windows and the latest"
    view = chrome_trace if format == "chrome" else speedscope
    return Export(view(session, ledger, timeline), summary, timeline.written, timeline.left_out)
