"""An investigation as a file: hypotheses, sweeps, goals.

What lives here: TOML in, `Plan` out, or one sentence that names the file, the place and what to write instead. Invariant: a
plan that was read can be run; nothing in it is executed while it is read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from ..errors import UnreadableError, UsageError
from .command import Command, add_arguments, fill, parse_command, placeholders

BASELINE = "baseline"
MOST_VARIANTS = 200
MOST_BYTES = 1 << 20
CONFIDENCES = ("low", "medium", "high")
_SPEEDUP = re.compile(r"\s*(<)?\s*(\d+(?:\.\d+)?)\s*(?:x|×)?\s*(?:(?:-|–|to)\s*(\d+(?:\.\d+)?)\s*(?:x|×)?)?\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    command: Command
    environment: dict[str, str]
    patch: Path | None = None
    expected: tuple[float, float] | None = None  # speed-up, from and to
    confidence: str = ""
    note: str = ""
    is_option: bool = True  # False: measured to know a limit, nothing one would do


@dataclass(frozen=True, slots=True)
class Goals:
    minimum: float | None = None  # speed-up over the baseline
    stretch: float | None = None
    within: float | None = None  # times slower than expected that is still good
    expected_per_second: float | None = None  # units of work


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    folder: Path  # where the commands run
    baseline: Variant
    variants: tuple[Variant, ...]
    goals: Goals
    rounds: int
    margin: float
    unit: str | None
    seed: int


def read_plan(path: Path, quick: bool = False) -> Plan:
    """The plan in a TOML file."""
    try:
        data = path.read_bytes()[:MOST_BYTES]
        table = tomllib.loads(data.decode())
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read ({error.strerror or error}); give the plan's TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not valid TOML ({str(error)[:120]})") from None
    return _Reader(path, quick).read(table)


def parse_speedup(text: object) -> tuple[float, float] | None:
    """A gain as people write it: 3, "2x", "2-3x", "<1.1x".

    >>> parse_speedup("2-3x"), parse_speedup("<1.1x"), parse_speedup(5)
    ((2.0, 3.0), (1.0, 1.1), (5.0, 5.0))
    """
    if isinstance(text, bool) or not isinstance(text, int | float | str):
        return None
    found = _SPEEDUP.match(str(text))
    if not found:
        return None
    first = float(found[2])
    second = float(found[3]) if found[3] else first
    bounds = (1.0, first) if found[1] else (first, second)
    return bounds if 0 < bounds[0] <= bounds[1] else None


class _Reader:
    """Carries the file's name into every message."""

    def __init__(self, path: Path, quick: bool) -> None:
        self.path, self.quick = path, quick

    def fail(self, what: str) -> UsageError:
        return UsageError(f"{self.path}: {what}")

    def read(self, table: Mapping[str, Any]) -> Plan:
        self._check_keys(
            table, "name command directory environment rounds margin unit seed quick goals hypothesis sweep", "the plan"
        )
        quick = self._table(table, "quick") if self.quick else {}
        self._check_keys(quick, "rounds arguments", "[quick]")
        if "command" not in table:
            raise self.fail('there is no command; write e.g. command = "python train.py --seed {seed}"')
        command = self._command(table, "command", "the plan")
        shared = self._environment(table, "the plan")
        folder = (self.path.parent / self._text(table, "directory", ".", "the plan")).resolve()
        if not folder.is_dir():
            raise self.fail(f"directory {folder} does not exist; it is taken from the plan's folder")
        base = Variant(BASELINE, command, shared)
        variants = [
            self._variant(item, f"hypothesis {i}", command, shared) for i, item in enumerate(self._list(table, "hypothesis"), 1)
        ]
        for i, item in enumerate(self._list(table, "sweep"), 1):
            variants += self._sweep(item, f"sweep {i}", command, shared)
        if not variants:
            raise self.fail("there is nothing to test; add a [[hypothesis]] with a name and arguments")
        if len(variants) > MOST_VARIANTS:
            raise self.fail(f"{len(variants)} variants are more than {MOST_VARIANTS}; make the sweeps smaller")
        names = [v.name for v in variants]
        for name in names:
            if names.count(name) > 1 or name == BASELINE:
                raise self.fail(f"the name {name!r} is used twice; give every variant its own")
        extra = self._text(quick, "arguments", "", "[quick]")
        if extra:
            base, *variants = (replace(v, command=self._add(v.command, extra, "[quick]")) for v in (base, *variants))
        for v in (base, *variants):
            unknown = placeholders(v.command) - {"seed"}
            if unknown:
                raise self.fail(f"{v.name}: nothing is known for {{{min(unknown)}}}; only {{seed}} and a sweep's own names are")
        rounds = self._whole(quick if "rounds" in quick else table, "rounds", 5 if self.quick else 10)
        return Plan(
            name=self._text(table, "name", self.path.stem, "the plan"), folder=folder, baseline=base, variants=tuple(variants),
            goals=self._goals(table), rounds=rounds, margin=self._margin(table),
            unit=self._text(table, "unit", "", "the plan") or None, seed=self._whole(table, "seed", 1, least=0),
        )  # fmt: skip

    def _variant(self, item: Mapping[str, Any], where: str, command: Command, shared: dict[str, str]) -> Variant:
        self._check_keys(item, "name command arguments environment patch expected confidence note option", where)
        name = self._text(item, "name", "", where)
        if not name:
            raise self.fail(f'{where} has no name; write e.g. name = "batch push"')
        where = f"hypothesis {name!r}"
        command = self._command(item, "command", where) if "command" in item else command
        command = self._add(command, self._text(item, "arguments", "", where), where)
        patch = self._text(item, "patch", "", where)
        file = self.path.parent / patch if patch else None
        if file is not None and not file.is_file():
            raise self.fail(f"{where}: the patch {file} does not exist; it is taken from the plan's folder")
        if not {"command", "arguments", "environment", "patch"} & item.keys():
            raise self.fail(f"{where} changes nothing; give it arguments, environment, patch or command")
        return Variant(name, command, patch=file, **self._said(item, where, shared))

    def _sweep(self, item: Mapping[str, Any], where: str, command: Command, shared: dict[str, str]) -> list[Variant]:
        self._check_keys(item, "name grid arguments environment expected confidence note option", where)
        grid = self._table(item, "grid")
        if not grid or not all(
            isinstance(v, list) and v and all(isinstance(x, int | float | str) for x in v) for v in grid.values()
        ):
            raise self.fail(f"{where} needs a grid of lists, e.g. grid = {{ envs = [32, 64, 256] }}")
        arguments = self._text(item, "arguments", " ".join(f"--{key.replace('_', '-')} {{{key}}}" for key in grid), where)
        prefix = self._text(item, "name", "", where)
        out = []
        for values in product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            name = " ".join(filter(None, [prefix, *(f"{k}={v}" for k, v in chosen.items())]))
            filled = fill(self._add(command, arguments, where), chosen)
            out.append(Variant(name, filled, **self._said(item, where, shared)))
            if len(out) > MOST_VARIANTS:
                raise self.fail(f"{where} has more than {MOST_VARIANTS} points; make the grid smaller")
        return out

    def _said(self, item: Mapping[str, Any], where: str, shared: dict[str, str]) -> dict[str, Any]:
        """What a hypothesis and a sweep say alike."""
        option = item.get("option", True)
        if not isinstance(option, bool):
            raise self.fail(f"{where}: option is true or false")
        return {
            "environment": {**shared, **self._environment(item, where)},
            "expected": self._expected(item, where),
            "confidence": self._confidence(item, where),
            "note": self._text(item, "note", "", where),
            "is_option": option,
        }

    def _goals(self, table: Mapping[str, Any]) -> Goals:
        goals = self._table(table, "goals")
        keys = [field.name for field in fields(Goals)]
        self._check_keys(goals, " ".join(keys), "[goals]")
        numbers: dict[str, float | None] = {}
        for key in keys:
            value = parse_speedup(goals[key]) if key in goals else None
            if key in goals and (value is None or value[0] != value[1]):
                raise self.fail(f'[goals] {key} = {goals[key]!r} is no number; write e.g. "5x"')
            numbers[key] = value[0] if value else None
        if (numbers["within"] is None) != (numbers["expected_per_second"] is None):
            raise self.fail("[goals] within needs expected_per_second (units of work a second), and the other way round")
        return Goals(**numbers)

    # ---- single values ----

    def _check_keys(self, table: Mapping[str, Any], known: str, where: str) -> None:
        unknown = sorted(table.keys() - set(known.split()))
        if unknown:
            raise self.fail(f"{where} has an unknown key {unknown[0]!r}; known are {', '.join(known.split())}")

    def _table(self, table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = table.get(key, {})
        if not isinstance(value, dict):
            raise self.fail(f"{key} must be a table, written [{key}] or {key} = {{ … }}")
        return value

    def _list(self, table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.fail(f"{key} must be written [[{key}]]")
        return value

    def _text(self, table: Mapping[str, Any], key: str, default: str, where: str) -> str:
        value = table.get(key, default)
        if not isinstance(value, str):
            raise self.fail(f"{where}: {key} must be text in quotes, not {value!r}")
        return value

    def _whole(self, table: Mapping[str, Any], key: str, default: int, least: int = 1) -> int:
        value = table.get(key, default)
        if type(value) is not int or not least <= value <= 100_000:
            raise self.fail(f"{key} = {value!r} must be a whole number from {least} up")
        return value

    def _margin(self, table: Mapping[str, Any]) -> float:
        value = table.get("margin", "2%")
        try:
            share = float(str(value).rstrip("% ")) / (100 if str(value).strip().endswith("%") else 1)
        except ValueError:
            share = 0.0
        if not 0 < share < 1:
            raise self.fail(f'margin = {value!r} is no percentage; write e.g. margin = "2%"')
        return share

    def _expected(self, item: Mapping[str, Any], where: str) -> tuple[float, float] | None:
        if "expected" not in item:
            return None
        value = parse_speedup(item["expected"])
        if value is None:
            raise self.fail(f'{where}: expected = {item["expected"]!r} is no speed-up; write e.g. "2x" or "2-3x"')
        return value

    def _confidence(self, item: Mapping[str, Any], where: str) -> str:
        value = self._text(item, "confidence", "", where).lower()
        if value and value not in CONFIDENCES:
            raise self.fail(f"{where}: confidence = {value!r} is none of {', '.join(CONFIDENCES)}")
        return value

    def _environment(self, item: Mapping[str, Any], where: str) -> dict[str, str]:
        value = self._table(item, "environment")
        if not all(isinstance(v, str | int | float) for v in value.values()):
            raise self.fail(f"{where}: environment must hold texts or numbers")
        return {key: str(v) for key, v in value.items()}

    def _command(self, item: Mapping[str, Any], key: str, where: str) -> Command:
        try:
            return parse_command(self._text(item, key, "", where))
        except UsageError as error:
            raise self.fail(f"{where}: {error}") from None

    def _add(self, command: Command, arguments: str, where: str) -> Command:
        try:
            return add_arguments(command, arguments)
        except UsageError as error:
            raise self.fail(f"{where}: {error}") from None
