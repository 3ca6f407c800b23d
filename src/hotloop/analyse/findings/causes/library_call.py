"""A function of a library holds much of the loop, and it is none of the training's own steps.

What to do: look up what the function does and which option switches it off or makes it cheaper; or call it less often, on less
data. The finding names the function and the line of yours from which it is reached.

    buffer = HerReplayBuffer(..., copy_info_dict=True)   # before: every sample copies the infos it never reads
    buffer = HerReplayBuffer(...)                        # after

When to ignore it: what it does is what you use the library for.

Recognised by: the share of stack samples in and below one function of the library that is neither a network's call, nor a
step of an environment, nor a backward pass or an optimizer's step: 10 % of the loop or more. What a vector environment does
between the steps of its environments (merging what they return) counts as such a function. The same for a function of
Python's own library that several of your functions reach, none of them for most of it: then something makes all of them call
it, such as the debug mode of `asyncio`. How much of it can go depends on the option you find."""

from __future__ import annotations

from collections import Counter

from ..evidence import Evidence
from ..places import Hot, library_places, shared_function
from ..rule import Candidate, function_name, percent

TURN = 324
ACTION = "look up which option makes it cheaper or switches it off, or call it less often"


def find(e: Evidence) -> list[Candidate]:
    shared = shared_function(e)
    return [*([_say_shared(e, shared)] if shared else []), *(_say(e, hot) for hot in library_places(e))]


def _say_shared(e: Evidence, hot: Hot) -> Candidate:
    callers = Counter(function_name(place) for x in hot.slices if (place := e.innermost(x.places)))
    return Candidate(
        f"{percent(hot.share)} of the training loop is in {hot.where.function}, a function of Python's own library",
        hot.where, "between calls", hot.slices, removes=hot.removes,
        evidence=(f"reached from {', '.join(name for name, _ in callers.most_common(4))}",),
        action="look for what makes all of them call it (a debug mode, a hook, a log) and switch it off, or call it less often",
    )  # fmt: skip


def _say(e: Evidence, hot: Hot) -> Candidate:
    caller = e.blame(hot.slices)
    said = f"reached from {function_name(caller)}, line {caller.line}" if e.is_script(caller) else ""
    return Candidate(
        f"{percent(hot.share)} of the training loop is in {hot.where.function}, a function of the library",
        hot.where, hot.slices[0].label or "between calls", hot.slices, removes=hot.removes,
        evidence=tuple(filter(None, (said, f"most of it {hot.mechanism}"))),
    )  # fmt: skip
