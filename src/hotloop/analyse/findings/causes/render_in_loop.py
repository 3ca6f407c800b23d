"""Drawing or resizing images every step.

What to do: if nothing learns from the images, do not make them (`gym.make(name, render_mode=None)`), or draw only every Nth
episode. If the agent learns from pixels, draw at the size the network needs, and keep the background and redraw what moved; or
train on the state, if that is the task.

Drawing, scaling and converting pixels costs far more than the physics. Recognised by: time in `render`, in imaging libraries
(Pillow, OpenCV, pygame, matplotlib, imageio), or in functions of yours that handle pixels (their text says uint8, rgb,
canvas, an image) and whose name says that they draw."""

from __future__ import annotations

import re

from ....model.phase import COLLECT, EVAL
from ..evidence import Evidence, Slice
from ..rule import Candidate, claim

TURN = 60
ACTION = "draw only every Nth episode or for watching, and at the size that is needed"
TITLE = "{share} of the training loop is drawing images, in {function}"
LEAST_SHARE = 0.10
_LIBRARIES = re.compile(r"[/\\\\](PIL|cv2|pygame|matplotlib|imageio|skimage|pyglet|moviepy)[/\\\\]")
_NAMES = re.compile(
    r"render|draw|_rgb|rgb_|to_image|as_image|screenshot|resize|rasteri[sz]e|\bpaint|get_frame|_frame$|pixels", re.I
)


_PIXELS = re.compile(r"uint8|\brgb|_rgb|canvas|\bimage|\bimg\b|pixel|\bscreen\b|\bframe\b", re.I)


def find(e: Evidence) -> Candidate | None:
    drawing = e.where(lambda x: _draws(e, x))
    said = "{share} of the loop is in rendering and imaging functions"
    return claim(e, drawing, "collect/render", TITLE, LEAST_SHARE, said, inside=_names_in(drawing))


def _draws(e: Evidence, piece: Slice) -> bool:
    if piece.label.endswith("/render") or any(_LIBRARIES.search(p.file) for p in piece.places):
        return piece.phase != EVAL
    if piece.phase not in (0, COLLECT):
        return False
    named = (p for p in piece.places if e.is_yours(p) and _NAMES.search(p.function.rpartition(".")[2]))
    return any(_PIXELS.search(line) for place in named for line in e.text_around(place))


def _names_in(slices: list[Slice]) -> set[str]:
    return {p.function.rpartition(".")[2] for x in slices for p in x.places if _NAMES.search(p.function.rpartition(".")[2])}
