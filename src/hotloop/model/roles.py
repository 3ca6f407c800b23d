"""What a call means to a training loop, and what a hook on it does.

What lives here: `Role` and the roles there are, from an env step to a log line. Who may touch it: adapters name them, the hooks
act on them. Invariant: plain numbers, as record/native/hooks.h knows them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .phase import CHECKPOINT, COLLECT, EVAL, LEARN, LOG, NONE

SPAN, ENV, MODEL, LISTS, PHASE, TRIAL = range(6)
IN_ENV, IN_MODEL, IN_LEARN, IN_LOG, IN_SAVE, IN_PHASE, IN_DATA, IN_RENDER = (1 << i for i in range(8))
COUNT_NOTHING, COUNT_STEP, COUNT_RESET, COUNT_UPDATE, COUNT_ENDS = range(5)


@dataclass(frozen=True, slots=True)
class Role:
    """What a call means, and what a hook on it does."""

    part: str  # the label is PHASE/part
    phase: int = NONE  # NONE: whichever it falls into
    kind: int = SPAN
    event: int = NONE
    inside: int = 0  # what this is, for hooks called within it
    within: int = 0  # in which of those it is passed by
    counts: int = COUNT_NOTHING
    owns: bool = True  # its own time is work; else it is a container


_NO_SPANS = IN_LEARN | IN_SAVE | IN_LOG | IN_ENV
STEP = Role("env_step", COLLECT, ENV, COLLECT, IN_ENV, IN_ENV, COUNT_STEP)
COUNTED_STEP = replace(STEP, counts=COUNT_ENDS)  # its adapter says how many steps it was
MAYBE_STEP = Role("env_step", COLLECT, TRIAL, COLLECT, IN_ENV, IN_ENV, COUNT_STEP)  # its results will show
RESET = Role("env_reset", COLLECT, ENV, COLLECT, IN_ENV, IN_ENV, COUNT_RESET)
RENDER = Role("render", COLLECT, SPAN, COLLECT, IN_RENDER, IN_RENDER)
FORWARD = Role("forward", NONE, MODEL, NONE, IN_MODEL, _NO_SPANS | IN_MODEL)
FROM_LIST = Role("tensor_from_list", NONE, LISTS, NONE, IN_DATA, IN_DATA | IN_ENV | IN_SAVE)
MAKE_TENSOR = Role("make_tensor", NONE, MODEL, NONE, IN_DATA, IN_DATA | IN_ENV | IN_SAVE | IN_MODEL)
COPY = Role("deepcopy", NONE, MODEL, NONE, IN_DATA, IN_DATA | IN_ENV | IN_SAVE)
STATE_COPY = Role("state_copy", LEARN, inside=IN_DATA, within=IN_DATA | IN_SAVE)
BACKWARD = Role("backward", LEARN, event=LEARN, inside=IN_LEARN, within=IN_LEARN)
OPTIMIZER = Role("optimizer", LEARN, event=LEARN, inside=IN_LEARN, within=IN_LEARN, counts=COUNT_UPDATE)
ZERO_GRAD = Role("zero_grad", LEARN, event=LEARN, inside=IN_LEARN, within=IN_LEARN)
CLIP_GRAD = Role("clip_grad", LEARN, event=LEARN, inside=IN_LEARN, within=IN_LEARN)
SAMPLE = Role("sample", LEARN, event=LEARN, inside=IN_DATA, within=IN_DATA | IN_MODEL)
STORE = Role("store", COLLECT, event=COLLECT, inside=IN_DATA, within=IN_DATA | IN_MODEL | IN_LEARN)
ADVANTAGE = Role("advantage", LEARN, event=LEARN, inside=IN_MODEL, within=IN_MODEL | IN_LEARN)
LOSS = Role("loss", LEARN, event=LEARN, inside=IN_LEARN, within=IN_LEARN | IN_MODEL)
BOOKKEEPING = Role("bookkeeping", COLLECT, inside=IN_DATA, within=IN_DATA)
ROLLOUT = Role("rollout", COLLECT, PHASE, COLLECT, IN_PHASE, owns=False)
TRAIN = Role("train", LEARN, PHASE, LEARN, IN_PHASE, owns=False)
EVALUATE = Role("evaluate", EVAL, PHASE, EVAL, owns=False)
CALLBACK = Role("callback", COLLECT)
SAVE = Role("save", CHECKPOINT, inside=IN_SAVE, within=IN_SAVE)
LOAD = Role("load", CHECKPOINT, inside=IN_SAVE, within=IN_SAVE)
PRINT = Role("print", LOG, inside=IN_LOG, within=IN_LOG)
LOGGING = Role("logging", LOG, inside=IN_LOG, within=IN_LOG)
TENSORBOARD = Role("tensorboard", LOG, inside=IN_LOG, within=IN_LOG)
ENV_MAKE = Role("env_make", COLLECT, inside=IN_DATA, within=IN_DATA | IN_ENV)
WORKER_START = Role("worker_start", COLLECT)
