"""Networks or other large objects are made, or networks compiled, again and again.

What to do: make the object once, before the loop, and fill it with what changes.

    for genes in population: net = Policy(); vector_to_parameters(genes, net.parameters())   # before
    net = Policy()
    for genes in population: vector_to_parameters(genes, net.parameters())                   # after

The same for compiling: `torch.jit.script`, `trace` and `freeze` take milliseconds to seconds each time. Compile once, load the
new weights into the network, and keep what was compiled, one for each of them if there are several. Where one network serves
several candidates, reset what else it keeps: hidden state, buffers, its optimizer. When to ignore it: the networks differ in
shape, as in a search for an architecture.

Recognised by: stack samples, after the loop began, in the functions of torch that make networks and optimizers, fill weights
for the first time, or compile, for 10 % of the loop or more; and four or more compilations, or networks that were called and
then dropped. Objects of your own classes count too, if all calls of their constructors together took longer than any one
iteration; but not those that are made in a loop over items, as the nodes of a search are. Workers and environments
that are made anew are [worker-respawn](worker-respawn.md)."""

from __future__ import annotations

from ....model.mechanism import STARTING
from ....model.shard import WAIT
from ...lines import plain_function
from ...mechanisms import imports, sets_up
from ..evidence import Evidence, Slice
from ..others import find_culprit
from ..places import find_drivers, is_looped
from ..rule import Candidate, claim, function_name, total

TURN = 15
MECHANISM = STARTING
ACTION = "make it once, before the loop, and then fill it with what changes (load only the new weights)"
LEAST_SHARE, LEAST_TIMES = 0.10, 4  # as often as worker-respawn asks for: what happens once is a warm-up


def find(e: Evidence) -> list[Candidate]:
    compiled, dropped = e.facts.get("compilations", 0), e.facts.get("networks_dropped", 0)
    networks = [x for x in e.left if x.part(STARTING) > 0.5 and any(sets_up(p) for p in x.places) and not imports(x.places)]
    if compiled >= LEAST_TIMES:
        doing, said = "compiles networks", f"{compiled:,} compilations"
    else:
        doing = "makes new networks"
        said = f"at least {dropped:,} networks were called and then dropped" if dropped >= LEAST_TIMES else ""
    found = [_say(e, networks, doing, said), _in_others(e, said)] if said else []
    made = _made(e)
    if _again(e, made):
        found.append(
            _say(e, made, "makes new objects", "all calls of the constructor together took longer than any one iteration")
        )
    return [x for x in found if x is not None]


def _say(e: Evidence, slices: list[Slice], doing: str, said: str) -> Candidate | None:
    title = f"{{share}} of the training loop {doing}, again and again, in {{function}}"
    return claim(e, slices, "between calls", title, LEAST_SHARE, said)


def _made(e: Evidence) -> list[Slice]:
    """What is done while objects of the user's classes are made, one at a time: nodes of a search are made in loops."""
    drivers = find_drivers(e)
    found = []
    for piece in e.left:
        own = [p for p in piece.places if e.is_yours(p)]
        at = next((i for i, p in enumerate(own) if p.function.endswith(".__init__")), None)
        if at and piece.kind != WAIT and piece.part(STARTING) <= 0.5:
            around = [p for p in own[:at] if (p.file, plain_function(p.function)) not in drivers] or own[at - 1 : at]
            if not is_looped(e, around, drivers):
                found.append(piece)
    return found


def _again(e: Evidence, slices: list[Slice]) -> bool:
    """Did this happen in several iterations? All of it took longer than the longest of them, and than what is in none."""
    rows = e.diagnosis.learner.iterations
    longest = max(((row.end_ns - row.start_ns) / row.merged for row in rows), default=0)
    around = e.loop_ns - sum(row.end_ns - row.start_ns for row in rows)
    return sum(row.merged for row in rows) >= LEAST_TIMES and max(longest, around) < total(slices)


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
