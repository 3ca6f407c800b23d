"""Any bytes at all give a partial result with a stated reason, or one line that says why not.

Samples of what `benchmarks/fuzz_reader.py` does in full, and the cases that deserve a name.
"""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from hotloop.analyse.diagnosis import diagnose
from hotloop.errors import UnreadableError
from hotloop.model.session import SessionData
from hotloop.present.json import report_data
from hotloop.store import schema as s
from hotloop.store.blocks import LIVE_NS, walk
from hotloop.store.reader import MAX_PROBLEMS, read_session
from hotloop.store.shard import decode
from hotloop.store.system import SYSTEM_FILE

from . import mutations
from .fuzz_worker import Tally, read_files, run_workers, write_files
from .hostile import examine, make_corpus
from .mutations import HOSTILE_JSON, Files, Layout, mutate

BLOCK = s.BLOCK_BYTES


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small sessions by both recorders."""
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder)
    return folder


@pytest.fixture(scope="module")
def ended(corpus: Path) -> Files:
    """Threads, nested spans, iterations, counters and memory, of a process that ended by itself."""
    (session,) = (corpus / "threads-native" / "runs").iterdir()
    return read_files(session)


def shard_of(files: Files) -> str:
    (name,) = (name for name in files if name.endswith(s.SHARD_SUFFIX))
    return name


def put(files: Files, at: int, value: int) -> Files:
    """The same session with another word in its shard."""
    data = bytearray(files[shard_of(files)])
    mutations.put(data, at, value)
    return {**files, shard_of(files): bytes(data)}


def load(folder: Path, files: Files) -> SessionData:
    write_files(folder, files)
    return read_session(folder)


def calls(session: SessionData) -> dict[str, int]:
    return {o.name: o.calls for o in diagnose(session).operations}


# ---- the samples ----


def check_mutations(corpus: Path, seeds: range) -> Tally:
    done = run_workers(corpus, "mutations", seeds, workers=2)
    assert done.faults == []
    assert done.count == len(seeds)
    assert min(done.outcomes[x] for x in ("read", "partial", "refused")) > len(seeds) / 20  # they are of every kind
    return done


def test_two_thousand_damaged_sessions_are_read_in_part_or_refused_with_a_reason(corpus):
    check_mutations(corpus, range(2000))


@pytest.mark.full
@pytest.mark.timeout(4 * 3600)
def test_a_hundred_thousand_damaged_sessions_are_read_in_part_or_refused_with_a_reason(corpus):
    check_mutations(corpus, range(100_000))


def check_cuts(corpus: Path, name: str, step: int) -> None:
    (session,) = (corpus / name / "runs").iterdir()
    files = read_files(session)
    data = files[shard_of(files)]
    head = walk(data)[0][-1].offset - 8 * s.HEAD_WORDS
    used = head + BLOCK * (mutations.get(data, head + 8 * s.HEAD_SIZE) & mutations.U32)
    edges = {edge + by for edge in range(0, len(data), BLOCK) for by in (-1, 0, 1)}
    sizes = sorted({*range(0, len(data), step), *edges} & set(range(len(data))))
    done = run_workers(corpus, name, sizes, workers=2)
    assert done.faults == []
    assert done.count == len(sizes)
    # Behind the last block in use nothing is missed; before it, what is missing is said.
    assert done.outcomes["read"] == sum(size >= used for size in sizes)


@pytest.mark.parametrize("name", ["threads-native", "killed-python"])
def test_wherever_a_session_is_cut_off_the_loss_is_said(corpus, name):
    check_cuts(corpus, name, step=997)


@pytest.mark.full
@pytest.mark.timeout(8 * 3600)
@pytest.mark.parametrize("name", ["tasks-native"])
def test_a_session_cut_at_every_byte_says_so(corpus, name):
    check_cuts(corpus, name, step=1)


def test_what_lies_before_the_cut_is_kept(ended, tmp_path):
    data = ended[shard_of(ended)]
    whole = decode(data)
    blocks = walk(data)[0]
    for block in blocks[1:]:
        try:
            part = decode(data[: block.offset - 8 * s.HEAD_WORDS])
        except UnreadableError as error:
            assert "died before its first span" in str(error)
            continue
        assert part.labels[0].name == whole.labels[0].name
        assert part.paths == whole.paths[: len(part.paths)]
        assert len(part.nodes) in (0, len(whole.nodes))
    assert blocks[-1].kind == s.EVENTS
    session = load(tmp_path, {**ended, shard_of(ended): data[: blocks[-1].offset - 8 * s.HEAD_WORDS]})
    last = session.shards[0]
    assert (last.nodes, last.labels, last.iterations) == (whole.nodes, whole.labels, whole.iterations)
    assert session.problems == (f"process {whole.pid}: {blocks[-1].used - len(whole.tracks)} events are missing",)


def test_the_same_seed_does_the_same_damage(ended):
    for seed in range(50):
        assert mutate(ended, seed) == mutate(ended, seed)


# ---- claims ----


@pytest.mark.parametrize("word", [s.HEAD_USED, s.HEAD_CAPACITY, s.HEAD_SIZE, s.HEAD_KIND])
@pytest.mark.parametrize("value", [1 << 63, (1 << 64) - 1])
def test_nothing_is_allocated_from_a_claim(ended, tmp_path, word, value):
    for i, block in enumerate(walk(ended[shard_of(ended)])[0]):
        write_files(tmp_path / str(i), put(ended, block.offset - 8 * s.HEAD_WORDS + 8 * word, value))
        tracemalloc.start()
        try:
            examine(tmp_path / str(i), ())
            assert tracemalloc.get_traced_memory()[1] < 32 << 20
        finally:
            tracemalloc.stop()


ABSURD = [(1 << 58) + 1, (1 << 62) - 1, (1 << 64) - 1]
IMPOSSIBLE = {
    **{f"node's {name}": (s.NODES, word) for name, word in {
        "self time": s.N_SELF_NS, "total": s.N_TOTAL_NS, "shortest": s.N_MIN_NS, "longest": s.N_MAX_NS, "count": s.N_COUNT,
        "processor time": s.N_CPU_NS, "memory": s.N_MEM_RISE_MAX, "place": s.N_WHERE}.items()},
    "label's union": (s.LABELS, s.L_UNION_NS), "label's name": (s.LABELS, s.L_BYTES),
    "track's birth": (s.TRACKS, s.T_LIVES + 2), "event's duration": (s.EVENTS, 1), "event's start": (s.EVENTS, 0),
    **{f"header's {name}": (s.HEADER, word - s.HEAD_WORDS) for name, word in {
        "start": s.H_START_NS, "end": s.H_END_NS, "cost": s.H_COST_INSIDE_PS, "pause": s.H_PAUSED_NS,
        "first work": s.H_FIRST_WORK_NS, "last work": s.H_LAST_WORK_NS, "iterations": s.H_ITERATIONS}.items()},
}  # fmt: skip


@pytest.mark.parametrize("value", ABSURD)
@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_an_absurd_value_is_left_out_and_said(ended, tmp_path, what, value):
    kind, word = IMPOSSIBLE[what]
    block = next(b for b in walk(ended[shard_of(ended)])[0] if b.kind == kind)
    rollout = next(i for i, n in enumerate(decode(ended[shard_of(ended)]).nodes) if n.count)
    item = rollout if kind == s.NODES else 0
    if kind == s.LABELS:
        item = next(i for i, x in enumerate(decode(ended[shard_of(ended)]).labels) if x.name == "rollout")
    write_files(tmp_path, put(ended, block.offset + 8 * (item * block.item_words + word), value))
    assert examine(tmp_path) == "partial"
    assert diagnose(read_session(tmp_path)).wall_ns < 3600 * 10**9


def test_an_impossible_date_is_left_out_and_said(ended, tmp_path):
    session = load(tmp_path, put(ended, 8 * s.H_START_UNIX_NS, (1 << 64) - 1))
    assert session.shards[0].start_unix_ns == 0
    assert any("date" in text for text in session.problems)


def test_a_sum_of_squares_that_is_no_number_does_not_get_out(ended, tmp_path):
    (nan,) = struct.unpack("<Q", struct.pack("<d", float("nan")))
    for i, at in enumerate(Layout(ended[shard_of(ended)]).items(s.NODES)):
        folder = tmp_path / str(i)
        write_files(folder, put(ended, at + 8 * s.N_SUMSQ, nan))
        assert examine(folder, ()) in ("partial", "read")  # read: of a node that has no spans


def test_tracks_that_hold_more_time_than_the_recording_are_cut_to_it(ended, tmp_path):
    whole = decode(ended[shard_of(ended)])
    files = ended
    for at in Layout(ended[shard_of(ended)]).items(s.NODES):
        files = put(files, at + 8 * s.N_SELF_NS, whole.end_ns - whole.start_ns + LIVE_NS // 2)
    session = load(tmp_path, files)
    assert all(track.lifetime_ns <= whole.end_ns - whole.start_ns + LIVE_NS for track in session.shards[0].tracks)
    assert any("more time than the recording" in text for text in session.problems)


def test_a_missing_block_of_many_costs_what_follows_it_and_no_more():
    """Items are numbered through all blocks of a kind: behind a gap nobody knows which is which."""
    kinds = [
        (s.HEADER, 0, 0, 0),
        (s.LABELS, 0, s.LABEL_WORDS, 1023),
        (s.LABELS, 2, s.LABEL_WORDS, 7),
        (s.PATHS, 0, s.PATH_WORDS, 1),
    ]
    data = bytearray()
    for kind, ordinal, words, used in kinds:
        data += struct.pack("<5Q", s.BLOCK_MAGIC, kind | ordinal << 32, 1 | words << 32, 1 << 20, used).ljust(BLOCK, b"\0")
    mutations.put(data, 8 * s.H_VERSION, s.VERSION)
    shard = decode(bytes(data))
    assert len(shard.labels) == 1023
    assert "a block of labels is missing or not full: 7 after it are left out" in shard.problems


# ---- shapes ----


def test_a_tree_of_thousands_of_levels_can_be_written_as_json(ended, tmp_path):
    data = bytearray(ended[shard_of(ended)])
    mutations.chain_paths(random.Random(1), data)
    session = load(tmp_path, {**ended, shard_of(ended): bytes(data)})
    report = diagnose(session)
    assert json.loads(json.dumps(report_data(report), indent=1))["tree"]
    assert sum(b.self_ns for b in report.ledger.tree) <= sum(b.lifetime_ns for b in report.ledger.balances)


def test_work_handed_over_in_a_circle_finds_its_place_in_the_tree(corpus, tmp_path):
    (path,) = (corpus / "processes-native" / "runs").iterdir()
    whole = calls(read_session(path))
    for seed in range(30):
        files = read_files(path)
        mutations.tangle_origins(random.Random(seed), files, [name for name in files if name.endswith(s.SHARD_SUFFIX)])
        session = load(tmp_path / str(seed), files)
        assert calls(session) == whole
        ledger = diagnose(session).ledger
        assert all(branch.parent < i for i, branch in enumerate(ledger.tree))
        assert sum(branch.calls for branch in ledger.tree) == sum(shard.recorded for shard in session.shards)


# ---- session.json ----


def test_no_value_of_session_json_costs_the_recording(ended, tmp_path):
    meta = json.loads(ended[s.SESSION_FILE])
    whole = calls(load(tmp_path, ended))
    for key in meta:
        for value in HOSTILE_JSON:
            text = json.dumps({**meta, key: "@@@"}).replace('"@@@"', value)
            (tmp_path / s.SESSION_FILE).write_bytes(text.encode("utf-8", "surrogatepass"))
            session = read_session(tmp_path)
            json.dumps(session.meta, allow_nan=False)
            assert session.meta or session.problems
    examine(tmp_path)
    assert calls(session) == whole


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "..", "~root", "a/../../b", "x\0y", "C:\\x"])
def test_a_name_in_session_json_is_a_name_and_no_path(ended, tmp_path, name):
    meta = json.loads(ended[s.SESSION_FILE]) | {"name": name, "path": name, "directory": name}
    folder = tmp_path / "deep" / "session"
    write_files(folder, {**ended, s.SESSION_FILE: json.dumps(meta).encode()})
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    assert examine(folder) == "read"
    report = diagnose(read_session(folder))
    assert (report.name, report.path) == (name, str(folder))
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before


# ---- what is not a file ----


def replace_shard(folder: Path, ended: Files, by: str) -> None:
    """The recording's shard lies elsewhere; in its place there is something else."""
    elsewhere = folder.parent / "elsewhere"
    write_files(elsewhere, ended)
    write_files(folder, {s.SESSION_FILE: ended[s.SESSION_FILE]})
    shard = folder / shard_of(ended)
    if by == "a link for the folder":
        os.symlink(elsewhere / s.SHARD_DIR, shard.parent)
        return
    shard.parent.mkdir()
    if by == "a link":
        os.symlink(elsewhere / shard_of(ended), shard)
    elif by == "a pipe":
        os.mkfifo(shard)
    elif by == "a folder":
        shard.mkdir()
    elif by == "a link to itself":
        os.symlink(shard, shard)
    elif by == "a device":
        os.symlink("/dev/zero", shard)


@pytest.mark.parametrize("by", ["a link", "a link for the folder", "a link to itself", "a pipe", "a folder", "a device"])
def test_no_link_is_followed_and_nothing_but_a_file_is_read(ended, tmp_path, by):
    folder = tmp_path / "session"
    replace_shard(folder, ended, by)
    with pytest.raises(UnreadableError, match="holds no recording") as refused:
        read_session(folder)
    assert str(refused.value).isprintable()


OTHERS = {"pipe": os.mkfifo, "folder": os.mkdir, "link": lambda path: os.symlink("/etc/passwd", path)}


@pytest.mark.parametrize("make", OTHERS)
@pytest.mark.parametrize("name", [s.SESSION_FILE, SYSTEM_FILE])
def test_what_stands_in_place_of_a_session_file_costs_that_file_only(ended, tmp_path, name, make):
    write_files(tmp_path, {file: data for file, data in ended.items() if file != name})
    OTHERS[make](tmp_path / name)
    session = read_session(tmp_path)
    assert calls(session)["rollout"] == 12
    assert session.system == ()
    if name == s.SESSION_FILE:
        assert session.meta == {}
        assert name in session.problems[0]


def test_ten_thousand_junk_files_are_passed_over(ended, tmp_path):
    write_files(tmp_path, ended)
    for i in range(10_000):
        folder, suffix = (tmp_path, ".hls") if i % 2 else (tmp_path / s.SHARD_DIR, (".tmp", s.SHARD_SUFFIX)[i % 4 // 2])
        (folder / f"~junk-{i}{suffix}").write_bytes(b"junk")
    for i in range(20):
        (tmp_path / s.SHARD_DIR / f"~folder-{i}{s.SHARD_SUFFIX}").mkdir()
    descriptors = len(os.listdir("/proc/self/fd"))
    session = read_session(tmp_path)
    assert calls(session)["rollout"] == 12
    assert len(session.problems) == MAX_PROBLEMS + 1
    assert session.problems[-1].endswith("problems more")
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("path", ["x" * 5000, "a/" * 3000, "a\0b", "missing", __file__])
def test_a_path_that_is_no_session_is_one_line(tmp_path, path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnreadableError) as refused:
        read_session(path)
    assert str(refused.value).isprintable()


def test_the_command_answers_damage_with_one_line_and_its_exit_code(ended, tmp_path):
    for name, data, code in (("cut", ended[shard_of(ended)][:300_000], 0), ("junk", b"\x1b[31m\n" * 100, 3)):
        write_files(tmp_path / name, {**ended, shard_of(ended): data})
        command = [sys.executable, "-m", "hotloop", "report", str(tmp_path / name), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        if code:
            assert done.stderr.startswith("hotloop: ")
            assert done.stderr.count("\n") == 1
            assert done.stderr.strip().isprintable()
        else:
            assert json.loads(done.stdout)["quality"]["problems"]
