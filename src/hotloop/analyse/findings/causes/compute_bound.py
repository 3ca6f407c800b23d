"""Arithmetic takes much of the loop: calls that last, at the machine's pace.

What to do: compute less. Leave out what nobody reads (padding, gradients of networks that do not learn, heads that are not
used), do it once instead of in every step, on fewer rows, or in a smaller number type. Larger batches and fewer calls do not
help here.

    padded = pad_sequence(batch, total_length=512)      # before: padded to the longest there could be
    padded = pad_sequence(batch)                        # after: to the longest there is
    cov = np.cov(window); inverse = np.linalg.inv(cov)  # in every step; once per update would do

When to ignore it: the network is as large as the problem asks for, and every row of it is used.

Recognised by: stack samples in native calls that were still running 0.04 ms later, for 10 % of the loop or more in a function
of yours, or for 20 % in networks (if all of it were gone, that would be a warning). How much of it can go is not
known from outside. Two thirds are expected of a function of yours (where there was something to leave out, 0.9 to 1.0 of it
went, in three cases of four; nothing in the fourth), and nothing of networks."""

from __future__ import annotations

from ....model.mechanism import COMPUTING
from ....model.shard import WAIT
from ..evidence import Evidence, Slice
from ..places import of_mechanism, say
from ..rule import Candidate, Expected, function_name, percent, speedup

TURN = 326
ACTION = "compute less: without padding or unused parts, once instead of in every step, on fewer rows, in a smaller number type"
LEAST_SHARE = 0.20
_CALLS, _BACKWARD = ("policy", "forward"), ("backward", "optimizer")


def find(e: Evidence) -> list[Candidate]:
    networks = _networks(e)
    return [*([networks] if networks else []), *(say(e, hot, "computes") for hot in of_mechanism(e, (COMPUTING,)))]


def _networks(e: Evidence) -> Candidate | None:
    """Forward and backward passes; one place, as they are one batch."""
    found = [x for x in e.left if x.kind != WAIT and _is_in(x, (*_CALLS, *_BACKWARD)) and x.part(COMPUTING) > 0.5]
    share = e.share(found)
    if share < LEAST_SHARE:
        return None
    where = e.blame([x for x in found if _is_in(x, _CALLS)] or found, through=True)
    return Candidate(
        f"for {percent(share)} of the training loop networks compute, called by {function_name(where)}",
        where, found[0].label, tuple(found), share=share, gain=Expected(1.0, speedup(share)), evidence=_costs(e),
    )  # fmt: skip


def _is_in(piece: Slice, parts: tuple[str, ...]) -> bool:
    return any(label.rpartition("/")[2] in parts for label in piece.labels)


def _costs(e: Evidence) -> tuple[str, ...]:
    return tuple(
        f"{curve.network}: {curve.cost(curve.rows) / 1000:,.0f} µs for {curve.rows} rows, {curve.marginal_ns / 1000:,.1f} µs "
        "for each further one (measured after the run)"
        for curve in e.session.probes.curves[:2]
    )
