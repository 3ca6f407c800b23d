"""A shard's bytes as blocks, items, names and words. Standard library only.

What lives here: everything that turns an offset or a count in the file into bytes, and the bounds of what can be. Invariant:
no offset is believed that lies outside its block, no count that the file's length does not bear out, and what was not
believed is in `problems`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Any, NamedTuple

from ..errors import UnreadableError
from . import schema as s

U32 = 0xFFFFFFFF
MAX_NS = 1 << 58  # nine years: no clock since boot, and no run, gets there
MAX_BYTES = 1 << 50
# A file that is being written is not read in one instant, and when a recorder ends, another thread may be in the middle of
# a span: parts may differ by so much.
LIVE_NS, LIVE_SPANS = 10**9, 1 << 20
_MAX_NAME_BYTES = 1 << 20


class BlockView(NamedTuple):
    kind: int
    ordinal: int
    offset: int  # of its first item, in bytes
    item_words: int
    used: int  # items (bytes for strings and rows) that are published and present
    capacity: int  # items there is room for, in the file as it is
    fits: int  # the same by the size of the block alone


def walk(data: bytes | memoryview) -> tuple[list[BlockView], list[str]]:
    """The blocks of a shard in file order, and what was wrong."""
    blocks: list[BlockView] = []
    problems: list[str] = []
    size = len(data)
    at = 0
    while at + s.HEAD_WORDS * 8 <= size:
        magic, kind, sizes, capacity, used = struct.unpack_from("<5Q", data, at)
        if magic == 0:
            break  # reserved, not yet in use
        units, item_words = sizes & U32, sizes >> 32
        number, ordinal = kind & U32, kind >> 32
        if magic != s.BLOCK_MAGIC or not 1 <= number < len(s.KIND_NAMES) or units == 0:
            problems.append(f"no block where one should begin, at byte {at}")
            break
        room = min(units * s.BLOCK_BYTES, size - at) - s.HEAD_WORDS * 8
        if at + units * s.BLOCK_BYTES > size:
            problems.append(f"a block of {s.KIND_NAMES[number]} is cut off at byte {size}")
        expected = s.ITEM_WORDS[number]
        if item_words != expected:
            problems.append(f"a block of {s.KIND_NAMES[number]} has items of {item_words} words, not {expected}")
            item_words = expected
        fits = room // (item_words * 8) if item_words else room
        if used > min(fits, capacity):
            problems.append(f"a block of {s.KIND_NAMES[number]} claims more than it holds")
        view = BlockView(number, ordinal, at + s.HEAD_WORDS * 8, item_words, min(used, fits), min(capacity, fits), fits)
        blocks.append(view)
        at += units * s.BLOCK_BYTES
    else:
        if any(data[at:size]):
            problems.append(f"the beginning of a block is cut off at byte {size}")
    return blocks, problems


class Lifetime(NamedTuple):
    """The time a shard speaks of."""

    start_ns: int
    end_ns: int
    ended: bool  # by the recorder; else the end is the latest instant seen

    @property
    def most_ns(self) -> int:
        """No duration is longer."""
        return self.end_ns - self.start_ns + LIVE_NS

    def holds(self, at_ns: int) -> bool:
        return self.start_ns <= at_ns <= self.end_ns + LIVE_NS


class Blocks:
    """A shard's bytes, and what was found wrong with them so far."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.blocks, self.problems = walk(data)
        if not self.blocks or self.blocks[0].kind != s.HEADER or len(data) < s.BLOCK_BYTES:
            raise UnreadableError("not a HotLoop shard (no header); the process may have died before its first span")
        self.head: tuple[int, ...] = struct.unpack_from(f"<{s.BLOCK_WORDS}Q", data, 0)
        version = self.head[s.H_VERSION]
        if version == 0:
            raise UnreadableError("the shard was never started; the process died before its first span")
        if version > s.VERSION:
            raise UnreadableError(f"shard format {version} is newer than this HotLoop reads ({s.VERSION}); upgrade hotloop")
        self._texts = sorted((b.offset, b.offset + b.fits) for b in self.blocks if b.kind == s.STRINGS)
        self._names: dict[tuple[int, int], str | None] = {}
        self._name_bytes_left = len(data)  # names do not overlap: together they are no longer than the file

    def left_out(self, count: int, what: str) -> None:
        """Say that so many of something were not believed, if there were any."""
        if count:
            self.problems.append(f"{count} {what}")

    def of(self, kind: int) -> list[BlockView]:
        """The blocks whose items carry on one another's numbers; behind a gap nobody knows an item's number."""
        found = sorted((b for b in self.blocks if b.kind == kind), key=lambda b: b.ordinal)
        for i, block in enumerate(found):
            # One may be empty (its first item found no room elsewhere for what it needs), but none half full.
            if block.ordinal != i or (i and 0 < found[i - 1].used < found[i - 1].fits):
                left = sum(b.used for b in found[i:])
                self.problems.append(f"a block of {s.KIND_NAMES[kind]} is missing or not full: {left} after it are left out")
                return found[:i]
        return found

    def items(self, kind: int) -> list[tuple[Any, ...]]:
        """The items with their fields as the schema has them: halves of words by themselves."""
        one = struct.Struct("<" + s.format_of(s.RECORDS[s.ITEMS[kind]]))
        parts = (self.data[block.offset : block.offset + block.used * one.size] for block in self.of(kind))
        return [item for part in parts for item in one.iter_unpack(part)]

    def name(self, offset: int, size: int) -> str:
        """The text at an offset; that of a megabyte is cut."""
        if not offset or not size:
            return ""
        key = (offset, size)
        if key not in self._names:
            self._names[key] = self._read_name(offset, min(size, _MAX_NAME_BYTES))
        name = self._names[key]
        return name if name is not None else "(unreadable name)"

    def _read_name(self, offset: int, size: int) -> str | None:
        i = bisect_right(self._texts, (offset, len(self.data))) - 1
        self._name_bytes_left -= size
        if i < 0 or offset + size > self._texts[i][1] or self._name_bytes_left < 0:
            return None
        data = self.data[offset : offset + size]
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return data.decode("utf-8", "replace")

    @property
    def unreadable_names(self) -> int:
        return sum(name is None for name in self._names.values())

    def word(self, index: int, most: int, what: str) -> int:
        """A word of the header, 0 if it is more than it can be."""
        value = self.head[index]
        if value > most:
            self.problems.append(f"the {what} is impossible ({value}) and left out")
        return value if value <= most else 0

    def instant(self, index: int, lifetime: Lifetime, what: str) -> int:
        value = self.head[index]
        if value and not lifetime.holds(value):
            self.problems.append(f"the {what} lies outside the recording and is left out")
            return 0
        return min(value, lifetime.end_ns)
