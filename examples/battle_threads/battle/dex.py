"""Species, moves and the type chart: what both sides of a battle know before it begins.

What lives here: a small part of the public game data, equal to Pokémon Showdown's own (a test compares them), and the
arithmetic made of it alone. The bundled server and the client both read it: the protocol tells names, not numbers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import Any

LEVEL = 50
TEAM_SIZE = 3
MOVES_EACH = 4
TYPES = ("Normal", "Fire", "Water", "Grass", "Electric", "Ice", "Ground", "Flying", "Rock")

# CHART[attacking][defending], rows and columns in the order of TYPES
CHART = (
    (1, 1, 1, 1, 1, 1, 1, 1, 0.5),
    (1, 0.5, 0.5, 2, 1, 2, 1, 1, 0.5),
    (1, 2, 0.5, 0.5, 1, 1, 2, 1, 2),
    (1, 0.5, 2, 0.5, 1, 1, 2, 0.5, 2),
    (1, 1, 2, 0.5, 0.5, 1, 0, 2, 1),
    (1, 0.5, 0.5, 2, 1, 0.5, 2, 2, 1),
    (1, 2, 1, 0.5, 2, 1, 1, 0, 2),
    (1, 1, 1, 2, 0.5, 1, 1, 1, 0.5),
    (1, 2, 1, 1, 1, 2, 0.5, 2, 1),
)


@dataclass(frozen=True, slots=True)
class Species:
    name: str
    types: tuple[str, ...]
    base: tuple[int, int, int, int, int, int]  # hp, attack, defence, special attack, special defence, speed

    @property
    def max_hp(self) -> int:
        return (2 * self.base[0] + 31) * LEVEL // 100 + LEVEL + 10

    def stat(self, index: int) -> int:
        return (2 * self.base[index] + 31) * LEVEL // 100 + 5

    @property
    def speed(self) -> int:
        return self.stat(5)


@dataclass(frozen=True, slots=True)
class Move:
    name: str
    type: str
    physical: bool
    power: int
    pp: int  # as the table has it; battles are fought with 8/5 of it

    @property
    def id(self) -> str:
        return self.name.lower().replace(" ", "")


SPECIES = {
    s.name: s
    for s in (
        Species("Charizard", ("Fire", "Flying"), (78, 84, 78, 109, 85, 100)),
        Species("Blastoise", ("Water",), (79, 83, 100, 85, 105, 78)),
        Species("Tangela", ("Grass",), (65, 55, 115, 100, 40, 60)),
        Species("Raichu", ("Electric",), (60, 90, 55, 90, 80, 110)),
        Species("Sandslash", ("Ground",), (75, 100, 110, 45, 55, 65)),
        Species("Arcanine", ("Fire",), (90, 110, 80, 100, 80, 95)),
        Species("Golem", ("Rock", "Ground"), (80, 120, 130, 55, 65, 45)),
        Species("Lapras", ("Water", "Ice"), (130, 85, 80, 85, 95, 60)),
        Species("Articuno", ("Ice", "Flying"), (90, 85, 100, 95, 125, 85)),
        Species("Zapdos", ("Electric", "Flying"), (90, 90, 85, 125, 90, 100)),
        Species("Tauros", ("Normal",), (75, 100, 95, 40, 70, 110)),
        Species("Pidgeot", ("Normal", "Flying"), (83, 80, 75, 70, 70, 101)),
    )
}

STRUGGLE = Move("Struggle", "", True, 50, 1)  # what is left when every move is used up; no type, and it hurts its user
MOVES = {
    m.id: m
    for m in (
        Move("Flamethrower", "Fire", False, 90, 15),
        Move("Fire Punch", "Fire", True, 75, 15),
        Move("Surf", "Water", False, 90, 15),
        Move("Waterfall", "Water", True, 80, 15),
        Move("Energy Ball", "Grass", False, 90, 10),
        Move("Seed Bomb", "Grass", True, 80, 15),
        Move("Thunderbolt", "Electric", False, 90, 15),
        Move("Thunder Punch", "Electric", True, 75, 15),
        Move("Ice Beam", "Ice", False, 90, 10),
        Move("Ice Punch", "Ice", True, 75, 15),
        Move("Earthquake", "Ground", True, 100, 10),
        Move("Earth Power", "Ground", False, 90, 10),
        Move("Drill Peck", "Flying", True, 80, 20),
        Move("Power Gem", "Rock", False, 80, 20),
        Move("Body Slam", "Normal", True, 85, 15),
        Move("Hyper Voice", "Normal", False, 90, 10),
    )
}


@cache
def effectiveness(attacking: str, defending: tuple[str, ...]) -> float:
    """How a type of attack meets the types of a defender: 0, ¼, ½, 1, 2 or 4.

    >>> effectiveness("Electric", ("Water",)), effectiveness("Electric", ("Rock", "Ground"))
    (2.0, 0.0)
    """
    factor = 1.0
    for type in defending:
        factor *= CHART[TYPES.index(attacking)][TYPES.index(type)] if attacking else 1
    return factor


@cache
def full_damage(attacker: str, move: str, defender: str) -> float:
    """Hit points a move takes at most; the luck of the battle takes off up to 15 %."""
    a, d, m = SPECIES[attacker], SPECIES[defender], MOVES.get(move, STRUGGLE)
    attack, defence = (a.stat(1), d.stat(2)) if m.physical else (a.stat(3), d.stat(4))
    base = (2 * LEVEL // 5 + 2) * m.power * attack // defence // 50 + 2
    same_type = 1.5 if m.type in a.types else 1.0
    return base * same_type * effectiveness(m.type, d.types)


@cache
def threat(attacker: str, defender: str) -> float:
    """The best a defender must expect of an attacker whose moves it does not know: an attack of its own type."""
    return max(effectiveness(type, SPECIES[defender].types) for type in SPECIES[attacker].types)


def draw_team(luck: random.Random) -> list[dict[str, Any]]:
    """Three different species with four different moves each, as the simulator's JSON wants a team."""
    return [
        {
            "name": name,
            "species": name,
            "ability": "No Ability",
            "item": "",
            "nature": "Serious",
            "level": LEVEL,
            "moves": luck.sample(sorted(MOVES), MOVES_EACH),
            "evs": dict.fromkeys(("hp", "atk", "def", "spa", "spd", "spe"), 0),
        }
        for name in luck.sample(sorted(SPECIES), TEAM_SIZE)
    ]
