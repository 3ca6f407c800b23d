"""Writes layout.h from the description of the format. `python src/hotloop/record/native/make_layout.py`"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from types import ModuleType

from hotloop.model import phase, role
from hotloop.model import shard as m
from hotloop.store import schema as s

FILE = Path(__file__).with_name("layout.h")
TYPES = {"Q": "uint64_t", "II": "uint32_t", "I": "uint32_t", "d": "double"}
WORDS = ("H_", "HEAD_", "L_", "P_", "N_", "T_")  # prefixes of words, which are fields of structs here
HEAD = """\
/* Written by `python src/hotloop/record/native/make_layout.py` from store/schema.py, where it is explained. Do not edit. */
#ifndef HL_LAYOUT_H
#define HL_LAYOUT_H
#include <stdint.h>
"""


def struct(name: str, fields: str) -> str:
    def declare(field: str) -> tuple[str, str]:
        names, kind, times = s.parse(field)
        return TYPES.get(kind, kind), names.replace("|", ", ") + (f"[{times}]" if "*" in field else "")

    runs = groupby(map(declare, fields.split()), lambda pair: pair[0])
    body = " ".join(f"{kind} {', '.join(names for _, names in run)};" for kind, run in runs)
    return f"typedef struct {{ {body} }} {name};"


def enum(prefix: str, codes: dict[str, int]) -> str:
    return f"enum {{ {', '.join(f'{prefix}{name.upper()} = {code}' for name, code in codes.items())} }};"


def array(what: str, values: Iterable[str]) -> str:
    return f"static const {what}[] = {{{', '.join(values)}}};"


def numbered(names: tuple[str, ...], *more: str) -> dict[str, int]:
    return {name: i for i, name in enumerate((*names, *more))}


def codes(module: ModuleType) -> dict[str, int]:
    return {n: v for n, v in vars(module).items() if n.isupper() and type(v) is int and not n.startswith(("_", *WORDS))}


def wrap(line: str) -> str:
    """Broken behind commas and the like only."""
    kept = re.sub("(?<![,;&]) ", "\0", line)
    return textwrap.fill(kept, 128, subsequent_indent="    ", break_long_words=False).replace("\0", " ")


def text() -> str:
    ours = codes(s)
    sizes = " && ".join(f"sizeof({name}) == {8 * s.words_of(fields)}" for name, fields in s.RECORDS.items())
    roles = codes(role)
    lines = [
        enum("", {name: value for name, value in ours.items() if value < 1 << 31} | {"KINDS": len(s.KIND_NAMES)}),
        *(f"#define {name} {value:#x}u{'ll' * (value >= 1 << 32)}" for name, value in ours.items() if value >= 1 << 31),
        enum("KIND_", numbered(m.KIND_NAMES)),
        enum("LOSS_", numbered(s.LOSSES, "KINDS")),
        enum("COUNTER_", numbered(s.COUNTERS)),
        enum("STATE_", {name: getattr(m, name) for name in ("UNKNOWN", "RUNNING", "BLOCKED", "WANTS_GIL")}),
        enum("CALL_", {name: getattr(m, name) for name in ("SHORT", "LASTING")}),
        enum("PHASE_", codes(phase)),
        enum("ROLE_", {name: code for name, code in roles.items() if "_" not in name}),
        enum("", {name: code for name, code in roles.items() if "_" in name}),
        enum("Z_", numbered(tuple(s.RESERVED), "RESERVED")),
        array("char *const COUNTERS", (f'"{name}"' for name in s.COUNTERS)),
        array(
            "struct { const char *name; uint32_t kind; } RESERVED", (f'{{"{x}", {kind}}}' for x, kind in s.RESERVED.values())
        ),
        array("uint32_t ITEM_WORDS", (str(s.ITEM_WORDS.get(kind, 0)) for kind in range(len(s.KIND_NAMES)))),
        *(struct(name, fields) for name, fields in s.RECORDS.items()),
        f'_Static_assert({sizes}, "no gaps");',
    ]
    return HEAD + "\n".join(map(wrap, lines)) + "\n#endif\n"


if __name__ == "__main__":
    FILE.write_text(text())
