"""A place of your own code holds much of the loop, and no other cause has a better word for it.

What to do: look at the line that is named. If it stands in a loop over items (cells, agents, rows, time steps), do all of them
in one call over arrays, or compile the function (Numba, Cython). If it does the same again and again, keep the result. If it
is called for each step and needed seldom, call it less often.

    for i in range(len(x)): y[i] = a * x[i] + b   # before: interpreted, item by item
    y = a * x + b                                 # after: one call over the whole array

When to ignore it: the function is as short as it can be and does what the training needs.

Recognised by: the share of stack samples in the function, 10 % or more of the loop, and that it ran Python code there. What
can be gone: 90 % of a loop written in Python (such loops kept 5 to 15 % when they were rewritten), 85 % of other code; but what
takes its place costs about 20 µs each time round."""

from __future__ import annotations

from ....model.mechanism import INTERPRETING
from ..evidence import Evidence
from ..places import of_mechanism, say
from ..rule import Candidate

TURN = 325
ACTION = "do all items in one call over arrays, compile the function, or call it less often"


def find(e: Evidence) -> list[Candidate]:
    return [say(e, hot, "runs Python code" + " in a loop" * hot.looped) for hot in of_mechanism(e, (INTERPRETING,))]
