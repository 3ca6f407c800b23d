"""The optimizer goes through many small tensors one by one.

What to do: let it do all of them in one call.

    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4)               # before
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4, fused=True)   # after; or foreach=True

The arithmetic is the same; results may differ in the last bits. Networks of many small layers gain most. When to ignore it:
your optimizer knows neither option, or a step is a small part of an update.

Recognised by: the time of optimizer steps, and the time of the same step with `foreach` and `fused` on copies of your
parameters, measured after the run. Told from 5 % of the loop on: a change of one word."""

from __future__ import annotations

from ..evidence import Evidence
from ..rule import Candidate, Expected, percent, speedup

TURN = 305
ACTION = "give the optimizer fused=True, or foreach=True"
LEAST_SAVED = 0.05


def find(e: Evidence) -> Candidate | None:
    found = [x for x in e.left if "learn/optimizer" in x.labels]
    share = e.share(found)
    best = None
    for cost in e.session.probes.optimizers:
        for name, ns in cost.variants.items():
            if best is None or ns / cost.ns < best[0]:
                best = ns / cost.ns, name, cost
    if best is None or share * (1 - best[0]) < LEAST_SAVED:
        return None
    keeps, name, cost = best
    saved = share * (1 - keeps)
    return Candidate(
        f"{percent(share)} of the loop steps {cost.name} over {cost.tensors} tensors; {name}=True takes {percent(keeps)} of it",
        e.blame(found), "learn/optimizer", tuple(found), share=saved, action=f"give {cost.name} {name}=True",
        gain=Expected(speedup(saved)), measured=True,
        evidence=(
            f"a step takes {cost.ns / 1000:,.0f} µs as it is, {cost.ns * keeps / 1000:,.0f} µs with {name}=True "
            "(measured after the run)",
        ),
    )  # fmt: skip
