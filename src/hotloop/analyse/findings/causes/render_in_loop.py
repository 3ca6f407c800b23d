"""Drawing or resizing images every step.

Pictures are made for each observation, or `render` is called in the training loop: drawing, scaling and converting pixels costs
far more than the physics.

Recognised by: time in `render`, in imaging libraries (Pillow, OpenCV, pygame, matplotlib, imageio) or in functions whose name
says that they draw.

What to do: train on the state instead of pixels, draw only every Nth episode, draw at the size the network needs, or keep the
background and redraw what moved.
"""

from __future__ import annotations

import re

from ....model.phase import COLLECT, EVAL
from ..evidence import Evidence, Slice
from ..rule import Candidate, function_name, percent

ACTION = "draw only when somebody looks, and at the size that is needed"
LEAST_SHARE = 0.10
_LIBRARIES = re.compile(r"[/\\\\](PIL|cv2|pygame|matplotlib|imageio|skimage|pyglet|moviepy)[/\\\\]")
_NAMES = re.compile(
    r"render|draw|_rgb|rgb_|to_image|as_image|screenshot|resize|rasteri[sz]e|\bpaint|get_frame|_frame$|pixels", re.I
)


def find(e: Evidence) -> Candidate | None:
    drawing = e.where(_draws)
    share = e.share(drawing)
    if share < LEAST_SHARE:
        return None
    where = e.blame(drawing, _names_in(drawing))
    return Candidate(
        f"{percent(share)} of the training loop is drawing images, in {function_name(where)}",
        where,
        "collect/render",
        tuple(drawing),
        evidence=(f"{percent(share)} in rendering and imaging functions",),
    )


def _draws(piece: Slice) -> bool:
    if piece.label.endswith("/render") or any(_LIBRARIES.search(p.file) for p in piece.places):
        return piece.phase != EVAL
    inside = any(Evidence.is_yours(p) and _NAMES.search(p.function.rpartition(".")[2]) for p in piece.places)
    return inside and piece.phase in (0, COLLECT)


def _names_in(slices: list[Slice]) -> set[str]:
    return {p.function.rpartition(".")[2] for x in slices for p in x.places if _NAMES.search(p.function.rpartition(".")[2])}
