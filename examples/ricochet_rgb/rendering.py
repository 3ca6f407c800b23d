"""The board as an RGB picture, drawn by PIL and resized to the size the network sees.

What lives here: `RgbObserver`. Grid and walls come first and do not change within an episode; target and robots lie on top.
`cache_static=True` keeps the first two as one picture per board, which is what a profile of this example suggests.
"""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

import numpy as np
from PIL import Image, ImageDraw
from ricochet import Board, Game, Rules

from hotloop import profile

# A dark board: what is empty is near zero for the network, which learns faster so.
BOARD, LINE, WALL, PLATE = (14, 14, 18), (40, 40, 48), (140, 140, 140), (255, 255, 255)
ROBOTS = ((235, 40, 40), (40, 90, 255), (30, 200, 70), (250, 200, 0))


class RgbObserver:
    def __init__(self, rules: Rules, image_size: int = 64, cell_px: int = 16, cache_static: bool = False) -> None:
        self.shape = (3, image_size, image_size)
        self.size, self.cell_px = rules.size, cell_px
        self.side_px = rules.size * cell_px + 1
        self.static: WeakKeyDictionary[Board, Image.Image] | None = WeakKeyDictionary() if cache_static else None
        self.star = _star(cell_px / 2, cell_px * 0.46)

    def observe(self, game: Game, out: np.ndarray) -> None:
        with profile("env_rgb_observation_generation"):
            image = self.render(game)
            with profile("env_rgb_resizing"):
                small = image.resize(self.shape[1:], Image.Resampling.BOX)
            with profile("env_rgb_to_array"):
                out[:] = np.asarray(small).transpose(2, 0, 1)

    def render(self, game: Game) -> Image.Image:
        with profile("env_rgb_rendering"):
            image = self._static_layers(game)
            draw = ImageDraw.Draw(image)
            with profile("env_rgb_draw_target"):
                x, y = self._corner(game.target)
                draw.rectangle((x + 1, y + 1, x + self.cell_px - 1, y + self.cell_px - 1), fill=PLATE)
                draw.polygon([(x + dx, y + dy) for dx, dy in self.star], fill=ROBOTS[game.goal_robot])
            with profile("env_rgb_draw_robots"):
                inset = self.cell_px // 8 + 1
                for colour, cell in zip(ROBOTS, game.robots, strict=False):
                    x, y = self._corner(cell)
                    box = (x + inset, y + inset, x + self.cell_px - inset, y + self.cell_px - inset)
                    draw.ellipse(box, fill=colour)
        return image

    def _static_layers(self, game: Game) -> Image.Image:
        if self.static is None:
            return self._draw_static(game.board)
        if game.board not in self.static:
            self.static[game.board] = self._draw_static(game.board)
        with profile("env_rgb_copy_static"):
            return self.static[game.board].copy()

    def _draw_static(self, board: Board) -> Image.Image:
        with profile("env_rgb_draw_grid"):
            image = Image.new("RGB", (self.side_px, self.side_px), BOARD)
            draw = ImageDraw.Draw(image)
            for at in range(0, self.side_px, self.cell_px):
                draw.line((at, 0, at, self.side_px), fill=LINE)
                draw.line((0, at, self.side_px, at), fill=LINE)
        with profile("env_rgb_draw_walls"):
            thick = max(2, self.cell_px // 5)
            draw.rectangle((0, 0, self.side_px - 1, self.side_px - 1), outline=WALL, width=thick // 2 + 1)
            for y, x in np.argwhere(board.east[:, :-1]).tolist():
                at, top = (x + 1) * self.cell_px, y * self.cell_px
                draw.line((at, top, at, top + self.cell_px), fill=WALL, width=thick)
            for y, x in np.argwhere(board.south[:-1]).tolist():
                at, left = (y + 1) * self.cell_px, x * self.cell_px
                draw.line((left, at, left + self.cell_px, at), fill=WALL, width=thick)
            for cell in board.block:
                x, y = self._corner(cell)
                draw.rectangle((x, y, x + self.cell_px, y + self.cell_px), fill=WALL)
        return image

    def _corner(self, cell: int) -> tuple[int, int]:
        y, x = divmod(cell, self.size)
        return x * self.cell_px, y * self.cell_px


def _star(middle: float, radius: float) -> list[tuple[float, float]]:
    """Ten corners of a five-pointed star in its cell."""
    corners = []
    for i in range(10):
        r, turn = radius if i % 2 == 0 else radius * 0.45, math.pi * (i / 5 - 0.5)
        corners.append((middle + r * math.cos(turn), middle + r * math.sin(turn)))
    return corners
