"""Golden sessions: of every cause a recorded slow program and its fixed twin, small enough to keep, and what is found in them.

    python tests/golden.py                        what is found now, against tests/data/golden/matrix.json
    python tests/golden.py --record [CAUSE ...]   run the programs again (all, or those of these causes), one at a time
    python tests/golden.py --accept               write what is found now as what is to be found

A program is `tests/diagnosis/cases/CAUSE__*.py`, or `tests/data/golden/programs/CAUSE.py` where there is no such case; with
FIXED=1 it is its fixed twin. `--record` runs it under `hotloop run` as train.py, in a folder of its own, and keeps what the
rules read: no events, no reports, no paths of this machine. It needs what the cases need (tests/diagnosis/README.md), takes
10 to 30 s a session, and wants a machine that does nothing else. The two sessions of a cause are one archive. The causes that
need a GPU are recorded with a made-up one (programs/made_up_device.py). `--raw DIR` keeps the whole sessions there, and takes
those that are there already.

tests/unit/test_golden.py compares the whole matrix. After a change of a rule: `--accept`, and read the diff.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import hotloop
from hotloop.analyse.diagnosis import diagnose
from hotloop.analyse.findings.engine import causes
from hotloop.model.finding import Finding
from hotloop.store import schema as s
from hotloop.store.blocks import U32, Blocks, BlockView
from hotloop.store.reader import read_session

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "data" / "golden"
PROGRAMS = GOLDEN / "programs"
MATRIX = GOLDEN / "matrix.json"
MADE_UP = "made_up_device.py"
CAUSES = tuple(causes())
VARIANTS = ("slow", "fixed")
KEPT = ("sources.json", "system.jsonl", "torch_ops.json", "probes.json", "machine.json")
MOST_BYTES = 200_000  # of the two sessions of a cause, packed
# Of causes with several cases, the one that is recorded.
CHOSEN = {
    "cost-growth": "archive", "env-straggler": "tanks", "eval-heavy": "gridlock", "replay-sample-slow": "window",
    "vec-env-overhead": "pipes", "warm-up": "atlas",
}  # fmt: skip
NEAR = 0.03  # a predicted gain may move by so much, relative to it, before it is a change
MACHINE = re.compile(rb"/(?:tmp|root|work|opt|usr/local|home/(?!user\b)[^/]*)/")  # strings of a shard have nothing between them

Pack = dict[str, bytes]  # the files of a session


# ---- what is found ----


def pack_path(cause: str) -> Path:
    return GOLDEN / f"{cause}.tar.xz"


def open_packs(path: Path) -> dict[str, Pack]:
    """The sessions of a cause, by variant."""
    packs: dict[str, Pack] = {}
    with tarfile.open(path, "r:xz") as archive:
        for member in archive.getmembers():
            variant, _, name = member.name.partition("/")
            packs.setdefault(variant, {})[name] = archive.extractfile(member).read()  # type: ignore[union-attr]
    return packs


def unpack(pack: Pack, folder: Path) -> Path:
    for name, data in pack.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def find(session: Path) -> tuple[Finding, ...]:
    return diagnose(read_session(session)).findings


def find_packed(pack: Pack) -> tuple[Finding, ...]:
    with tempfile.TemporaryDirectory() as folder:
        return find(unpack(pack, Path(folder)))


def describe(cause: str, variant: str, findings: Iterable[Finding]) -> dict[str, Any]:
    """A line of the matrix: causes in order with the interval their predicted gain is in, and the place of the first."""
    found = list(findings)
    row: dict[str, Any] = {"session": f"{cause}/{variant}"}
    if is_made_up(cause):
        row["device"] = "made up"
    row["found"] = [[f.cause, round(f.gain.mid * (1 - NEAR), 2), round(f.gain.mid * (1 + NEAR), 2)] for f in found]
    row["file"], row["function"] = (found[0].file, found[0].function) if found else ("", "")
    return row


def agrees(row: dict[str, Any], findings: Iterable[Finding]) -> bool:
    """Is this what the matrix says?"""
    found = list(findings)
    place = (found[0].file, found[0].function) if found else ("", "")
    return (
        [f.cause for f in found] == [cause for cause, _, _ in row["found"]]
        and place == (row["file"], row["function"])
        and all(low <= round(f.gain.mid, 2) <= high for f, (_, low, high) in zip(found, row["found"], strict=True))
    )


def read_matrix() -> dict[str, dict[str, Any]]:
    return {row["session"]: row for row in json.loads(MATRIX.read_text())} if MATRIX.exists() else {}


def write_matrix(rows: dict[str, dict[str, Any]]) -> None:
    """One line per session, so that a change of a rule is a diff of lines."""
    lines = (json.dumps(rows[name], ensure_ascii=False) for name in sorted(rows))
    MATRIX.write_text("[\n" + ",\n".join(lines) + "\n]\n")


# ---- recording ----


def program_of(cause: str) -> Path:
    own = PROGRAMS / f"{cause}.py"
    cases = sorted((HERE / "diagnosis" / "cases").glob(f"{cause}__{CHOSEN.get(cause, '*')}.py"))
    return own if own.exists() else cases[0]


def is_made_up(cause: str) -> bool:
    return program_of(cause).parent == PROGRAMS and "import made_up_device" in program_of(cause).read_text()


def record(cause: str, variant: str, folder: Path) -> Path:
    """Run the program; answers its session."""
    session = folder / "session"
    if (session / s.SESSION_FILE).exists():
        return session
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(program_of(cause), folder / "train.py")
    if is_made_up(cause):
        shutil.copy(PROGRAMS / MADE_UP, folder)
    environment = {name: value for name, value in os.environ.items() if name != "FIXED" and not name.startswith("HOTLOOP")}
    environment |= {"FIXED": "1"} if variant == "fixed" else {}
    command = [sys.executable, "-m", "hotloop", "run", "--quiet", "--out", "session", "train.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(f"{cause}, {variant}: ended with {done.returncode}\n{done.stderr[-2000:]}")
    return session


def renamer(session: Path) -> Callable[[str], str]:
    """Names of this machine's folders, as they might be on anybody's."""
    meta = json.loads((session / s.SESSION_FILE).read_text())
    library, script = "/venv/lib/python3.11", "/home/user"
    standard, packages = sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"]
    pairs = {
        os.path.join(meta["cwd"], MADE_UP): f"{library}/site-packages/{MADE_UP}",  # it stands for a library
        meta["cwd"]: script,
        str(Path(hotloop.__file__).parent): f"{library}/site-packages/hotloop",
        packages: f"{library}/site-packages",
        str(Path(packages).parent): library,
        standard: "/usr/lib/python3.11",
        sys.executable: "/venv/bin/python",
        tempfile.gettempdir(): "/scratch",
    }
    order = sorted(pairs, key=len, reverse=True)

    def rename(text: str) -> str:
        for old in order:
            text = text.replace(old, pairs[old])
        return text

    return rename


def trim(session: Path) -> Pack:
    """What the rules read of a session, with neutral paths."""
    rename = renamer(session)
    meta = json.loads((session / s.SESSION_FILE).read_text())
    meta["host"] = {
        key: meta["host"][key] for key in ("system", "machine", "cores", "usable_cores", "python", "implementation")
    }
    meta["git"] = None
    pack = {s.SESSION_FILE: json.dumps(meta, indent=1)}
    for path in sorted(session.rglob("*")):
        name = path.relative_to(session).as_posix()
        if name in KEPT or name.startswith("device/"):
            pack[name] = path.read_text()
    if "sources.json" in pack:
        pack["sources.json"] = json.dumps(json.loads(pack["sources.json"]), separators=(",", ":"))
    texts = {name: rename(text).encode() for name, text in pack.items()}
    return texts | {
        f"{s.SHARD_DIR}/{p.name}": shrink(p.read_bytes(), rename) for p in sorted((session / s.SHARD_DIR).iterdir())
    }


def shrink(data: bytes, rename: Callable[[str], str]) -> bytes:
    """A shard without its events, with other strings."""
    d = Blocks(data)
    which, row_words = d.head[s.H_ITER_STATE] >> 32, d.head[s.H_ITER_STATE] & U32
    kept = [
        b for b in d.blocks if b.kind not in (s.STRINGS, s.EVENTS, s.RING) and (b.kind != s.ITERATIONS or b.ordinal == which)
    ]
    out = bytearray()
    places: list[int] = []  # where each block begins now
    for block in kept:
        places.append(len(out))
        out += _block(data, block, row_words)
    strings: dict[str, int] = {}
    text = bytearray()
    base = len(out) + s.HEAD_WORDS * 8

    def point(at: int) -> None:
        """Two words, offset and length of a string: to where it is now."""
        offset, size = struct.unpack_from("<2Q", out, at)
        if offset and size:
            name = rename(d.name(offset, size))
            encoded = name.encode("utf-8", "surrogatepass")
            if name not in strings:
                strings[name] = base + len(text)
                text.extend(encoded)
            struct.pack_into("<2Q", out, at, strings[name], len(encoded))

    point(8 * s.H_NAME)
    for i in range(s.COUNTER_SLOTS):
        point(8 * (s.H_COUNTERS + i * s.COUNTER_WORDS))
    pairs = {s.LABELS: (s.L_OFFSET, s.L_SITE), s.TRACKS: (s.T_NAME,), s.PLACES: (0, 2)}
    for begin, block in zip(places, kept, strict=True):
        for item in range(block.used):
            for word in pairs.get(block.kind, ()):
                point(begin + 8 * (s.HEAD_WORDS + item * block.item_words + word))
    struct.pack_into("<Q", out, 8 * s.H_RING_HEAD, 0)
    units = -(-(len(text) + s.HEAD_WORDS * 8) // s.BLOCK_BYTES)
    room = units * s.BLOCK_BYTES - s.HEAD_WORDS * 8
    out += struct.pack("<8Q", s.BLOCK_MAGIC, s.STRINGS, units, room, len(text), 0, 0, 0) + text.ljust(room, b"\0")
    return bytes(out)


def _block(data: bytes, block: BlockView, row_words: int) -> bytes:
    """A whole block, with zeros where nothing is in use."""
    begin = block.offset - s.HEAD_WORDS * 8
    whole = (struct.unpack_from("<Q", data, begin + 8 * s.HEAD_SIZE)[0] & U32) * s.BLOCK_BYTES
    used = whole - s.HEAD_WORDS * 8 if block.kind == s.HEADER else block.used * max(1, 8 * block.item_words)
    if block.kind == s.ITERATIONS:
        used = 8 * row_words
    return data[begin : block.offset + used].ljust(whole, b"\0")


def write_packs(path: Path, packs: dict[str, Pack]) -> None:
    """The same files make the same bytes."""
    files = {f"{variant}/{name}": data for variant, pack in packs.items() for name, data in pack.items()}
    with tarfile.open(path, "w:xz", preset=6) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            archive.addfile(member, io.BytesIO(files[name]))


def names_of_this_machine(pack: Pack) -> list[str]:
    empty = bytes(1024)  # most of a shard
    found = ((name, MACHINE.search(data.replace(empty, b""))) for name, data in pack.items())
    return [f"{name}: {match[0]!r}" for name, match in found if match]


def same(first: Iterable[Finding], second: Iterable[Finding]) -> bool:
    return [(f.cause, f.function, f.line, f.gain) for f in first] == [(f.cause, f.function, f.line, f.gain) for f in second]


def keep(cause: str, raw: Path | None) -> dict[str, dict[str, Any]]:
    """Record the sessions of a cause, trim and write them; answers their lines of the matrix."""
    packs, rows = {}, {}
    for variant in VARIANTS:
        with tempfile.TemporaryDirectory() as folder:
            session = record(cause, variant, (raw or Path(folder)) / cause / variant)
            pack = packs[variant] = trim(session)
            whole, findings = find(session), find_packed(pack)
        row = rows[f"{cause}/{variant}"] = describe(cause, variant, findings)
        said = ", ".join(f"{name} {low}–{high}" for name, low, high in row["found"]) or "(nothing)"
        print(f"{row['session']:<32} {said}", flush=True)
        if not same(whole, findings):
            print(f"  trimming changes what is found: {[(f.cause, f.function, f.gain.mid) for f in whole]}", flush=True)
        if machine := names_of_this_machine(pack):
            print(f"  holds names of this machine: {'; '.join(machine)}", flush=True)
    write_packs(pack_path(cause), packs)
    if (size := pack_path(cause).stat().st_size) > MOST_BYTES:
        print(f"  {size / 1000:.0f} kB: larger than {MOST_BYTES / 1000:.0f} kB", flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cause", nargs="*", metavar="CAUSE", help="these causes only")
    parser.add_argument("--record", action="store_true", help="run the programs and keep their sessions")
    parser.add_argument("--accept", action="store_true", help="write the matrix anew from the sessions that are kept")
    parser.add_argument("--raw", type=Path, metavar="DIR", help="keep the whole sessions there, and take those that are there")
    asked = parser.parse_args()
    for cause in asked.cause:
        if cause not in CAUSES:
            parser.error(f"{cause} is no cause; there are: {', '.join(CAUSES)}")
    matrix, changed = read_matrix(), 0
    why = {name: {"why": row["why"]} for name, row in matrix.items() if "why" in row}
    for cause in asked.cause or CAUSES:
        if asked.record:
            matrix |= {name: row | why.get(name, {}) for name, row in keep(cause, asked.raw).items()}
            write_matrix(matrix)
            continue
        for variant, pack in open_packs(pack_path(cause)).items():
            name, findings = f"{cause}/{variant}", find_packed(pack)
            if name not in matrix or not agrees(matrix[name], findings):
                print(f"was {json.dumps(matrix.get(name))}\nnow {json.dumps(describe(cause, variant, findings))}")
                matrix[name] = describe(cause, variant, findings) | why.get(name, {})
                changed += 1
    if asked.accept:
        write_matrix(matrix)
    elif not asked.record:
        print(f"{changed} sessions changed")
    return int(bool(changed) and not asked.accept)


if __name__ == "__main__":
    sys.exit(main())
