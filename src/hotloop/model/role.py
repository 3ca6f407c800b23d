"""Roles: what a hooked call means in a training loop. The one place where they are listed.

What lives here: `Role`, the roles there are, from an env step to a log line, and the codes they are made of. Who may touch it:
adapters name roles, the hooks act on them, both recorders know the codes (the C one by make_layout.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import phase as ph

# SPAN: a span. ENV: an environment's method; the outermost call is the event, calls within it are its layers, by class.
# MODEL: a network; only the outermost call is a span, and what comes next decides its phase. LISTS: as MODEL, but only
# when the first argument is a list. PHASE: everything within belongs to one phase. TRIAL: its results will show whether it is
# an environment's; until then it leaves no trace.
SPAN, ENV, MODEL, LISTS, PHASE, TRIAL = range(6)
# What is open on a track; a hook is passed by while one of its `within` is.
IN_ENV, IN_MODEL, IN_LEARN, IN_LOG, IN_SAVE, IN_PHASE, IN_DATA, IN_RENDER, IN_TRIAL, IN_TEST = (1 << i for i in range(10))
# ENDS: a step that somebody else counts, but for its episodes. EVAL_STEPS: a phase that a name alone speaks for; a call without
# an env step in it shows that it is none, and from then on it is passed by. EVAL_FIRST: such a phase that holds the first env
# step of all. It may be how the script collects (evolution, search), so it counts as evaluation only after env steps outside.
COUNT_NOTHING, COUNT_STEP, COUNT_RESET, COUNT_UPDATE, COUNT_ENDS, COUNT_EVAL_STEPS, COUNT_EVAL_FIRST = range(7)


@dataclass(frozen=True, slots=True)
class Role:
    """What a call means, and what a hook on it does."""

    part: str  # the label is PHASE/part
    phase: int = ph.NONE  # NONE: whichever it falls into
    kind: int = SPAN
    event: int = ph.NONE
    inside: int = 0  # what this is, for hooks called within it
    within: int = 0  # in which of those it is passed by
    counts: int = COUNT_NOTHING
    owns: bool = True  # its own time is work; else it is a container


_NO_SPANS = IN_LEARN | IN_SAVE | IN_LOG | IN_ENV
STEP = Role("env_step", ph.COLLECT, ENV, ph.COLLECT, IN_ENV, IN_ENV, COUNT_STEP)
COUNTED_STEP = replace(STEP, counts=COUNT_ENDS)  # its adapter says how many steps it was
MAYBE_STEP = Role("env_step", ph.COLLECT, TRIAL, ph.COLLECT, IN_ENV, IN_ENV, COUNT_STEP)  # its results will show
RESET = Role("env_reset", ph.COLLECT, ENV, ph.COLLECT, IN_ENV, IN_ENV, COUNT_RESET)
RENDER = Role("render", ph.COLLECT, SPAN, ph.COLLECT, IN_RENDER, IN_RENDER)
FORWARD = Role("forward", ph.NONE, MODEL, ph.NONE, IN_MODEL, _NO_SPANS | IN_MODEL)
FROM_LIST = Role("tensor_from_list", ph.NONE, LISTS, ph.NONE, IN_DATA, IN_DATA | IN_ENV | IN_SAVE)
MAKE_TENSOR = Role("make_tensor", ph.NONE, MODEL, ph.NONE, IN_DATA, IN_DATA | IN_ENV | IN_SAVE | IN_MODEL)
COPY = Role("deepcopy", ph.NONE, MODEL, ph.NONE, IN_DATA, IN_DATA | IN_ENV | IN_SAVE)
STATE_COPY = Role("state_copy", ph.LEARN, inside=IN_DATA, within=IN_DATA | IN_SAVE)
BACKWARD = Role("backward", ph.LEARN, event=ph.LEARN, inside=IN_LEARN, within=IN_LEARN)
OPTIMIZER = Role("optimizer", ph.LEARN, event=ph.LEARN, inside=IN_LEARN, within=IN_LEARN, counts=COUNT_UPDATE)
ZERO_GRAD = Role("zero_grad", ph.LEARN, event=ph.LEARN, inside=IN_LEARN, within=IN_LEARN)
CLIP_GRAD = Role("clip_grad", ph.LEARN, event=ph.LEARN, inside=IN_LEARN, within=IN_LEARN)
SAMPLE = Role("sample", ph.LEARN, event=ph.LEARN, inside=IN_DATA, within=IN_DATA | IN_MODEL)
STORE = Role("store", ph.COLLECT, event=ph.COLLECT, inside=IN_DATA, within=IN_DATA | IN_MODEL | IN_LEARN)
ADVANTAGE = Role("advantage", ph.LEARN, event=ph.LEARN, inside=IN_MODEL, within=IN_MODEL | IN_LEARN)
LOSS = Role("loss", ph.LEARN, event=ph.LEARN, inside=IN_LEARN, within=IN_LEARN | IN_MODEL)
BOOKKEEPING = Role("bookkeeping", ph.COLLECT, inside=IN_DATA, within=IN_DATA)
ROLLOUT = Role("rollout", ph.COLLECT, PHASE, ph.COLLECT, IN_PHASE, owns=False)
TRAIN = Role("train", ph.LEARN, PHASE, ph.LEARN, IN_PHASE, owns=False)
EVALUATE = Role("evaluate", ph.EVAL, PHASE, ph.EVAL, owns=False)
MAYBE_EVALUATE = replace(EVALUATE, counts=COUNT_EVAL_STEPS)  # by its name
MAYBE_COLLECT = replace(EVALUATE, counts=COUNT_EVAL_FIRST)  # the same, while the first env step is made in it
CALLBACK = Role("callback", ph.COLLECT)
SAVE = Role("save", ph.CHECKPOINT, inside=IN_SAVE, within=IN_SAVE)
LOAD = Role("load", ph.CHECKPOINT, inside=IN_SAVE, within=IN_SAVE)
PRINT = Role("print", ph.LOG, inside=IN_LOG, within=IN_LOG)
LOGGING = Role("logging", ph.LOG, inside=IN_LOG, within=IN_LOG)
TENSORBOARD = Role("tensorboard", ph.LOG, inside=IN_LOG, within=IN_LOG)
ENV_MAKE = Role("env_make", ph.COLLECT, inside=IN_DATA, within=IN_DATA | IN_ENV)
WORKER_START = Role("worker_start", ph.COLLECT)
