"""Labels, paths, nodes and tracks of the Python recorder, and the one place that holds its state.

See `record/native/tree.h` and `track.h` for the reasons; the structure is the same.
Invariant: `state.lock` is held while the tree grows. The hot path takes no lock (155 ns each time): what threads share
there (a label's open count, the ring's head) is read and written without a call in between, and the interpreter
switches threads only at calls and loops.
"""

from __future__ import annotations

import time
from _thread import RLock
from _thread import _local as ThreadLocal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...store import schema as s
from ...store.writer import Block, ShardWriter

if TYPE_CHECKING:
    from .environments import Env
    from .phases import Pending
    from .spans import Zone

UNATTACHED, BUSY = -2, -1  # never 0: that is `gen_on` while nothing records


class Record:
    """An item of the file."""

    def __init__(self, block: Block, at: int) -> None:
        self.block, self.words, self.at = block, block.words, at

    def __getitem__(self, field: int) -> int:
        return self.words[self.at + field]

    def __setitem__(self, field: int, value: int) -> None:
        self.words[self.at + field] = value

    def add(self, field: int, by: int) -> None:
        """In one go, also where another thread adds to the same word."""
        self.words[self.at + field] += by


class Label(Record):
    """A name, and how long it was open anywhere."""

    def __init__(self, block: Block, at: int, number: int, kind: int) -> None:
        super().__init__(block, at)
        self.id, self.kind = number, kind
        self.open = 0  # spans of this label open now, over all tracks (recursion counts once)
        self.union_ns = 0  # ahead of the file while a span of it is being closed

    def opened(self, at_ns: int) -> None:
        self.open += 1
        if self.open == 1:
            self.words[self.at + s.L_UNION_START] = at_ns

    def closed(self, at_ns: int) -> None:
        """The file learns of it when the span's journal is written."""
        self.open -= 1
        start = self.words[self.at + s.L_UNION_START]
        if not self.open and at_ns > start:
            self.union_ns += at_ns - start

    def suspended(self, at_ns: int) -> None:
        """Outside a journalled exit: a generator is suspended, a span is abandoned."""
        self.closed(at_ns)
        if not self.open:
            self[s.L_UNION_NS] = self.union_ns

    def end(self, at_ns: int) -> None:
        if self.open:
            self.open = 1
            self.suspended(at_ns)


class Node(Record):
    """A path on one track. Its numbers are in the file and nowhere else."""

    def __init__(self, block: Block, at: int, number: int, path: int, label: Label, parent: Node | None) -> None:
        super().__init__(block, at)
        self.id, self.path, self.label, self.parent = number, path, label, parent
        self.children: dict[Label, Node] = {}  # where spans of a label are counted; in recursion that is no child
        self.long = False  # its spans are measured now and then
        self.measured = 0  # when one was last
        self.marked_in = 0  # row + 1 in which it was put on the list of touched nodes
        self.self_at_step = self.count_at_step = 0
        self.work = self.self_at_work = self.count_at_work = 0  # as of when it was first opened after that work

    def note_work(self) -> None:
        """The first time since the latest work: what it has by now was before that."""
        if self.work != state.work:
            self.work, self.self_at_work, self.count_at_work = state.work, self[s.N_SELF_NS], self[s.N_COUNT]


class Frame:
    """An open span."""

    reentry = False  # its label is open further down already
    resumed = 0  # when a generator went on
    own = 0  # of its time, what was charged to the profiler
    measured = False
    cpu_ns = rss = 0  # when measured

    def __init__(self, zone: Zone, node: Node, below: Node, start: int) -> None:
        self.zone, self.node, self.below, self.start = zone, node, below, start


class Track:
    """A thread, and its stack of open spans."""

    block: Block
    words: memoryview
    at: int
    top: Node  # the innermost open one, or what stands for "nothing open"
    root: Node
    profiler: Node
    overflow: Node

    def __init__(self) -> None:
        self.gen = UNATTACHED  # the recording it is attached to; BUSY while it is being changed
        self.frames: list[Frame] = []
        self.nodes: list[Node] = []
        self.idle: Node | None = None
        self.last = self.inherited = self.id = 0
        self.state = 0  # as in the file
        self.retired = False
        self.virtual = -1
        self.name = ""
        self.ident = self.native_id = 0  # of its thread, for Python and for the kernel
        self.env_calls = self.resets = 0  # how many calls of environments; how many resets ended, for those that hold them
        self.phase = 0  # the last event's
        self.gap_mark = 0  # of the root's own time, what has its phase
        self.pending: list[Pending] = []
        self.forget_calls()

    def forget_calls(self) -> None:
        """No hooked call is open here."""
        self.inside = self.within_phase = 0  # hooks that are open, the phase they say
        self.model: Any = None  # the outermost model call
        self.env: Any = None  # the environment whose call is the outermost here
        self.listens = False  # its result does not tell which episodes ended: those of what it steps are heard
        self.heard = 0  # so many, in the open call
        self.handed_by = 0  # the track + 1 that handed over what runs here, from inside an environment

    def put(self, frame: Frame) -> None:
        """On top of the stack. The file shows the lower ones, and none before its state says so."""
        frame.below = self.top
        if len(self.frames) < s.TRACK_FRAMES:
            at = self.at + s.T_FRAMES + 2 * len(self.frames)
            self.words[at], self.words[at + 1] = frame.node.id, frame.start
        self.frames.append(frame)
        self.top = frame.node

    def settle(self, at_ns: int) -> None:
        self.top.words[self.top.at + s.N_SELF_NS] += at_ns - self.last
        self.last = at_ns

    def charge(self, at_ns: int) -> None:
        """The time since the last event was the profiler's own: no open span is to blame for it."""
        for frame in self.frames:
            frame.own += at_ns - self.last
        self.profiler.add(s.N_SELF_NS, at_ns - self.last)
        self.last = at_ns

    def charge_reading(self) -> None:
        """Charge a reading of the kernel, but no more than it can take: the rest is the thread being sent to wait for others,
        which is the span's."""
        done = state.clock()
        self.charge(min(done, self.last + s.READING_MOST_NS))
        self.settle(done)


class Local(ThreadLocal):
    track: Track | None = None
    telling = False  # an edge, to whoever listens
    waking = False  # inside session.wake()


NEVER = (1 << 64) - 1


class State:
    """Everything the recorder of this process knows: one instance, `state`."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.local: Any = Local()
        self.want = False
        self.gen = 0  # grows with each recording
        self.gen_on = 0  # `gen` while recording, else 0
        self.pid = 0
        self.name, self.name_pid = "", 0  # of this process, and whose it is: a forked child must not take its parent's
        self.options: dict[str, Any] = {}
        self.shard: ShardWriter | None = None
        self.head: memoryview = memoryview(bytearray(s.BLOCK_BYTES)).cast("Q")  # the header's words
        self.tracks: list[Track] = []
        self.paths: dict[tuple[int, int], int] = {}
        self.clock: Callable[[], int] = time.perf_counter_ns
        self.test_ns = self.test_tick = 0  # a test's time, and by how much each reading moves it
        self.iteration = 0
        self.unwritten = self.row = 0  # of the iterations, those in no row yet; rows
        self.work, self.work_paused_ns = 1, 0  # changes with every env step and update; time paused before the latest
        self.eval_counted = 0  # env steps counted in evaluations
        self.trained = 0  # and those outside of whatever may be one
        self.trial_counted = 0  # env steps counted within calls that may be an environment's
        self.touched: list[Node] = []
        self.counters: dict[str, int] = {}
        self.rows_words = 0
        self.ring: Block | None = None
        self.ring_mask = self.ring_head = 0
        self.log: Block | None = None
        self.log_left = self.log_room = 0
        self.long_ns = 1 << 62
        self.lifts = 0
        self.paused_at = 0
        self.disk_errno = 0
        self.zones: dict[str, Zone] = {}
        self.reserved: dict[str, Zone] = {}
        self.in_loop = self.learned = self.learns = self.episode_ended = self.manual_steps = False  # see phases
        self.hook_counts: set[str] = set()  # work counters that hooks count themselves
        self.expects = False  # something is going to learn, also in a recording that has yet to begin
        self.envs: dict[int, Env] = {}  # by address
        self.env_rows = self.env_serial = self.envs_sweep = 0
        self.on_mode: Callable[[Any], bool] | None = None
        self.on_holds: Callable[[Any, Any], bool] | None = None
        self.on_step: Callable[[int, int], object] | None = None
        self.on_loop: Callable[[], object] | None = None
        self.on_edge: Callable[[tuple[int, int], int], int] | None = None
        self.edges_from = NEVER  # when somebody next wants to know of one
        self.yield_check: Callable[[Any, int], str | None] | None = None
        self.memory_span: Callable[[Any], Any] | None = None
        self.decorate: Callable[[Any, Any], Any] | None = None

    def live_tracks(self) -> list[Track]:
        return [track for track in self.tracks if not track.retired and track.gen in (self.gen, BUSY)]

    def option(self, name: str) -> int:
        """What this process was told: a child has less."""
        return self.options[f"child_{name}" if self.options["is_child"] else name]  # type: ignore[no-any-return]

    def iteration_due(self) -> bool:
        """Was something learned since the iteration began? Without any learning, an episode ends one."""
        return self.learned or (self.episode_ended and not self.learns)

    def lose(self, why: str) -> None:
        if self.shard is not None:
            self.shard.lose(why)


state = State()


def label_of(zone: Zone) -> Label:
    """The zone's label in this shard; that of "(more labels)" when there is no room for another name."""
    known: Label | None = zone.label
    if known is not None:
        return known
    shard = state.shard
    assert shard is not None
    label = None
    if shard.items[s.LABELS] < s.MAX_LABELS:
        data = zone.name.encode("utf-8", "surrogatepass")
        offset = shard.string(data)
        if not offset and len(data) > 1024:
            data = data[:1024]
            offset = shard.string(data)
        slot = shard.item(s.LABELS) if offset else None
        if slot is not None:
            block, at, number = slot
            label = Label(block, at, number, zone.kind)
            label[s.L_OFFSET], label[s.L_BYTES], label[s.L_KIND] = offset, len(data), zone.kind
            label[s.L_FLAGS] = zone.phase << s.FLAG_PHASE_SHIFT | s.FLAG_OWNS * zone.owns
            shard.publish(s.LABELS)
    zone.label = label or state.reserved["(more labels)"].label
    if label is not None:
        place_label(zone)
    return zone.label  # type: ignore[no-any-return]


def place_label(zone: Zone) -> None:
    """Keep where a label comes from."""
    label, shard = zone.label, state.shard
    if zone.site is None or shard is None or label is state.reserved["(more labels)"].label or label[s.L_SITE]:
        return
    try:
        data = zone.site.encode()
    except UnicodeEncodeError:
        return
    offset = shard.site(data)
    label[s.L_SITE_BYTES], label[s.L_SITE] = len(data) if offset else 0, offset


def path_of(parent: int, label: int, origin: tuple[int, int] | None = None) -> int | None:
    """The path of a label below a parent, or of work handed over by another process; None when there is no room."""
    key = (parent, label) if origin is None else (-1 - origin[1], origin[0])
    known = state.paths.get(key)
    if known is not None:
        return known
    assert state.shard is not None
    slot = state.shard.item(s.PATHS)
    if slot is None:
        return None
    block, at, number = slot
    block.words[at + s.P_LINK] = parent | label << 32
    if origin is not None:
        block.words[at + s.P_ORIGIN_SHARD], block.words[at + s.P_ORIGIN_PATH] = origin
    state.shard.publish(s.PATHS)
    state.paths[key] = number
    return number


def add_node(track: Track, path: int | None, label: Label, parent: Node | None) -> Node | None:
    assert state.shard is not None
    slot = state.shard.item(s.NODES) if path is not None else None
    if slot is None or path is None:
        return None
    block, at, number = slot
    block.words[at + s.N_WHERE] = track.id | path << 32
    block.words[at + s.N_MIN_NS] = (1 << 64) - 1
    state.shard.publish(s.NODES)
    node = Node(block, at, number, path, label, parent)
    track.nodes.append(node)
    return node


def node_by_path(track: Track, path: int, label: Label) -> Node | None:
    for node in reversed(track.nodes):
        if node.path == path:
            return node
    return add_node(track, path, label, None)


def find_child(track: Track, parent: Node, zone: Zone) -> Node:
    """The zone's node below `parent`; recursion leads back to the node already open above."""
    label = label_of(zone)
    known = parent.children.get(label)
    if known is not None:
        return known
    node: Node | None = parent
    while node is not None and node.label is not label:
        node = node.parent
    if node is None:
        track.settle(state.clock())
        node = add_node(track, path_of(parent.path, label.id), label, parent) or track.overflow
        track.charge(state.clock())  # making it is our time
    parent.children[label] = node
    return node


def touch(node: Node) -> None:
    if node.marked_in != state.row + 1:
        node.marked_in = state.row + 1
        state.touched.append(node)
