"""The beginning of the run is slow: compilation or start-up.

What to do: nothing, if it is the beginning of a long run; leave it out when you compare. Where compilations go on, keep shapes
the same (pad the batch) or use `torch.compile(model, dynamic=True)`. What is made anew at every start can be kept in a file
(`np.save`), or made with arrays.

The first iterations are much slower than the rest: compilation, caches, lazily loaded libraries. Or `torch.compile` compiles
again and again, because shapes or branches change. Or the script works long before its first env step: a table, a map.

Recognised by: the time of the first iterations against the later ones; the time in compilations, and how many there were; the
time of the script's own functions before the loop."""

from __future__ import annotations

from collections import Counter

from ....model.shard import Place
from ..evidence import Evidence
from ..rule import Candidate, Expected, function_name, percent

TURN = 340
ACTION = "leave the first iterations out when you compare; a long run is not affected"
LEAST_SHARE = 0.15
LEAST_COMPILES = 1
LEAST_SAMPLES = 100  # a second


def find(e: Evidence) -> Candidate | None:
    return _compiling(e) or _slow_beginning(e) or _long_preparation(e)


def _compiling(e: Evidence) -> Candidate | None:
    compiles = next((o for o in e.diagnosis.operations if o.name == "start-up/compile"), None)
    if compiles is None or compiles.calls < LEAST_COMPILES:
        return None
    share = compiles.busy_ns / (e.loop_ns + compiles.busy_ns)
    if share < LEAST_SHARE:
        return None
    stacks = [x.places for x in e.stacks if "start-up/compile" in e.labels_of(x.branch)]
    place = next((p for places in stacks for p in reversed(places) if e.is_yours(p)), None)
    breaks = e.facts.get("graph_breaks", 0)
    return Candidate(
        f"torch.compile compiled {compiles.calls:,} time{'s' * (compiles.calls != 1)}: {percent(share)} of loop and compiling",
        place or Place(),
        "start-up/compile",
        share=share,
        gain=Expected(1.0, 1 / max(0.05, 1 - share)),
        evidence=(f"{compiles.busy_ns / 1e9:.1f} s in compilations", f"{breaks} graph breaks"),
        action="if it goes on compiling, keep shapes the same or compile with dynamic=True",
    )


def _slow_beginning(e: Evidence) -> Candidate | None:
    """The report's own warm-up (analyse/changes.py), where it is worth a sentence."""
    history = e.diagnosis.iterations
    if history is None or not history.warm_up.settled or not history.warm_up.iterations:
        return None
    found, usual_s = history.warm_up, history.percentiles["p50"]
    share = (found.seconds - found.iterations * usual_s) * 1e9 / e.loop_ns
    if share < LEAST_SHARE:
        return None
    where = e.blame(e.slices) if e.slices else Place()
    return Candidate(
        f"the first {found.iterations} iterations took {percent(share)} of the loop more than later ones would: "
        f"each took {found.seconds / found.iterations / max(1e-9, usual_s):.1f} × as long",
        where,
        "warm-up",
        share=share,
        gain=Expected(1.0, 1 / max(0.05, 1 - share)),
        evidence=(f"from iteration {found.iterations} on the time is steady",),
    )


def _long_preparation(e: Evidence) -> Candidate | None:
    """Interpreted code of the user's own before the first env step; what libraries load and set up is not it."""
    main = [x for x in e.stacks if (x.shard, x.track) == (0, e.main_track)]
    own = [x for x in main if x.early and e.is_yours(x.places[-1]) and x.places[-1].function != "<module>"]
    samples = sum(x.count for x in own)
    share = samples / max(1, samples + sum(x.count for x in main if not x.early))
    if samples < LEAST_SAMPLES or share < LEAST_SHARE:
        return None
    lines: Counter[Place] = Counter()
    for stack in own:
        lines[stack.places[-1]] += stack.count
    where = lines.most_common(1)[0][0]
    return Candidate(
        f"the script's own code before the first env step takes {percent(share)} of that time and the loop together, most in "
        f"{function_name(where)}",
        where,
        "start-up",
        share=share,
        gain=Expected(1.0, 1 / max(0.05, 1 - share)),
        evidence=(f"it was seen in {samples:,} stack samples before the loop began",),
        action="keep what it makes in a file, or make it with arrays; a long run is not affected",
    )
