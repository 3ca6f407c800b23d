"""Networks or optimizers are made, or networks compiled, again and again.

What to do: make the object once, before the loop, and fill it with what changes.

    for genes in population: net = Policy(); vector_to_parameters(genes, net.parameters())   # before
    net = Policy()
    for genes in population: vector_to_parameters(genes, net.parameters())                   # after

The same for compiling: `torch.jit.script`, `trace` and `freeze` take milliseconds to seconds each time. Compile once, load the
new weights into the network, and keep what was compiled, one for each of them if there are several. When to ignore it: the
networks differ in shape, as in a search for an architecture.

Recognised by: stack samples, after the loop began, in the functions of torch that make networks and optimizers, fill weights
for the first time, or compile, for 10 % of the loop or more; and how many networks were met, or compilations made: four or
more. Workers and environments that are made anew are [worker-respawn](worker-respawn.md)."""

from __future__ import annotations

from ....model.mechanism import STARTING
from ..evidence import Evidence
from ..others import find_culprit
from ..rule import Candidate, claim, function_name

TURN = 15
MECHANISM = STARTING
ACTION = "make networks and optimizers, and compile, once, before the loop; then load only the new weights"
LEAST_SHARE, LEAST_TIMES = 0.10, 4  # as often as worker-respawn asks for: what happens once is a warm-up


def find(e: Evidence) -> list[Candidate]:
    compiled, met = e.facts.get("compilations", 0), e.facts.get("networks_met", 0)
    if max(compiled, met) < LEAST_TIMES:
        return []
    found = [x for x in e.left if x.part(STARTING) > 0.5 and x.places]
    if compiled >= LEAST_TIMES:
        doing, said = "compiles networks", f"{compiled:,} compilations"
    else:
        doing, said = "makes new networks", f"at least {met:,} different networks were called"
    title = f"{{share}} of the training loop {doing}, again and again, in {{function}}"
    own = claim(e, found, "between calls", title, LEAST_SHARE, said)
    return [x for x in (own, _in_others(e, said)) if x is not None]


def _in_others(e: Evidence, said: str) -> Candidate | None:
    """What a worker sets up while the training waits for it."""
    culprit = find_culprit(e)
    top = next((place for place in culprit.places if place.mechanism == STARTING), None) if culprit else None
    if culprit is None or top is None:
        return None
    share = e.share(culprit.waits) * (1 - culprit.limits) * top.share
    if share < LEAST_SHARE:
        return None
    title = f"{culprit.name} makes networks in {function_name(top.where)} while the training loop waits for it"
    return Candidate(title, top.where, culprit.waits[0].label, culprit.waits, share=share, evidence=(said,))
