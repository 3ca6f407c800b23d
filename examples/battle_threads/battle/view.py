"""What p1 knows of a battle, read from the simulator's lines, and what a network is shown of it.

Invariant: only what a player at the screen would see, and the public dex; the other side's bench and moves are hidden.
"""

from __future__ import annotations

import json
from typing import Any

from . import dex

BENCH = dex.TEAM_SIZE - 1
ACTIONS = dex.MOVES_EACH + BENCH  # four moves, then "switch to the first, to the second on the bench"
FEATURES = 7 + 3 * dex.MOVES_EACH + 4 * BENCH

Observation = list[float]
Mask = list[bool]


class RefusedError(Exception):
    """The server did not accept what was sent."""


class View:
    def __init__(self, name: str) -> None:
        self.name = name
        self.request: dict[str, Any] = {}
        self.foe = ""  # the species that fights for the other side
        self.foe_hp: dict[str, float] = {}  # of every species seen, 0 to 1
        self.ended = False
        self.won = False
        self.server_us = 0

    def read(self, text: str) -> None:
        for line in text.split("\n"):
            word, _, rest = line[1:].partition("|")
            if word == "request":
                self.request = json.loads(rest)
            elif word in ("switch", "drag") and rest.startswith("p2"):
                _, details, condition = rest.split("|")[:3]
                self.foe = details.partition(",")[0]
                self.foe_hp[self.foe] = health(condition)
            elif word in ("-damage", "-heal") and rest.startswith("p2"):
                self.foe_hp[self.foe] = health(rest.split("|")[1])
            elif word == "faint" and rest.startswith("p2"):
                self.foe_hp[self.foe] = 0.0
            elif word in ("win", "tie"):
                self.ended, self.won = True, rest == self.name
            elif word == "server":
                self.server_us = int(rest)
            elif word == "error":
                raise RefusedError(rest)

    def balance(self) -> float:
        """Our hit points against theirs, -1 to 1; what was not seen yet is unhurt."""
        ours = sum(health(fighter["condition"]) for fighter in self._team())
        theirs = sum(self.foe_hp.values()) + dex.TEAM_SIZE - len(self.foe_hp)
        return (ours - theirs) / dex.TEAM_SIZE

    def mask(self) -> Mask:
        """Which actions the server would accept; all false once the battle is over."""
        if self.ended:
            return [False] * ACTIONS
        moves, active = self._moves(), (self.request.get("active") or [{}])[0]
        may_move = [i < len(moves) and not moves[i].get("disabled") for i in range(dex.MOVES_EACH)]
        trapped = bool(active.get("trapped"))
        return may_move + [not trapped and health(fighter["condition"]) > 0 for fighter in self._team()[1:]]

    def choice(self, action: int) -> str:
        """An action in the simulator's words."""
        return f"move {action + 1}" if action < dex.MOVES_EACH else f"switch {action - dex.MOVES_EACH + 2}"

    def observe(self) -> Observation:
        if self.ended:
            return [0.0] * FEATURES
        team = self._team()
        names = [fighter["details"].partition(",")[0] for fighter in team]
        me, foe_max_hp = names[0], dex.SPECIES[self.foe].max_hp
        foes_left = dex.TEAM_SIZE - sum(hp == 0 for hp in self.foe_hp.values())
        features = [
            health(team[0]["condition"]),
            self.foe_hp[self.foe],
            1.0 if dex.SPECIES[me].speed > dex.SPECIES[self.foe].speed else 0.0,
            dex.threat(self.foe, me) / 4,
            sum(health(fighter["condition"]) > 0 for fighter in team) / dex.TEAM_SIZE,
            foes_left / dex.TEAM_SIZE,
            1.0 if "forceSwitch" in self.request else 0.0,
        ]
        moves = self._moves()
        for i in range(dex.MOVES_EACH):
            known = dex.MOVES.get(moves[i]["id"]) if i < len(moves) else None
            if known is None:
                features += (0.0, 0.0, 0.0)
            else:
                damage = dex.full_damage(me, known.id, self.foe) / foe_max_hp
                features += (min(damage, 2.0), dex.effectiveness(known.type, dex.SPECIES[self.foe].types) / 4, 1.0)
        for name, fighter in zip(names[1:], team[1:], strict=True):
            best = max(dex.full_damage(name, move, self.foe) for move in fighter["moves"]) / foe_max_hp
            hp = health(fighter["condition"])
            features += (hp, 1.0 if hp > 0 else 0.0, min(best, 2.0), dex.threat(self.foe, name) / 4)
        return features

    def _team(self) -> list[dict[str, Any]]:
        team: list[dict[str, Any]] = self.request["side"]["pokemon"]
        return team

    def _moves(self) -> list[dict[str, Any]]:
        active = self.request.get("active")
        return active[0]["moves"] if active else []


def health(condition: str) -> float:
    """The simulator's condition as a share.

    >>> health("63/126 par"), health("0 fnt")
    (0.5, 0.0)
    """
    points, slash, most = condition.partition(" ")[0].partition("/")
    return int(points) / int(most) if slash else 0.0
