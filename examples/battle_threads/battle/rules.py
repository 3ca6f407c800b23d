"""One battle between p1, who is asked, and p2, who plays at random as Showdown's `RandomPlayerAI` does.

What lives here: the rules of the bundled server. Invariant: every answer ends in a `|request|` that p1 can answer, in `|win|`
or in `|tie`; a choice that is not allowed raises and changes nothing. The lines are those of the Pokémon Showdown simulator, as
p1 sees them: its own hit points exact, the other side's in percent.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, field
from typing import Any

from . import dex


class BadChoiceError(Exception):
    """A choice or a team that the rules do not allow."""


@dataclass(slots=True)
class Fighter:
    species: dex.Species
    moves: list[str]
    hp: int = 0
    pp: list[int] = field(default_factory=list)

    @classmethod
    def from_set(cls, data: Any) -> Fighter:
        try:
            species, moves = dex.SPECIES[data["species"]], list(data["moves"])
            pp = [dex.MOVES[move].pp * 8 // 5 for move in moves]
        except (KeyError, TypeError) as error:
            raise BadChoiceError(f"this team cannot be read: {error!r} is missing or unknown") from None
        if not moves:
            raise BadChoiceError(f"{species.name} knows no move")
        return cls(species, moves, species.max_hp, pp)

    def usable(self) -> list[int]:
        """The moves that have points left; none means Struggle."""
        return [i for i, left in enumerate(self.pp) if left > 0]


@dataclass(slots=True)
class Side:
    id: str
    name: str
    team: list[Fighter]  # the first one fights

    @property
    def active(self) -> Fighter:
        return self.team[0]

    def bench(self) -> list[int]:
        return [i for i, fighter in enumerate(self.team) if i > 0 and fighter.hp > 0]

    def beaten(self) -> bool:
        return all(fighter.hp == 0 for fighter in self.team)

    def ident(self) -> str:
        return f"{self.id}a: {self.active.species.name}"

    def condition(self, fighter: Fighter) -> str:
        if fighter.hp == 0:
            return "0 fnt"
        if self.id == "p1":
            return f"{fighter.hp}/{fighter.species.max_hp}"
        return f"{math.ceil(100 * fighter.hp / fighter.species.max_hp)}/100"


class Battle:
    def __init__(self, seed: str, p1: Any, p2: Any) -> None:
        self.luck = random.Random(seed)
        self.p1, self.p2 = (
            Side(id, str(player.get("name", id)), [Fighter.from_set(s) for s in player.get("team") or ()])
            for id, player in (("p1", p1), ("p2", p2))
        )
        if not self.p1.team or not self.p2.team:
            raise BadChoiceError("both players need a team")
        self.turn = 0
        self.over = False

    def begin(self) -> list[str]:
        lines = [f"|player|{side.id}|{side.name}" for side in (self.p1, self.p2)]
        for side in (self.p1, self.p2):
            lines += self._enter(side)
        return lines + self._ask()

    def play(self, choice: str) -> list[str]:
        """A turn, or the replacement of a fighter that fainted, and what p1 sees of it."""
        if self.over:
            raise BadChoiceError("the battle is over")
        kind, slot = self._parse(choice)
        if self.p1.active.hp == 0:
            return self._switch(self.p1, slot) + self._ask()
        lines: list[str] = []
        actions = [(self.p1, kind, slot), (self.p2, "move", self._random_move(self.p2.active))]
        actions.sort(key=lambda a: (a[1] != "switch", -a[0].active.species.speed, self.luck.random()))
        for side, what, index in actions:
            if side.active.hp == 0:
                continue  # it fainted before its turn came
            if what == "switch":
                lines += self._switch(side, index)
            else:
                other = self.p2 if side is self.p1 else self.p1
                if other.active.hp > 0:
                    lines += self._attack(side, other, index)
        if not self.p1.beaten() and not self.p2.beaten() and self.p2.active.hp == 0:
            lines += self._switch(self.p2, self.luck.choice(self.p2.bench()))
        return lines + self._ask()

    # ---- choices ----

    def _parse(self, choice: str) -> tuple[str, int]:
        kind, _, number = choice.partition(" ")
        index = int(number) - 1 if number.isascii() and number.isdigit() else -1
        active = self.p1.active
        if kind == "switch" and index in self.p1.bench():
            return kind, index
        usable = active.usable() or [0]
        if kind == "move" and active.hp > 0 and index in usable:
            return kind, index
        raise BadChoiceError(f"{choice[:40]!r} is not possible now")

    def _random_move(self, fighter: Fighter) -> int:
        return self.luck.choice(fighter.usable() or [0])

    # ---- what happens ----

    def _enter(self, side: Side) -> list[str]:
        fighter = side.active
        return [f"|switch|{side.ident()}|{fighter.species.name}, L{dex.LEVEL}|{side.condition(fighter)}"]

    def _switch(self, side: Side, slot: int) -> list[str]:
        side.team[0], side.team[slot] = side.team[slot], side.team[0]
        return self._enter(side)

    def _attack(self, side: Side, other: Side, index: int) -> list[str]:
        attacker, defender = side.active, other.active
        struggles = not attacker.usable()
        move = dex.STRUGGLE if struggles else dex.MOVES[attacker.moves[index]]
        if not struggles:
            attacker.pp[index] -= 1
        lines = [f"|move|{side.ident()}|{move.name}|{other.ident()}"]
        factor = dex.effectiveness(move.type, defender.species.types)
        if factor == 0:
            return [*lines, f"|-immune|{other.ident()}"]
        if factor != 1:
            lines.append(f"|{'-supereffective' if factor > 1 else '-resisted'}|{other.ident()}")
        luck = self.luck.randint(85, 100) / 100
        damage = max(1, int(dex.full_damage(attacker.species.name, move.id, defender.species.name) * luck))
        lines += self._hurt(other, damage)
        if struggles:
            lines += self._hurt(side, max(1, attacker.species.max_hp // 4))
        return lines

    def _hurt(self, side: Side, damage: int) -> list[str]:
        fighter = side.active
        fighter.hp = max(0, fighter.hp - damage)
        lines = [f"|-damage|{side.ident()}|{side.condition(fighter)}"]
        return lines if fighter.hp else [*lines, f"|faint|{side.ident()}"]

    # ---- what p1 is asked ----

    def _ask(self) -> list[str]:
        if self.p1.beaten() or self.p2.beaten():
            self.over = True
            if self.p1.beaten() and self.p2.beaten():
                return ["|tie"]
            return [f"|win|{(self.p2 if self.p1.beaten() else self.p1).name}"]
        replace = self.p1.active.hp == 0
        if replace:
            return [self._request({"forceSwitch": [True]})]
        self.turn += 1
        return [f"|turn|{self.turn}", self._request({"active": [{"moves": self._moves(self.p1.active)}]})]

    def _moves(self, fighter: Fighter) -> list[dict[str, Any]]:
        if not fighter.usable():
            return [{"move": dex.STRUGGLE.name, "id": dex.STRUGGLE.id}]
        return [
            {"move": dex.MOVES[id].name, "id": id, "pp": pp, "maxpp": dex.MOVES[id].pp * 8 // 5, "disabled": pp == 0}
            for id, pp in zip(fighter.moves, fighter.pp, strict=True)
        ]

    def _request(self, question: dict[str, Any]) -> str:
        team = [
            {
                "ident": f"p1: {fighter.species.name}",
                "details": f"{fighter.species.name}, L{dex.LEVEL}",
                "condition": self.p1.condition(fighter),
                "active": i == 0,
                "moves": fighter.moves,
            }
            for i, fighter in enumerate(self.p1.team)
        ]
        return "|request|" + json.dumps({**question, "side": {"name": self.p1.name, "id": "p1", "pokemon": team}})
