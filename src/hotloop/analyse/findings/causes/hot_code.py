"""A place of your own code holds much of the loop, and no other cause has a better word for it.

What to do: look at the line that is named. If it stands in a loop over items (cells, agents, rows, time steps), do all of them
in one call over arrays, or compile the function (Numba, Cython). If it does the same again and again, keep the result. If it
is called for each step and needed seldom, call it less often.

    for i in range(len(x)): y[i] = a * x[i] + b   # before: interpreted, item by item
    y = a * x + b                                 # after: one call over the whole array

When to ignore it: the function is as short as it can be and does what the training needs; or it computes in native code, which
is at the machine's pace already (the finding says so, and promises little).

Recognised by: the share of stack samples in the function, 10 % or more of the loop, and what the processor did there: ran
Python code, or arithmetic that lasts. What can be gone: 90 % of a loop written in Python (such loops kept 5 to 15 % when they
were rewritten); of code without a loop, what it takes beyond 20 µs each time round."""

from __future__ import annotations

from ....model.mechanism import COMPUTING, INTERPRETING
from ..evidence import Evidence
from ..places import of_mechanism
from ..rule import Candidate, function_name, percent

TURN = 325
ACTION = "do all items in one call over arrays, compile the function, or call it less often"


def find(e: Evidence) -> list[Candidate]:
    found = []
    for hot in of_mechanism(e, (INTERPRETING, COMPUTING)):
        what = "computes" if hot.mechanism == COMPUTING else "runs Python code" + (" in a loop" if hot.looped else "")
        each = hot.share * e.loop_ns / e.turns / 1000
        found.append(Candidate(
            f"for {percent(hot.share)} of the training loop {function_name(hot.where)} {what}",
            hot.where, hot.slices[0].label or "between calls", hot.slices, removes=hot.removes,
            evidence=(f"{each:,.0f} µs each time round the loop ({e.turns:,} steps and updates)",),
        ))  # fmt: skip
    return found
