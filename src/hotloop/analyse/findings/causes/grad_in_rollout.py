"""Actions are chosen with autograd on.

What to do: act under `torch.no_grad()`. `torch.inference_mode()` is a little faster, but a later loss may refuse its tensors.

    action = policy(obs).argmax(-1)                               # before
    with torch.no_grad(): action = policy(obs).argmax(-1)         # after

Do not change it if the loss is computed from these very outputs, such as log-probabilities saved while acting in a simple
REINFORCE script: it needs the graph. Autograd records a graph at every call; if nobody uses it, the calls are slower and take
more memory for nothing. Recognised by: outputs of policy calls that require gradients while collecting, in a script that
calls the network again to learn (at least once for every second backward pass): one that does not needs the graph, and gets
no advice. Predicted from your own network without gradients, measured after the run; without that, a third of the calls'
time."""

from __future__ import annotations

from ....model.phase import COLLECT
from ..evidence import Evidence
from ..rule import Candidate, claim

TURN = 260
ACTION = "act under torch.no_grad(), unless the loss is computed from these very outputs"
TITLE = "the policy records gradients while collecting; its calls are {share} of the loop, in {function}"
LEAST_SHARE = 0.08


def find(e: Evidence) -> Candidate | None:
    calls, with_grad = e.facts.get("collect_calls", 0), e.facts.get("collect_grad", 0)
    if calls < 20 or with_grad < 0.8 * calls:
        return None
    if e.calls_of("learn/forward") < 0.5 * max(1, e.calls_of("learn/backward")):
        return None  # the loss is computed from these very outputs
    curve = e.curve(COLLECT)
    without = curve.variants.get("no_grad") if curve is not None else None
    removes = max(0.0, 1 - without / curve.cost(curve.rows)) if curve is not None and without else 0.35
    policy = [x for x in e.where_label("collect/policy") if x.phase == COLLECT]
    said = f"the outputs of {with_grad} of the {calls} policy calls that were checked required gradients"
    return claim(e, policy, "collect/policy", TITLE, LEAST_SHARE, said, held=0.6, removes=removes)
