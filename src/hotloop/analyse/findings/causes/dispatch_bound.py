"""Many calls of tensors or arrays, each too small for its arithmetic.

What to do: make fewer, larger calls. Put the items of a loop into one tensor and compute on that; write into a tensor made
once instead of stacking small ones; use NumPy or plain numbers for a handful of values.

    for i in range(n): out.append(torch.dot(a[i], b[i]))   # before: n calls of a few microseconds each
    out = (a * b).sum(1)                                   # after: two calls

When to ignore it: the calls depend on one another (a game tree, a simulation that goes on step by step): then compile the
function (`torch.compile`, Numba).

Recognised by: stack samples in tensor and array calls that had ended a moment (0.04 ms) later, in a loop of your own code, for
10 % of the loop or more. A call costs 1 to 10 µs on the processor before it computes anything. What can be gone: 90 % of the
loop (rewritten ones kept 5 to 15 %)."""

from __future__ import annotations

from ....model.mechanism import DISPATCHING
from ..evidence import Evidence
from ..places import of_mechanism, say
from ..rule import Candidate

TURN = 318
ACTION = "put the items of the loop into one tensor or array, and make one call"


def find(e: Evidence) -> list[Candidate]:
    return [
        say(e, hot, "makes small tensor calls" + " in a loop" * hot.looped, calls=True)
        for hot in of_mechanism(e, (DISPATCHING,))
    ]
