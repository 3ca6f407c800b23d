"""Tensors are kept with their graphs.

What to do: keep numbers (`losses.append(loss.item())`) or detached tensors (`loss.detach()`, which does not wait for a GPU),
not `loss` itself. Write `hidden = hidden.detach()` between updates, and drop `retain_graph=True`.

A list of losses, a running mean or a hidden state keeps every graph it came from alive: backward passes get longer, memory
grows; or each pass goes back through a whole rollout. Recognised by: backward time per env step, growing with the run; or a
backward pass of 200 operations or more that takes 2.5 times as long as your network's forward and backward pass over the same
batch, measured after the run (5 times, where it was recorded while collecting, step by step). Ignore it if sequences are meant
to grow, or the gradient is meant to go back that far."""

from __future__ import annotations

from ....model.phase import COLLECT, LEARN
from ..evidence import Evidence
from ..growth import memory_growth
from ..rule import Candidate, function_name, percent, total

TURN = 80
ACTION = "keep numbers (`.item()`, `.detach()`), not tensors with their graphs"


# A loss of its own, and an actor beside a critic: up to 2.7 times what one network takes, and 40 to 120 operations a pass.
LEAST_TIMES, LEAST_NODES, LEAST_SHARE = 2.5, 200, 0.15
# Recorded one step at a time, what else is done with each output counts more: 2.6 times in a healthy program, 9.5 in one that
# goes back through ten windows.
LEAST_COLLECTED = 5.0
WITH_BACKWARD = 3.0  # times a forward pass, where that was measured alone: two products for each one of the forward pass


def find(e: Evidence) -> Candidate | None:
    return _growing(e) or _reaching_back(e)


def _reaching_back(e: Evidence) -> Candidate | None:
    """By the cost of one batch alone."""
    backward, calls = e.where_label("backward"), e.calls_of("learn/backward")
    if not calls or e.share(backward) < LEAST_SHARE:
        return None
    each = total(backward) / calls
    # what is learnt from may have been recorded while collecting
    collected = _cost_alone(e, COLLECT, e.calls_of("collect/policy") / calls)
    learnt = _cost_alone(e, LEARN, max(1.0, e.calls_of("learn/forward") / calls))
    alone, least = max((learnt, LEAST_TIMES), (collected, LEAST_COLLECTED))
    looked = e.facts.get("graphs_looked", 0)
    if not alone or each < least * alone or not looked or e.facts.get("graph_nodes", 0) < LEAST_NODES * looked:
        return None
    where = e.blame(backward)
    return Candidate(
        f"a backward pass takes {each / 1e6:.2f} ms; one such batch alone, forward and backward, {alone / 1e6:.2f} ms",
        where, "learn/backward", tuple(backward), removes=1 - alone / each,
        evidence=(f"{percent(e.share(backward))} of the loop are backward passes, from {function_name(where)}", *_graph(e)),
        action="cut the graph where the batch begins (`.detach()`), drop retain_graph=True, recompute what the loss needs",
    )  # fmt: skip


def _cost_alone(e: Evidence, phase: int, calls: float) -> float:
    """Of so many calls of the networks of a phase, forward and backward, measured after the run; 0 where there are none."""
    curves = [c for c in e.session.probes.curves if c.phase == phase and (c.grad or phase == LEARN)]
    each = sum(c.cost(c.mean_rows) * (1 if c.grad else WITH_BACKWARD) * c.seen for c in curves)
    return calls * each / sum(c.seen for c in curves) if curves else 0.0


def _graph(e: Evidence) -> tuple[str, ...]:
    looked = e.facts.get("graphs_looked", 0)
    return (f"a pass goes through {e.facts['graph_nodes'] / looked:,.0f} operations",) if looked else ()


def _growing(e: Evidence) -> Candidate | None:
    growing = [g for g in e.growing if g.label in ("learn/backward", "learn/forward", "collect/policy")]
    memory = memory_growth(e)
    backward = e.where_label("backward")
    if not growing or growing[0].label != "learn/backward" or e.share(backward) < 0.15:
        return None
    where = e.blame(backward)
    grown = growing[0]
    return Candidate(
        f"backward passes take {grown.factor:.1f} × as long at the end as at the beginning; "
        f"they are {percent(e.share(backward))} of the loop",
        where,
        "learn/backward",
        tuple(backward),
        share=e.share(backward) * grown.excess,
        removes=1.0,
        evidence=(f"memory grew by {memory:.0f} MB in the later part of the run", f"called from {function_name(where)}"),
    )
