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

from ...model import shard as m
from ...store import schema as s
from ...store.writer import Block, ShardWriter

if TYPE_CHECKING:
    from .environments import Env
    from .phases import Pending
    from .spans import Zone

UNATTACHED, BUSY = -2, -1  # never 0: that is `gen_on` while nothing records


class Label:
    """A name, and how long it was open anywhere."""

    __slots__ = ("id", "kind", "open", "placed", "start_at", "union_at", "union_ns", "union_start", "words")

    def __init__(self, block: Block, at: int, number: int, kind: int, flags: int) -> None:
        self.words, self.union_at, self.start_at = block.words, at + s.L_UNION_NS, at + s.L_UNION_START
        self.id, self.kind = number, kind
        self.placed = False
        self.open = 0  # spans of this label open now, over all tracks (recursion counts once)
        self.union_ns = self.union_start = 0  # as in the file
        self.words[at + s.L_FLAGS] = flags

    def word(self, field: int, value: int) -> None:
        self.words[self.union_at - s.L_UNION_NS + field] = value

    def opened(self, at_ns: int) -> None:
        self.open += 1
        if self.open == 1:
            self.words[self.start_at] = self.union_start = at_ns

    def closed(self, at_ns: int) -> None:
        """Outside a journalled exit: a generator is suspended, a span is abandoned."""
        if self.open == 1:
            self.end(at_ns)
        else:
            self.open -= 1

    def end(self, at_ns: int) -> None:
        if self.open:
            self.union_ns += max(0, at_ns - self.union_start)
            self.words[self.union_at] = self.union_ns
            self.open = 0


class Node:
    __slots__ = (
        "at", "children", "count", "count_at_step", "count_at_work", "hot", "id", "label", "least", "long",
        "marked_in", "most", "others", "parent", "path", "self_at", "self_at_step", "self_at_work", "self_ns", "squares",
        "total", "where", "words", "work",
    )  # fmt: skip

    def __init__(self, block: Block, at: int, number: int, path: int, track: int, label: Label, parent: Node | None) -> None:
        self.words, self.at, self.id = block.words, at, number
        self.self_at = at + s.N_SELF_NS
        self.path, self.label, self.parent = path, label, parent
        self.where = path | track << 32
        self.children: dict[Zone, Node] = {}  # the plain case: below this one, and short
        self.others: dict[Zone, Node] = {}  # recursion, long spans, "(more labels)"
        # What leaving a span needs and never changes, in one load.
        self.hot = (
            block.words, block.doubles, block.ints, at + s.N_COUNT, at + s.N_SELF_NS, at + s.N_TOTAL_NS, at + s.N_SUMSQ,
            (at + s.N_HIST) * 2, label, number,
        )  # fmt: skip
        self.count = self.self_ns = self.total = self.most = 0  # as in the file: reading it back would cost more
        self.least = (1 << 64) - 1
        self.squares = 0.0
        self.long = False
        self.marked_in = 0
        self.self_at_step = self.count_at_step = 0
        self.work = self.self_at_work = self.count_at_work = 0  # as of when it was first opened after that work

    def set_long(self, zone: Zone, long: bool) -> None:
        """Long spans are measured, so they may not take the short way."""
        self.long = long
        if self.parent is not None:
            source, target = (self.parent.children, self.parent.others) if long else (self.parent.others, self.parent.children)
            if source.pop(zone, None) is not None:
                target[zone] = self


class Frame:
    """An open span. A track reuses its frames by depth; a lifted one is taken out and replaced."""

    __slots__ = (
        "below",
        "cpu_ns",
        "measured",
        "misplaced",
        "node",
        "node_at",
        "odd",
        "own",
        "reentry",
        "resumed",
        "rss",
        "rss_end",
        "start",
        "start_at",
        "zone",
    )  # fmt: skip
    node: Node
    below: Node
    zone: Zone

    def __init__(self, at: int) -> None:
        self.move(at)
        self.start = self.resumed = self.rss = self.rss_end = self.cpu_ns = 0
        self.own = 0  # of its time, what was charged to the profiler
        self.odd = False  # any of the following, or resumed
        self.misplaced = self.reentry = self.measured = False

    def move(self, at: int) -> None:
        """Its place among the words of the track."""
        self.node_at, self.start_at = at, at + 1

    def write(self, words: memoryview) -> None:
        words[self.node_at] = self.node.id
        words[self.start_at] = self.start


class Track:
    __slots__ = (
        "at",
        "depth",
        "env",
        "env_calls",
        "frames",
        "frames_at",
        "gap_mark",
        "gen",
        "handed_by",
        "heard",
        "hot",
        "id",
        "ident",
        "idle",
        "inherited",
        "inside",
        "last",
        "listens",
        "misplaced",
        "model",
        "name",
        "name_key",
        "native_id",
        "nodes",
        "overflow",
        "pending",
        "phase",
        "profiler",
        "resets",
        "retired",
        "room",
        "root",
        "state",
        "state_at",
        "top",
        "virtual",
        "within_phase",
        "words",
    )  # fmt: skip
    at: int
    hot: tuple[memoryview, memoryview, int, int]  # words, bytes, where the journal and the state are
    frames_at: int
    state_at: int
    words: memoryview
    top: Node
    root: Node
    profiler: Node
    overflow: Node

    def __init__(self) -> None:
        self.gen = UNATTACHED  # the recording it is attached to; BUSY while it is being changed
        self.frames: list[Frame] = []  # the first `depth` are open
        self.room = 0  # frames that the short way may use: made, shown by the file, and the stack is straight
        self.depth = 0
        self.misplaced = 0  # open frames whose node is not a child of the one below: a label may be open twice
        self.nodes: list[Node] = []
        self.idle: Node | None = None
        self.last = self.state = self.inherited = self.id = 0
        self.retired = False
        self.virtual = -1
        self.name = self.name_key = ""
        self.ident = self.native_id = 0  # of its thread, for Python and for the kernel
        self.inside = self.within_phase = self.phase = 0  # hooks that are open, the phase they say, the last event's
        self.model: Any = None  # the outermost model call
        self.env: Any = None  # the environment whose call is the outermost here
        self.env_calls = self.resets = 0  # how many such calls; how many resets ended, for those that hold them
        self.listens = False  # its result does not tell which episodes ended: those of what it steps are heard
        self.heard = 0  # so many, in the open call
        self.handed_by = 0  # the track + 1 that handed over what runs here, from inside an environment
        self.gap_mark = 0  # of the root's own time, what has its phase
        self.pending: list[Pending] = []

    def set_misplaced(self, by: int) -> None:
        self.misplaced += by
        self.set_room()

    def set_room(self) -> None:
        self.room = 0 if self.misplaced else min(len(self.frames), s.TRACK_FRAMES)

    def settle(self, at_ns: int) -> None:
        self._spend(self.top, at_ns)

    def charge(self, at_ns: int) -> None:
        """The time since the last event was the profiler's own: no open span is to blame for it."""
        for frame in self.frames[: self.depth]:
            frame.own += at_ns - self.last
            frame.odd = True
        self._spend(self.profiler, at_ns)

    def charge_reading(self) -> int:
        """Charge a reading of the kernel, but no more than it can take: the rest is the thread being sent to wait for others,
        which is the span's. Answers what was charged."""
        done = state.clock()
        cost = min(done - self.last, s.READING_MOST_NS)
        self.charge(self.last + cost)
        self.settle(done)
        return cost

    def _spend(self, node: Node, at_ns: int) -> None:
        node.self_ns += at_ns - self.last
        node.words[node.self_at] = node.self_ns
        self.last = at_ns


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
        self.mark = 1  # row + 1
        self.work, self.work_paused_ns = 1, 0  # changes with every env step and update; time paused before the latest
        self.trial_counted = 0  # env steps counted within calls that may be an environment's
        self.plain_ring = False  # events go to the ring and nowhere else
        self.touched: list[Node] = []
        self.counters: dict[str, int] = {}
        self.rows_words = 0
        self.ring: Block | None = None
        self.ring_buffer: memoryview = memoryview(b"")
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
            block.words[at + s.L_OFFSET], block.words[at + s.L_BYTES] = offset, len(data)
            block.words[at + s.L_KIND] = zone.kind
            label = Label(block, at, number, zone.kind, zone.phase << s.FLAG_PHASE_SHIFT | s.FLAG_OWNS * zone.owns)
            shard.publish(s.LABELS)
    zone.label = label or state.reserved["(more labels)"].label
    if label is not None:
        place_label(zone)
    return zone.label  # type: ignore[no-any-return]


def place_label(zone: Zone) -> None:
    """Keep where a label comes from."""
    label, shard = zone.label, state.shard
    if zone.site is None or shard is None or label.id == state.reserved["(more labels)"].label.id or label.placed:
        return
    try:
        data = zone.site.encode()
    except UnicodeEncodeError:
        return
    offset = shard.site(data)
    label.placed = bool(offset)
    label.word(s.L_SITE_BYTES, len(data) if offset else 0)
    label.word(s.L_SITE, offset)


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
    node = Node(block, at, number, path, track.id, label, parent)
    track.nodes.append(node)
    return node


def node_by_path(track: Track, path: int, label: Label) -> Node | None:
    for node in reversed(track.nodes):
        if node.path == path:
            return node
    return add_node(track, path, label, None)


def find_child(track: Track, parent: Node, zone: Zone) -> Node:
    """The zone's node below `parent`; recursion leads back to the node already open above."""
    known = parent.others.get(zone)
    if known is not None:
        return known
    label = label_of(zone)
    node: Node | None = parent
    while node is not None and node.label is not label:
        node = node.parent
    if node is None:
        track.settle(state.clock())
        node = add_node(track, path_of(parent.path, label.id), label, parent)
        track.charge(state.clock())  # making it is our time
        if node is not None and label.kind != m.OVERFLOW:
            parent.children[zone] = node
            return node
        node = node or track.overflow
    parent.others[zone] = node
    return node


def touch(node: Node) -> None:
    if node.marked_in != state.mark:
        node.marked_in = state.mark
        state.touched.append(node)
