"""Seeded damage to a session: the same seed and session always give the same bytes.

What lives here: pure functions from a session's files, as bytes, to damaged ones. Half of the damage is blind (flipped bits,
moved bytes), half knows the format (`Layout` finds its words) and lies where a reader is tempted to believe.

Invariant: nothing here opens a file; what a mutation did is told in a few words.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from random import Random
from typing import Any

from hotloop.model import shard as m
from hotloop.store import schema as s
from hotloop.store.blocks import BlockView, walk
from hotloop.store.system import NUMBERS, SYSTEM_FILE

Files = dict[str, bytes]  # by path below the session's directory

WORD, WORD3 = struct.Struct("<Q"), struct.Struct("<3Q")
PRINTABLE = bytes(33 + i % 94 for i in range(256))
U32, U64 = (1 << 32) - 1, (1 << 64) - 1
INTERESTING = (0, 1, 2, 1 << 31, U32, 1 << 32, 1 << 58, (1 << 62) - 1, 1 << 63, (1 << 63) - 1, U64)
DOUBLES = tuple(WORD.unpack(struct.pack("<d", x))[0] for x in (float("nan"), float("inf"), -1.0, 1e308, 5e-324))


def get(data: bytes | bytearray, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def put(data: bytearray, at: int, value: int) -> None:
    if 0 <= at <= len(data) - 8:
        WORD.pack_into(data, at, value & U64)


class Layout:
    """Where the words of a shard lie, by what they are: byte offsets."""

    def __init__(self, data: bytes | bytearray) -> None:
        self.blocks: list[BlockView] = walk(bytes(data))[0]
        self.groups: dict[str, list[int]] = {
            "heads": [b.offset - s.HEAD_WORDS * 8 + 8 * i for b in self.blocks for i in range(5)],
            "header": [8 * i for i in range(s.H_VERSION, s.H_LIFTED + 1)],
            "losses": [8 * i for i in range(s.H_LOSSES, s.H_LOSSES + 20)],
            "counters": [8 * i for i in range(s.H_COUNTERS, s.H_COUNTERS + 8 * s.COUNTER_WORDS)],
            "suspended": [8 * i for i in range(s.H_SUSPENDED, s.H_SUSPENDED + 8)],
            "snapshots": [8 * i for i in range(s.H_SNAPSHOT_COUNT, s.H_SNAPSHOT_COUNT + 10)],
            "rows": [b.offset + 8 * i for b in self.blocks if b.kind == s.ITERATIONS for i in range(48)],
        }
        words = {
            "labels": (s.LABELS, range(s.LABEL_WORDS)),
            "paths": (s.PATHS, range(3)),
            "nodes": (s.NODES, range(s.N_HIST + 24)),
            "journal": (s.TRACKS, range(s.T_STATE + 1)),
            "tracks": (s.TRACKS, range(s.T_STATE, s.T_BASE + 1)),
            "frames": (s.TRACKS, range(s.T_FRAMES, s.T_FRAMES + 8)),
            "events": (s.EVENTS, range(s.EVENT_WORDS)),
            "ring": (s.RING, range(s.EVENT_WORDS)),
        }
        for name, (kind, chosen) in words.items():
            self.groups[name] = [at + 8 * i for at in self.items(kind) for i in chosen]
        self.groups = {name: places for name, places in self.groups.items() if places}

    def of(self, kind: int) -> list[BlockView]:
        return [b for b in self.blocks if b.kind == kind]

    def items(self, kind: int) -> list[int]:
        """The offsets of a kind's published items."""
        return [b.offset + 8 * b.item_words * i for b in self.of(kind) for i in range(min(b.used or 16, b.fits, 512))]


def _value(rng: Random, data: bytearray, old: int) -> int:
    return rng.choice(
        (
            rng.choice(INTERESTING), rng.choice(INTERESTING), rng.choice(DOUBLES), old ^ 1 << rng.randrange(64),
            old + 1, old - 1, rng.getrandbits(rng.randrange(1, 65)), len(data), get(data, rng.randrange(len(data) // 8) * 8),
            old & U32 | rng.choice(INTERESTING) << 32, old >> 32 << 32 | rng.choice(INTERESTING) & U32,
        )
    )  # fmt: skip


# ---- a shard: bytes in, bytes out ----


def flip_bits(rng: Random, data: bytearray) -> None:
    for _ in range(1 << rng.randrange(8)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def flip_bits_of_what_is_used(rng: Random, data: bytearray) -> None:
    """Most of a small shard is zeros: aim at the rest."""
    filled = [i for i in range(0, len(data) - 63, 64) if data.find(b"\0" * 64, i, i + 64) != i]
    for _ in range(1 << rng.randrange(6)):
        data[rng.choice(filled) + rng.randrange(64)] ^= 1 << rng.randrange(8)


def splice_bytes(rng: Random, data: bytearray) -> None:
    at, size = rng.randrange(len(data)), rng.choice((1, 7, 8, 64, 4096, 65536))
    source = rng.randrange(len(data))
    piece = rng.choice((b"", data[source : source + size], rng.randbytes(size), bytes(size), b"\xff" * size))
    data[at : at + rng.choice((0, len(piece), size))] = piece


def swap_blocks(rng: Random, data: bytearray) -> None:
    count = len(data) // s.BLOCK_BYTES
    a, b = rng.randrange(count) * s.BLOCK_BYTES, rng.randrange(count) * s.BLOCK_BYTES
    data[a : a + s.BLOCK_BYTES], data[b : b + s.BLOCK_BYTES] = data[b : b + s.BLOCK_BYTES], data[a : a + s.BLOCK_BYTES]


def duplicate_block(rng: Random, data: bytearray) -> None:
    count = len(data) // s.BLOCK_BYTES
    at, to = rng.randrange(count) * s.BLOCK_BYTES, rng.randrange(1, count + 1) * s.BLOCK_BYTES
    data[to : to + rng.choice((0, s.BLOCK_BYTES))] = data[at : at + s.BLOCK_BYTES]


def drop_block(rng: Random, data: bytearray) -> None:
    at = rng.randrange(len(data) // s.BLOCK_BYTES) * s.BLOCK_BYTES
    data[at : at + s.BLOCK_BYTES] = rng.choice((b"", bytes(s.BLOCK_BYTES)))


def truncate(rng: Random, data: bytearray) -> None:
    edge = rng.randrange(len(data) // s.BLOCK_BYTES + 1) * s.BLOCK_BYTES
    del data[max(0, rng.choice((rng.randrange(len(data)), edge + rng.randrange(-9, 10), edge + rng.randrange(4096)))) :]


def replace_words(rng: Random, data: bytearray) -> None:
    """A few words of the structure say something else."""
    groups = Layout(data).groups
    names = list(groups) if rng.random() < 0.7 else [rng.choice(list(groups))]
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8, 40))):
        at = rng.choice(groups[rng.choice(names)])
        if at <= len(data) - 8:
            put(data, at, _value(rng, data, get(data, at)))


def leave_a_journal(rng: Random, data: bytearray) -> None:
    """A process killed while it closed a span, with a journal that is right, nearly right or wrong."""
    layout = Layout(data)
    nodes = len(layout.items(s.NODES))
    for at in layout.items(s.TRACKS):
        put(data, at + 8 * s.T_STATE, get(data, at + 8 * s.T_STATE) | rng.choice((1, 3, 0)))
        for i in range(7):
            if rng.random() < 0.5:
                put(data, at + 8 * i, rng.choice((rng.randrange(nodes + 1), _value(rng, data, get(data, at + 8 * i)))))
    put(data, 8 * s.H_END_NS, rng.choice((0, get(data, 8 * s.H_END_NS))))


def chain_paths(rng: Random, data: bytearray) -> None:
    """As many paths as the block holds, each below the one before; nodes far down."""
    layout = Layout(data)
    labels = len(layout.items(s.LABELS)) or 1
    for block in layout.of(s.PATHS):
        for i in range(1, block.capacity):
            put(data, block.offset + 32 * i, i - 1 | rng.randrange(labels) << 32)
        put(data, block.offset - 64 + 8 * s.HEAD_USED, block.capacity)
        for at in layout.items(s.NODES):
            put(data, at, get(data, at) & U32 | rng.randrange(block.capacity) << 32)


def fill_tracks(rng: Random, data: bytearray) -> None:
    """As many tracks as the block holds, each with every frame open."""
    layout = Layout(data)
    nodes = len(layout.items(s.NODES)) or 1
    now = get(data, 8 * s.H_START_NS)
    for block in layout.of(s.TRACKS):
        for i in range(block.capacity):
            at = block.offset + 8 * s.TRACK_WORDS * i
            put(data, at + 8 * s.T_STATE, rng.getrandbits(16) << 24 | rng.choice((s.TRACK_FRAMES, (1 << 23) - 1)) << 1)
            for k in range(s.TRACK_FRAMES):
                put(data, at + 8 * (s.T_FRAMES + 2 * k), rng.randrange(nodes))
                put(data, at + 8 * (s.T_FRAMES + 2 * k) + 8, now + rng.randrange(1000))
        put(data, block.offset - 64 + 8 * s.HEAD_USED, block.capacity)
    put(data, 8 * s.H_END_NS, 0)


def name_megabytes(rng: Random, data: bytearray) -> None:
    """As many labels as the block holds, each with a name as long as the file."""
    for block in Layout(data).of(s.LABELS):
        for i in range(block.capacity):
            put(data, block.offset + 64 * i, rng.randrange(4096))
            put(data, block.offset + 64 * i + 8, len(data) - 8192 - i)
            put(data, block.offset + 64 * i + 40, rng.choice((0, 1, 3)))
            put(data, block.offset + 64 * i + 48, rng.randrange(4096))
            put(data, block.offset + 64 * i + 56, len(data) - 8192 - i)
        put(data, block.offset - 64 + 8 * s.HEAD_USED, block.capacity)


def share_a_long_name(rng: Random, data: bytearray) -> None:
    """A name as long as its block, and as many paths and nodes with it as there is room for."""
    layout = Layout(data)
    chain_paths(rng, data)
    texts = rng.choice(layout.of(s.STRINGS) or layout.blocks)
    text = rng.choice((b"x", b"\x1b", "\u202e".encode(), b'<&"')) * texts.fits
    data[texts.offset : texts.offset + texts.fits] = text[: texts.fits]
    for at in layout.items(s.LABELS):
        put(data, at + 8 * s.L_OFFSET, texts.offset)
        put(data, at + 8 * s.L_BYTES, texts.fits)
        put(data, at + 8 * s.L_SITE, texts.offset)
        put(data, at + 8 * s.L_SITE_BYTES, texts.fits)
    for block in layout.of(s.NODES):
        first = bytes(data[block.offset : block.offset + 8 * s.NODE_WORDS])
        for i in range(block.fits):
            at = block.offset + len(first) * i
            data[at : at + len(first)] = first
            put(data, at, rng.randrange(512) << 32)
        put(data, block.offset - 64 + 8 * s.HEAD_USED, block.fits)


def crowd(rng: Random, data: bytearray) -> None:
    """Everything as full as its block allows, and of use: labels of their own names, nested paths, nodes, rows."""
    layout = Layout(data)
    texts = rng.choice(layout.of(s.STRINGS) or layout.blocks)
    data[texts.offset : texts.offset + texts.fits] = rng.randbytes(texts.fits).translate(PRINTABLE)
    labels = next((b.fits for b in layout.of(s.LABELS)), 1)
    paths = next((b.fits for b in layout.of(s.PATHS)), 1)
    nested = rng.random()
    for kind, count in ((s.LABELS, labels), (s.PATHS, paths), (s.NODES, 0)):
        for block in layout.of(kind):
            put(data, block.offset - 64 + 8 * s.HEAD_USED, block.fits)
            size = 8 * block.item_words
            sample = bytes(data[block.offset + size : block.offset + 2 * size])
            for i in range(1, block.fits):
                at = block.offset + size * i
                if kind == s.LABELS and i > 8:
                    data[at : at + 24] = WORD3.pack(texts.offset + 12 * i, rng.randrange(4, 12), m.USER)
                elif kind == s.PATHS:
                    put(
                        data, at, (i - 1 if rng.random() < nested else rng.randrange(i)) | rng.randrange(count and labels) << 32
                    )
                elif kind == s.NODES:
                    data[at : at + size] = sample
                    put(data, at, rng.randrange(paths) << 32)
    for block in layout.of(s.ITERATIONS):
        entries = block.fits // 16 - 2
        head = struct.pack("<4Q", 1 << 32, get(data, 8 * s.H_START_NS), get(data, 8 * s.H_START_NS) + 10**6, entries)
        row = head + b"".join(struct.pack("<QQ", i % paths | 1 << 32, 1) for i in range(entries))
        data[block.offset : block.offset + len(row)] = row
        put(data, 8 * s.H_ITER_STATE, block.ordinal << 32 | len(row) // 8)


def claim_kinds(rng: Random, data: bytearray) -> None:
    """Blocks that say they are of another kind, size or place."""
    for block in rng.sample(Layout(data).blocks, 2):
        at = block.offset - 64
        put(data, at + 8 * s.HEAD_KIND, rng.randrange(1, 10) | rng.choice((0, 0, 1, 2, U32)) << 32)
        put(data, at + 8 * s.HEAD_SIZE, rng.choice((1, 1, 2, 11, U32)) | rng.choice((0, 4, 8, 96, 512, U32)) << 32)
        put(data, at + 8 * s.HEAD_CAPACITY, rng.choice((U64, 1, get(data, at + 8 * s.HEAD_CAPACITY))))
        put(data, at + 8 * s.HEAD_USED, rng.choice((U64, 1 << 63, 4096, 1)))


def make_noise(rng: Random, data: bytearray) -> None:
    data[:] = rng.choice((b"", b"HLBLOCK\x01", rng.randbytes(rng.randrange(1, 200_000)), bytes(200_000), data[:64] * 4000))


SHARD_MUTATIONS: tuple[Callable[[Random, bytearray], None], ...] = (
    flip_bits, flip_bits_of_what_is_used, flip_bits_of_what_is_used, splice_bytes, swap_blocks, duplicate_block, drop_block,
    truncate, replace_words, replace_words, replace_words, replace_words, replace_words, leave_a_journal, leave_a_journal,
    chain_paths, fill_tracks, name_megabytes, share_a_long_name, crowd, claim_kinds, make_noise,
)  # fmt: skip


# ---- session.json: text in, text out ----

HOSTILE_JSON = (
    "NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000, "-" + "9" * 5000, "1e-999", "0", "-1", "1.5", "true", "null",
    '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"../../x"', '"/etc/passwd"', '"\\u202e\\u001b[31m<script>"', '""',
    "[" * 100_000, "[" * 400 + "]" * 400, '{"a":' * 400 + "1" + "}" * 400, "[]", "{}", '{"a": 1, "a": 2}', "[[], {}, null]",
    json.dumps("x" * 100_000), str(1 << 64), str(-(1 << 63)), "", "\x00", "'", "0x10", "[1,]", "\ufeff1",
)  # fmt: skip


def mutate_json(rng: Random, text: bytes) -> bytes:
    """Another value for a key at any depth, keys twice, or damage to the text itself."""
    how = rng.randrange(6)
    if how < 3:
        return _replace_value(rng, json.loads(text)).encode("utf-8", "surrogatepass")
    if how == 3:
        keys = list(json.loads(text))
        twice = ", ".join(f"{json.dumps(k)}: {rng.choice(HOSTILE_JSON[4:13])}" for k in rng.sample(keys, 3))
        return text.rstrip()[:-1] + b", " + twice.encode() + b"}"
    if how == 4:
        data = bytearray(text)
        for _ in range(rng.randrange(1, 9)):
            data[rng.randrange(len(data))] = rng.choice(b'{}[]",:\\e9-\x00\xff\xed\xc0')
        return bytes(data[: rng.choice((len(data), rng.randrange(len(data))))])
    return rng.choice(
        (
            b"", b"[]", b"null", b"1", b"[" * 1_000_000, rng.randbytes(1000), b"\xef\xbb\xbf" + text,
            text.decode().encode("utf-16"), text.decode().encode("utf-32"), b'"' + b"\xed\xa0\x80" + b'"',
            b"[" + b"[]," * 300_000 + b"[]]", b" " * (17 << 20), text * 2,
        )
    )  # fmt: skip


def _replace_value(rng: Random, data: dict[str, Any]) -> str:
    mark, place = "@@@", data
    key = rng.choice(list(place))
    while isinstance(place[key], dict) and place[key] and rng.random() < 0.7:
        place = place[key]
        key = rng.choice(list(place))
    place[key] = mark
    if rng.random() < 0.1:
        place[key], place[rng.choice(HOSTILE_JSON)[:1000]] = 1, mark
    return json.dumps(data).replace(f'"{mark}"', rng.choice(HOSTILE_JSON))


# ---- a session ----

ODD_NAMES = ("copy", "1-1", "..", "-", "\udcff", "a\nb", "\x1b[31m")


def tangle_origins(rng: Random, files: Files, shards: list[str]) -> None:
    """Work handed over in circles: paths that come from any path of any process, or from nowhere."""
    ids = [get(files[name], 8 * s.H_SHARD_ID) for name in shards if len(files[name]) >= s.BLOCK_BYTES] or [1]
    for name in shards:
        data = bytearray(files[name])
        paths = Layout(data).items(s.PATHS)
        for at in paths:
            if rng.random() < 0.5:
                put(data, at + 8 * s.P_ORIGIN_SHARD, rng.choice((*ids, *ids, 1)))
                put(data, at + 8 * s.P_ORIGIN_PATH, rng.choice((rng.randrange(len(paths)), rng.choice(INTERESTING))))
        files[name] = bytes(data)


def copy_shard(rng: Random, files: Files, shards: list[str]) -> None:
    """The same process again, or another that is very like it, under an odd name."""
    data = bytearray(files[rng.choice(shards)])
    for index in rng.sample((s.H_PID, s.H_SHARD_ID, s.H_PROC_START, s.H_EPOCH, s.H_START_NS), rng.randrange(4)):
        if len(data) > 8 * index:
            put(data, 8 * index, rng.choice((0, 1, get(data, 8 * index) + 1)))
    files[f"{s.SHARD_DIR}/{rng.choice(ODD_NAMES)}{s.SHARD_SUFFIX}"] = bytes(data)


def lose_file(rng: Random, files: Files, shards: list[str]) -> None:
    del files[rng.choice((s.SESSION_FILE, rng.choice(shards)))]


def add_samples(rng: Random, files: Files, shards: list[str]) -> None:
    """What the sidecar might have seen of the machine, one value of each line replaced."""
    lines = []
    for _ in range(rng.choice((1, 50, 9000))):
        row = dict.fromkeys(NUMBERS, 1.5)
        row[rng.choice(NUMBERS)] = "@@@"  # type: ignore[assignment]
        lines.append(json.dumps(row).replace('"@@@"', rng.choice(HOSTILE_JSON)[:5000]))
    files[SYSTEM_FILE] = "\n".join(lines).encode("utf-8", "surrogatepass")


SESSION_MUTATIONS = (tangle_origins, tangle_origins, copy_shard, copy_shard, lose_file, add_samples)


def mutate(files: Files, seed: int) -> tuple[Files, str]:
    """The files of a session, damaged; and how."""
    rng = Random(seed)
    out = dict(files)
    shards = sorted(name for name in files if name.endswith(s.SHARD_SUFFIX))
    told = []
    if rng.random() < 0.15:
        out[s.SESSION_FILE] = mutate_json(rng, files[s.SESSION_FILE])
        told.append("session.json")
    for _ in range(rng.choice((0, 1, 1, 2)) if told else rng.choice((1, 1, 1, 2, 3))):
        name, change = rng.choice(shards), rng.choice(SHARD_MUTATIONS)
        data = bytearray(out[name])
        if len(data) >= 2 * s.BLOCK_BYTES and len(Layout(data).blocks) >= 2:
            try:
                change(rng, data)
            except (IndexError, ValueError, struct.error):
                pass  # earlier damage has left nothing of the kind that this one is made for
            out[name] = bytes(data)
            told.append(change.__name__)
    if rng.random() < 0.05:
        alter = rng.choice(SESSION_MUTATIONS)
        alter(rng, out, shards)
        told.append(alter.__name__)
    return out, " + ".join(told)
