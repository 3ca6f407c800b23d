"""A report as plain text."""

from __future__ import annotations

from ..analyse.report import Report
from ..model import shard as m
from ..record.summary import escape, join, losses_text, own_cost_text, table, terminal_width


def report_text(report: Report, width: int | None = None) -> str:
    """The operations, the tracks whose books close, and how far to trust them."""
    width = width or terminal_width()
    shown = [o for o in report.operations if o.kind in (m.USER, m.OVERFLOW) and (o.calls or o.open)]
    lines = [f"SESSION {escape(report.name)}", *table(shown, report.wall_ns, width)]
    sps = [f"SPS {report.sps:,.1f}"] if report.sps is not None else []
    parts = [f"wall {report.wall_ns / 1e9:.3f} s", f"loop {report.loop_ns / 1e9:.3f} s", f"coverage {report.coverage:.1%}"]
    lines.append(join([*parts, f"iterations {report.iterations_closed:,}", *sps], width))
    lines.append("")
    lines.append("Track                lifetime(s)  exclusive  waiting  unattributed  profiler")
    for b in report.ledger.balances:
        process = report.processes[b.shard]
        name = escape(b.name if b.shard == 0 else f"{process.name or process.pid}/{b.name}")[:20]
        of = max(1, b.lifetime_ns)
        lines.append(
            f"{name:<20} {b.lifetime_ns / 1e9:>11.3f}  {b.exclusive_ns / of:>9.1%}  {b.waiting_ns / of:>7.1%}  "
            f"{b.unattributed_ns / of:>12.1%}  {b.profiler_ns / of:>8.2%}"
            + (f"  {process.state}" if process.state != "ended" else "")
        )
    q = report.quality
    lines.append("")
    cost = own_cost_text(q.own_cost_ns, q.own_cost_error_ns, q.profiler_share)
    lines.append(join([f"quality: {losses_text(q.losses)}", cost], width))
    lines += [f"note: {escape(text)}" for text in q.problems]
    for name, site in q.held_across_yield.items():
        lines.append(f"note: '{escape(name)}' is held across a yield ({escape(site)}): use @profile_function on the generator")
    return "\n".join(lines)
