"""Networks go through the whole past again at each step.

What to do: keep what the network knows of the past (the state of a recurrent network, the keys and values of attention), and
give it the new step only.

    out, _ = net(torch.stack(seen, 1)); act(out[:, -1])              # before: step 50 computes 50 steps
    out, state = net(obs.unsqueeze(1), state); act(out[:, -1])       # after: each step computes one (state is None at first)

Begin each episode with a fresh state, and for learning keep the state that each stretch began with. When to ignore it: the
network reads the sequence backwards, or all of it changes with each step (attention without a causal mask), so that nothing
can be kept.

Recognised by: now and then three calls without gradients are looked at in a row. In a quarter of them or more the network
gets one step more than in its call before. Predicted: of sequences of L steps on average, 1/L of the arithmetic stays; a curve
measured after the run tells arithmetic from what is paid per call, and that stays too."""

from __future__ import annotations

from ....model.mechanism import COMPUTING, MOVING
from ....model.phase import COLLECT, LEARN
from ..evidence import Evidence
from ..places import blame_caller
from ..rule import Candidate, claim, total

TURN = 187
MECHANISM = COMPUTING
ACTION = "keep the network's state (or its keys and values) and give it the new step only"
# Two of three neighbours follow the one they are compared with, and two networks may take turns: a third at least, less chance.
LEAST_LONGER, LEAST_LOOKED, LEAST_SAVED = 0.25, 12, 0.10
_CALLS = ((COLLECT, "collect", "collect/policy"), (LEARN, "learn", "learn/forward"))


def find(e: Evidence) -> Candidate | None:
    for phase, name, label in _CALLS:
        looked, longer = e.facts.get(f"{name}_calls_followed", 0), e.facts.get(f"{name}_calls_longer", 0)
        found = [x for x in e.left if label in x.labels]
        if looked < LEAST_LOOKED or longer < LEAST_LONGER * looked or not found:
            continue
        length = e.facts[f"{name}_length"] / longer
        computes = sum(x.ns * (x.part(COMPUTING) + x.part(MOVING)) for x in found) / total(found)
        curve = e.curve(phase)
        if curve is not None:
            computes = max(computes, 1 - curve.fixed_share)
        removes = computes * (1 - 1 / length)
        if e.share(found) * removes < LEAST_SAVED:
            continue
        said = f"{longer:,} of {looked:,} calls that were looked at got one step more than the one before"
        title = f"each step goes through the whole past again, {length:.0f} steps on average: {{share}} of the loop"
        return claim(e, found, label, title, LEAST_SAVED, said, where=blame_caller(e, found), removes=removes)
    return None
