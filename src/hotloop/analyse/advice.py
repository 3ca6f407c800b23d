"""What to do about an operation, by what it is and why it was flagged.

What lives here: the sentences, one per category and level, and the choice among them. Invariant: an operation is never told to
do less work when its time is spent in what it calls, or in waiting; that is said instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.listing import Own
from . import categories as c

CRITICAL, SLOW, MEMORY, GPU_MEMORY = "CRITICAL", "SLOW", "MEMORY", "GPU MEMORY"
_CONTAINER = 0.25  # an operation that holds less than this part of its time itself


def sentences_for(category: str, levels: Sequence[str], time_s: float, own: Own | None) -> tuple[str, ...]:
    """What to do about an operation that was open for `time_s` of the wall time."""
    elsewhere = _see_through(own, time_s) if own is not None else None
    sentences = [elsewhere] if elsewhere and {CRITICAL, SLOW} & set(levels) else []
    for level in levels:
        if elsewhere is None or level not in (CRITICAL, SLOW):
            by_category = _SENTENCES[level]
            sentences.append(by_category.get(category, by_category[c.OTHER]))
    return tuple(sentences)


def _see_through(own: Own, time_s: float) -> str | None:
    """Where an operation's time really is, when it is not in its own running code."""
    waiting_s = own.waiting_s or 0.0
    if own.self_s + waiting_s + own.outside_s < _CONTAINER * time_s:
        if own.waiting_s is None:
            return "Little of its time is its own code: look at what it calls, or waits for, first."
        return "Little of its time is its own: look at the operations it calls first."
    if own.outside_s > own.self_s + waiting_s:
        return "Much of its time lies in none of its parts: put spans around the rest of its body to see what it is."
    if waiting_s > own.self_s:
        return "It mostly waits: speed up what it waits for (a worker, a server, a lock, a sleep), or do other work meanwhile."
    return None


_SENTENCES: dict[str, dict[str, str]] = {
    CRITICAL: {
        c.ENVIRONMENT: "Step many environments in one call (arrays instead of objects) or in worker processes; keep what does "
        "not change between steps out of step().",
        c.RENDERING: "Draw at the size the network sees instead of resizing, keep the static layers (grid, walls) as one "
        "cached image, and redraw only what moved.",
        c.MODEL: "Send the observations of all environments through in one batch, without gradients while collecting "
        "(torch.inference_mode); then try torch.compile and mixed precision.",
        c.POLICY: "Choose the actions of all environments in one batched call, and keep hidden states on the device between"
        " steps.",
        c.TRAINING: "Time backward and optimizer apart; larger minibatches, a fused optimizer and mixed precision come first."
        " Every .item() or .cpu() in the loop waits for the GPU.",
        c.DATA: "Preallocate the buffer as arrays, write whole batches instead of single steps, and sample by index "
        "instead of stacking Python objects.",
        c.TRANSFER: "Copy seldom and much at once: pinned buffers, non_blocking=True, and data that stays where it is used. A"
        " copy may only be waiting for GPU work queued before it.",
        c.EVALUATION: "Evaluate less often, with fewer episodes, or in a process beside the training.",
        c.LOGGING: "Log every N steps instead of every step, and read GPU values (.item()) only when a line is written.",
        c.OTHER: "Put spans around its parts to see which one costs, and tell its kind with --category NAME=PATTERN.",
    },
    SLOW: {
        c.ENVIRONMENT: "One call holds up the loop: run environments in parallel processes so that calls overlap, and look for "
        "resets that rebuild everything.",
        c.RENDERING: "One picture takes long: draw with array operations instead of shape by shape, at a lower resolution.",
        c.MODEL: "One pass takes long: check the device it runs on, the input size and the precision; a first call may "
        "include compilation.",
        c.POLICY: "One decision takes long: check that the network runs on the intended device and that nothing is moved "
        "per call.",
        c.TRAINING: "One call takes long: see whether it covers several epochs, and whether it runs while the environments "
        "stand still; collecting and learning can overlap.",
        c.DATA: "One call takes long: avoid copying the whole buffer; prepare the next batch in a thread while the GPU works.",
        c.TRANSFER: "One transfer takes long: compare its size with the link's bandwidth; if it is far off, it waits for the "
        "GPU.",
        c.EVALUATION: "One evaluation stops the training this long: fewer episodes, vectorised ones, or a process of its own.",
        c.LOGGING: "One call takes long: write in a background thread, and keep checkpoints on a local disk.",
        c.OTHER: "One call takes long: compare its median with its maximum in `hotloop report`; a few slow calls need "
        "another cure than many even ones.",
    },
    MEMORY: {
        c.ENVIRONMENT: "Keep observations in their smallest type (uint8, not float32) and reuse one array per environment.",
        c.RENDERING: "Reuse one canvas, and keep frames as uint8 at the size the network sees.",
        c.MODEL: "Run without gradients where none are needed: activations kept for backward are the usual cause.",
        c.POLICY: "Detach hidden states and actions before keeping them; otherwise every step's graph stays alive.",
        c.TRAINING: "Split the batch (gradient accumulation) and detach losses before adding them up for the log.",
        c.DATA: "Store observations as uint8 and each only once (next observations by index); preallocate instead of "
        "appending.",
        c.LOGGING: "Write what is logged out instead of gathering it in lists.",
        c.OTHER: "See what it allocates per call: reuse buffers, and process the data in pieces.",
    },
    GPU_MEMORY: {
        c.MODEL: "Use torch.inference_mode while collecting, mixed precision or activation checkpointing while training.",
        c.POLICY: "Detach hidden states: a graph kept across steps grows with the rollout.",
        c.TRAINING: "Smaller minibatches with gradient accumulation, mixed precision, and "
        "optimizer.zero_grad(set_to_none=True).",
        c.DATA: "Keep the buffer in pinned CPU memory and move only the minibatch.",
        c.TRANSFER: "Reuse one device buffer instead of allocating one per copy.",
        c.OTHER: "Free what is not needed before the peak (del, no references in logs), or work on smaller batches.",
    },
}
