"""A report as plain text."""

from __future__ import annotations

from ..analyse.report import Report
from ..model import shard as m
from ..record.summary import escape, losses_text, own_cost_text, table, terminal_width


def report_text(report: Report, width: int | None = None) -> str:
    """The operations, the tracks whose books close, and how far to trust them."""
    width = width or terminal_width()
    shown = [o for o in report.operations if o.kind in (m.USER, m.OVERFLOW) and (o.calls or o.open)]
    lines = [f"SESSION {escape(report.name)}", *table(shown, report.wall_ns, width)]
    sps = f" | SPS {report.sps:,.1f}" if report.sps is not None else ""
    lines.append(
        f"wall {report.wall_ns / 1e9:.3f} s | loop {report.loop_ns / 1e9:.3f} s | coverage {report.coverage:.1%}"
        f" | iterations {report.iterations_closed:,}{sps}"
    )
    lines.append("")
    lines.append("Track                      lifetime(s)  exclusive   waiting  unattributed  profiler")
    for b in report.ledger.balances:
        process = report.processes[b.shard]
        name = escape(b.name if b.shard == 0 else f"{process.name or process.pid}/{b.name}")[:24]
        of = max(1, b.lifetime_ns)
        lines.append(
            f"{name:<26} {b.lifetime_ns / 1e9:>11.3f}  {b.exclusive_ns / of:>9.1%} {b.waiting_ns / of:>9.1%} "
            f"{b.unattributed_ns / of:>13.1%} {b.profiler_ns / of:>9.2%}"
            + (f"  {process.state}" if process.state != "ended" else "")
        )
    q = report.quality
    lines.append("")
    lines.append(f"quality: {losses_text(q.losses)} | {own_cost_text(q.own_cost_ns, q.own_cost_error_ns, q.profiler_share)}")
    lines += [f"note: {escape(text)}" for text in q.problems]
    for name, site in q.held_across_yield.items():
        lines.append(f"note: '{escape(name)}' is held across a yield ({escape(site)}): use @profile_function on the generator")
    return "\n".join(lines)
