"""A Python loop of network calls that one batched call replaces.

What to do: gather what the loop goes over (agents, leaves, candidates, time steps) into one tensor, and call the network once.

    values = [critic(torch.cat([obs, a])) for a in candidates]               # before: 32 calls
    values = critic(torch.cat([obs.expand(32, -1), candidates], dim=1))      # after: 1

For a recurrent network hand the whole sequence to `nn.LSTM` or `nn.GRU` instead of stepping a cell. For networks with weights
of their own use `torch.vmap` with stacked weights. When to ignore it: each call needs the result of the one before (where the
text of the loop shows that, nothing is said).

Recognised by: network calls per env step or update (4 or more) that come from a loop in your code, for 10 % of the training
loop or more. Predicted from your own network, measured at other sizes after the run; without that measurement, from the share
of its time that is no arithmetic."""

from __future__ import annotations

from ....model.mechanism import COMPUTING, DISPATCHING, MOVING
from ....model.phase import COLLECT, EVAL, LEARN
from ..evidence import Evidence, Slice
from ..places import Drivers, above_network, blame_caller, find_drivers, in_sequence, is_looped
from ..rule import Candidate, total

TURN = 195
REWRITES, TAKES = True, (DISPATCHING, COMPUTING, MOVING)  # what is done for each call goes with it; Python code stays
ACTION = "gather what the loop goes over into one tensor and call the network once"
LEAST_SHARE, LEAST_CALLS = 0.10, 4.0
ALIKE = 3.0  # else the calls are not of the network that was measured: gradients alone make a call twice as long


def find(e: Evidence) -> list[Candidate]:
    return [x for x in (_serial(e, COLLECT), _serial(e, LEARN)) if x is not None]


def _serial(e: Evidence, phase: int) -> Candidate | None:
    label = "collect/policy" if phase == COLLECT else "learn/forward"
    per_turn = e.calls_of(label) / max(1, (e.step_calls or e.env_steps) if phase == COLLECT else e.updates)
    if per_turn < LEAST_CALLS:
        return None
    drivers = find_drivers(e)
    found = [x for x in e.left if label in x.labels and _in_loop(e, x, drivers)]
    share = e.share(found)
    if share < LEAST_SHARE or share < 0.5 * e.share(x for x in e.left if label in x.labels):
        return None
    curve = e.curve(phase)
    each = total([x for x in e.slices if label in x.labels]) / e.calls_of(label)
    measured = curve is not None and curve.rows > 0 and 1 / ALIKE < each / curve.cost(curve.rows) < ALIKE
    if curve is not None and measured:
        keeps = curve.cost(curve.rows * per_turn) / (per_turn * curve.cost(curve.rows))
    else:
        computes = sum(x.ns * x.part(COMPUTING) for x in found) / max(1.0, total(found))
        keeps = computes + (1 - computes) / per_turn
    where = blame_caller(e, found)
    what = "env step" if phase == COLLECT else "update"
    return Candidate(
        f"{per_turn:.0f} network calls for every {what}, one after the other: with all around them {{share}} of the loop",
        where, label, tuple(found), removes=max(0.0, min(0.97, 1 - keeps)), calls=True, measured=measured,
        evidence=(f"{e.calls_of(label):,} calls, {max(1, e.updates if phase == LEARN else e.step_calls):,} {what}s",),
    )  # fmt: skip


def _in_loop(e: Evidence, piece: Slice, drivers: Drivers) -> bool:
    chain = [p for p in above_network(piece) if e.is_yours(p)]
    return piece.phase != EVAL and bool(chain) and is_looped(e, chain, drivers) and not in_sequence(e, piece, drivers)
