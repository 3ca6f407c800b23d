"""Copies, casts or packing of many bytes take much of the loop.

What to do: copy less. Keep data in the type it is used in (convert once, when it is stored), write into an array made once,
hand over views instead of copies, keep images as bytes until they are needed.

    batch = np.stack([f.astype(np.float32) / 255 for f in frames])    # before: every frame copied twice
    batch = torch.from_numpy(frames[index]).float().div_(255)         # after: frames is one uint8 array

When to ignore it: the bytes are new each time and each is used (a camera, a recording).

Recognised by: stack samples in calls that put bytes elsewhere (copy, cast, stack, pack) and last, for 10 % of the loop or
more: in your own code, or in the library's, which copies whatever it is handed. What can be gone: 95 % (in the cases this was
tried on, all of it went, and what it had driven out of the caches got faster)."""

from __future__ import annotations

from ....model.mechanism import MOVING
from ..evidence import Evidence
from ..places import LEAST_SHARE, is_library, of_mechanism, say
from ..rule import Candidate, claim, main_mechanism

TURN = 317
ACTION = "copy and convert less: keep data in the type it is used in, and write into arrays made once"


def find(e: Evidence) -> list[Candidate]:
    own = [say(e, hot, "copies or converts data") for hot in of_mechanism(e, (MOVING,))]
    return [*own, *filter(None, [_in_libraries(e)])]


def _in_libraries(e: Evidence) -> Candidate | None:
    """What the RL library's containers and buffers copy on the way: each a little, for what it is handed."""
    found = [x for x in e.left if main_mechanism([x]) == MOVING and x.places and is_library(e, x)]
    title = "for {share} of the training loop the library copies the data it is handed, reached from {function}"
    return claim(e, found, found[0].label or "between calls", title, LEAST_SHARE, removes=0.95) if found else None
