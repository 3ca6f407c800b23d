"""Copies, casts or packing of many bytes take much of the loop.

What to do: copy less. Keep data in the type it is used in (convert once, when it is stored), write into an array made once,
hand over views instead of copies, keep images as bytes until they are needed.

    batch = np.stack([f.astype(np.float32) / 255 for f in frames])    # before: every frame copied twice
    batch = torch.from_numpy(frames[index]).float().div_(255)         # after: frames is one uint8 array

When to ignore it: the bytes are new each time and each is used (a camera, a recording).

Recognised by: stack samples in calls of your own code that put bytes elsewhere (copy, cast, stack, pack) and last, for 10 %
of the loop or more. What can be gone: 80 to 85 % (from the cases this was tried on)."""

from __future__ import annotations

from ....model.mechanism import MOVING
from ..evidence import Evidence
from ..places import of_mechanism, say
from ..rule import Candidate

TURN = 316
ACTION = "copy and convert less: keep data in the type it is used in, and write into arrays made once"


def find(e: Evidence) -> list[Candidate]:
    return [say(e, hot, "copies or converts data") for hot in of_mechanism(e, (MOVING,))]
