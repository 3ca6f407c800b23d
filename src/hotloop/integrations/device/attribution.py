"""Device time by events: who queued the work a device was busy with, and who made the host wait for it.

What lives here: the attribution machine, over a small backend that can record an event on the current stream, ask without
blocking whether it was reached, and tell the time between two. A *mark* is an event at the edge of a span. Marks are taken in
short windows, as many as a budget of our own time allows, and resolved when the device has reached the last of them: nothing
here ever waits. Invariant: no synchronisation is added, memory is bounded by the pool, and an exception of the backend
switches the machine off, with one note, and never reaches the caller.

What events can say. A segment lies between two marks on one stream. The device was certainly busy with it after the host had
queued the later mark and until it reached that mark (`least_ns`). Before that the host was still queueing and the device may
have waited for it: at most the whole way from mark to mark was work (`most_ns`). The truth lies between the two."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .marks import BETWEEN, EARLIER, Backend, Key, Mark, Segment, Times, Wait, Window

POOL = 2048
MOST_MARKS = 256  # of one window
WINDOW_NS = 50_000_000
BUDGET = 0.005  # of the time, for marks and their resolution
ALLOWANCE_NS = 20_000_000  # of our own time, once: a beginning is unlike what follows, and a short run is measured whole
CLOSE_NS = 5_000  # a mark this soon after another on its stream is the same
JITTER_NS = 10_000  # between an event that finds an idle device and its time
LATENCY_NS = 30_000  # until an idle device begins with what is queued: after a sleep of milliseconds more than usually
MOST_KEYS = 512
MOST_PENDING = 8
MOST_RECENT = 64
DRIFT = 1e-4  # of a device's clock against the host's
RETRY_NS = 1_000_000_000
NEVER = (1 << 64) - 1


class Attribution:
    """The machine of one process."""

    def __init__(self, backend: Backend, note: Callable[[str], None], *, pool: int = POOL, budget: float = BUDGET,
                 window_ns: int = WINDOW_NS, allowance_ns: int = ALLOWANCE_NS) -> None:  # fmt: skip
        self._backend, self._note = backend, note
        self._pool_size, self._budget, self._window_ns, self._allowance_ns = pool, budget, window_ns, allowance_ns
        self._free: dict[int, list[Any]] = {}  # by device: an event stays with the one it was first recorded on
        self._made = 0
        self._turns: list[None] = [None]  # whoever takes it is at work here
        self._window: Window | None = None
        self._pending: list[Window] = []
        self._recent: list[Segment] = []  # of the windows before, as long as a wait may reach back to them
        self._anchors: dict[int, tuple[Mark, int, int]] = {}  # by device: the last mark, reached at the earliest, at the latest
        self._resume_ns = 0
        self._told_ns = 0  # the windows so far stand for the time until here
        self.labels: dict[Key, Times] = {}
        self.pairs: dict[tuple[Key, Key], float] = {}  # (blocked in, for work of) -> ns
        self.began_ns = 0
        self.measured_ns = self.covered_ns = self.cost_ns = 0  # in windows, and the time they stand for
        self.busy_ns = 0.0
        self.marks = self.windows = self.dropped = self.missed = 0
        self.broken = ""

    # ---- what the recorder and the hooks call ----

    def edge(self, key: Key, entered: bool = False) -> int:
        """A span begins or ends on this thread: what is queued from here on is `key`'s. Answers when to be told again."""
        if self.broken or not self._alone():
            self.missed += not self.broken
            return NEVER if self.broken else 0
        try:
            now = self._backend.now_ns()
            if entered:
                self._turn(now)
            if self._window is not None:
                if entered:
                    self._window.spans[key] = self._window.spans.get(key, 0) + 1
                self._mark(key, join=entered)
            self.cost_ns += self._backend.now_ns() - now
            return 0 if self._window is not None else self._resume_ns
        except Exception as error:
            self._fail(error)
            return NEVER
        finally:
            self._turns.append(None)

    def switch(self, key: Key) -> None:
        """Another stream is current from here on: whatever was queued on this one so far is of the span that was open."""
        if self.broken or self._window is None or not self._alone():
            return
        try:
            self._mark(key)
        except Exception as error:
            self._fail(error)
        finally:
            self._turns.append(None)

    def wait_begins(self, key: Key, everything: bool = False, is_short: bool = True) -> Wait | None:
        """The host is going to block in a span; `is_short`: it copies next to nothing itself. Answers what `wait_ends` wants;
        None where nothing is measured now."""
        if self.broken or self._window is None or not self._alone():
            return None
        try:
            before = self._backend.now_ns()
            mark = self._mark(key, join=True)
            window = self._window
            if window is None or mark is None:
                return None
            wait = Wait(key, self._backend.now_ns(), mark, everything, is_short)
            self.cost_ns += wait.begin_ns - before
            window.waits.append(wait)
            return wait
        except Exception as error:
            self._fail(error)
            return None
        finally:
            self._turns.append(None)

    def wait_ends(self, wait: Wait) -> None:
        try:
            wait.end_ns = self._backend.now_ns()
        except Exception as error:
            self._fail(error)

    def _alone(self) -> bool:
        """May this thread go on? Nobody waits. A lock would be a wait that the recorder sees; taking the one item of a list is
        as atomic."""
        try:
            self._turns.pop()
            return True
        except IndexError:
            return False

    @property
    def is_open(self) -> bool:
        """Is something measured now?"""
        return self._window is not None

    def poll(self, closing: bool = False) -> bool:
        """Resolve what the device has reached; True when nothing is left. `closing`: the window ends here."""
        if self.broken:
            return True
        if not self._alone():
            return False
        try:
            if closing:
                now = self._backend.now_ns()
                if self._window is not None:
                    self._close(now)
                self._stand(now)
            self._resolve_done()
            return not self._pending
        except Exception as error:
            self._fail(error)
            return True
        finally:
            self._turns.append(None)

    def numbers(self) -> dict[str, Any]:
        """Everything so far, as it is kept in the session."""
        return {
            "measured_ns": self.measured_ns, "covered_ns": self.covered_ns, "busy_ns": round(self.busy_ns),
            "cost_ns": self.cost_ns, "marks": self.marks,
            "windows": self.windows, "dropped": self.dropped, "missed": self.missed, "unresolved": len(self._pending),
            "broken": self.broken,
            "labels": [{"key": list(key), **label.numbers()} for key, label in list(self.labels.items())],
            "pairs": [{"in": list(a), "for": list(b), "ns": round(ns)} for (a, b), ns in list(self.pairs.items())],
        }  # fmt: skip

    # ---- marks and windows ----

    def _label(self, key: Key) -> Times:
        label = self.labels.get(key)
        if label is None:
            if len(self.labels) >= MOST_KEYS:
                key = BETWEEN
            label = self.labels.setdefault(key, Times())
        return label

    def _turn(self, now: int) -> None:
        """Between two spans: end a window that is long enough, begin one if the budget allows, resolve an old one."""
        if not self.began_ns:
            self.began_ns = self._told_ns = now
        window = self._window
        if window is not None and (now - window.begin_ns >= self._window_ns or len(window.marks) >= MOST_MARKS):
            self._close(now)
        if self._pending and self._window is None:
            self._resolve_done()
        if self._window is None and now >= self._resume_ns:
            if len(self._pending) < MOST_PENDING:
                self._stand()
                self._window = Window(now)
            else:
                self._resume_ns = now + self._window_ns

    def _stand(self, upto: int | None = None) -> None:
        """The last window stands for the time since the one before it, the very last also for what is left: a slow beginning
        stands for itself alone."""
        if self._pending and not self._pending[-1].stands_ns:
            last = self._pending[-1]
            upto = upto or last.end_ns
            last.stands_ns = max(1, upto - self._told_ns)
            self._told_ns = upto

    def _close(self, now: int) -> None:
        window = self._window
        assert window is not None
        self._mark(BETWEEN, join=True)  # so that the work since the mark before is in the window
        self._window = None
        if window.marks:
            window.end_ns = now
            self._pending.append(window)
        owed = max(0, self.cost_ns - self._allowance_ns) / self._budget
        self._resume_ns = max(now, self._resume_ns, self.began_ns + int(owed))

    def _mark(self, owner: Key, join: bool = False) -> Mark | None:
        """An event on the current stream. What was queued since the stream's last mark belongs to the span that was open then;
        from here on it is `owner`'s. `join`: right after another mark, that one serves."""
        backend, window = self._backend, self._window
        if window is None:
            return None
        before, stream = backend.now_ns(), backend.current()
        last = window.last.get(stream)
        if join and last is not None and before - last.after_ns < CLOSE_NS:
            window.owners[stream] = owner
            return last
        event = self._take(stream[0])
        if event is None:
            self._drop(window, before)
            return None
        if last is not None:
            self._ask(last, before)
        backend.record(event)
        after = backend.now_ns()
        mark = Mark(stream, event, before, after, window.owners.get(stream) if last is not None else None)
        window.marks.append(mark)
        window.last[stream] = mark
        window.owners[stream] = owner
        self.marks += 1
        return mark

    def _ask(self, mark: Mark, now: int) -> None:
        """Has the device reached a mark by now? Either answer ties the clocks."""
        if self._backend.is_done(mark.event):
            mark.done_ns = self._backend.now_ns()
        else:
            mark.busy_ns = now

    def _take(self, device: int) -> Any:
        if self._free.get(device):
            return self._free[device].pop()
        if self._made >= self._pool_size:
            others = next((events for events in self._free.values() if events), None)
            if others is None:
                return None
            others.pop()  # one for one
            self._made -= 1
        self._made += 1
        return self._backend.make_event()

    def _give_back(self, marks: Iterable[Mark]) -> None:
        for mark in marks:
            self._free.setdefault(mark.stream[0], []).append(mark.event)

    def _drop(self, window: Window, now: int) -> None:
        """No event is left: the device is far behind. What was marked of this window tells nothing without its end."""
        self.dropped += 1
        self._give_back(window.marks)
        window.marks.clear()
        self._window = None
        self._resume_ns = now + RETRY_NS

    def _fail(self, error: Exception) -> None:
        if not self.broken:
            self.broken = f"{type(error).__name__}: {error}"[:200] or "failed"
            self._window = None
            self._note(f"device times are switched off for this process ({self.broken})")

    # ---- resolution ----

    def _resolve_done(self) -> None:
        while self._pending and self._pending[0].stands_ns:
            window = self._pending[0]
            if not all(self._backend.is_done(mark.event) for mark in window.last.values()):
                break
            used = [anchor[0] for anchor in self._anchors.values()]
            self._resolve(window)
            kept = {id(anchor[0]) for anchor in self._anchors.values()}
            self._give_back(mark for mark in (*used, *window.marks) if id(mark) not in kept)
            self._pending.pop(0)

    def _resolve(self, window: Window) -> None:
        reached = self._times(window)
        length = max(1, window.end_ns - window.begin_ns)
        scale = window.stands_ns / length
        before: dict[tuple[int, int], Mark] = {}
        segments: list[Segment] = []
        sure: dict[int, list[tuple[int, int]]] = {}
        for mark in window.marks:
            at = reached[id(mark)]
            first = before.get(mark.stream)
            before[mark.stream] = mark
            if first is None or mark.owner is None:
                known = max((end for _, end, where, _ in self._recent if where == mark.stream), default=0)
                segments.append((max(window.begin_ns, known), at, mark.stream, EARLIER))
                continue
            start = reached[id(first)]
            label = self._label(mark.owner)
            label.host_ns += scale * max(0, mark.before_ns - first.after_ns)
            label.most_ns += scale * max(0, at - start)
            known = start if start > mark.after_ns else mark.after_ns + LATENCY_NS
            if at > known:
                label.least_ns += scale * (at - known)
                sure.setdefault(mark.stream[0], []).append((known, at))
            segments.append((start, at, mark.stream, mark.owner))
        for key, count in window.spans.items():
            self._label(key).spans += scale * count
        self.busy_ns += scale * sum(union_ns(intervals) for intervals in sure.values())
        self.covered_ns += window.stands_ns
        self.measured_ns += length
        self.windows += 1
        reach = [*self._recent, *segments]
        in_order = sorted(reach)
        for wait in window.waits:
            self._charge(wait, in_order, reached[id(wait.mark)], scale)
        self._recent = reach[-MOST_RECENT:]

    def _times(self, window: Window) -> dict[int, int]:
        """When the device reached each mark, in the host's time. A device's clock has its own beginning; what is known of it is
        an interval. No mark is reached before it was queued, or while it was asked for in vain; none after it was found
        reached, or after a wait for it. From one window to the next the device's own clock carries the interval on.

        Within it the earliest is taken: a mark that finds an idle device is reached at once. Where a wait ends long after that,
        and nothing was found reached before, the queue never ran dry: its end tells, if it copied nothing much itself."""
        reached: dict[int, int] = {}
        for device in {mark.stream[0] for mark in window.marks}:
            marks = [mark for mark in window.marks if mark.stream[0] == device]
            first = marks[0]
            clock = {id(m): int(self._backend.elapsed_ns(first.event, m.event)) if m is not first else 0 for m in marks}
            waits = [wait for wait in window.waits if id(wait.mark) in clock and wait.end_ns > wait.begin_ns]  # it has ended
            low = max(max(mark.after_ns, mark.busy_ns) - clock[id(mark)] for mark in marks)
            high = min((mark.done_ns - clock[id(mark)] for mark in marks if mark.done_ns), default=NEVER)
            high = min((high, *(wait.end_ns - clock[id(wait.mark)] for wait in waits)))
            low, high = self._carry(device, first, low, high)
            ends = [wait.end_ns - clock[id(wait.mark)] for wait in waits if wait.is_short]
            never_dry = ends and high - low > 10 * JITTER_NS and min(ends) - JITTER_NS <= high
            offset = high - JITTER_NS if never_dry else low
            reached |= {key: at + offset for key, at in clock.items()}
            last = marks[-1]
            self._anchors[device] = (last, low + clock[id(last)], min(NEVER, high + clock[id(last)]))
        return reached

    def _carry(self, device: int, first: Mark, low: int, high: int) -> tuple[int, int]:
        """A window's interval with what the ones before said; without it where the two contradict each other."""
        anchor = self._anchors.get(device)
        if anchor is None:
            return low, max(low, high)
        mark, earliest, latest = anchor
        gone = self._backend.elapsed_ns(mark.event, first.event)
        both = max(low, int(earliest + gone * (1 - DRIFT))), min(high, int(latest + gone * (1 + DRIFT)))
        return both if both[0] <= both[1] else (low, max(low, high))

    def _charge(self, wait: Wait, segments: Iterable[Segment], reached_ns: int, scale: float) -> None:
        """Share a wait out over the work that was outstanding, in the order the device did it. On its own stream that ends with
        the mark taken just before; what it took from there on is its own copy."""
        whole = max(0, wait.end_ns - wait.begin_ns)
        at, charged = wait.begin_ns, 0
        for start, end, where, owner in segments:
            own = where == wait.mark.stream
            begin, upto = max(start, at), min(end, wait.end_ns, reached_ns if own else end)
            if upto <= begin or not (own or wait.everything):
                continue
            ns, at = upto - begin, upto
            charged += ns
            self._label(owner).waited_ns += scale * ns
            self._pair(wait.key, owner, scale * ns)
        label = self._label(wait.key)
        label.blocked_ns += scale * whole
        label.copy_ns += scale * (whole - charged)
        label.host_ns = max(0.0, label.host_ns - scale * whole)

    def _pair(self, inside: Key, owner: Key, ns: float) -> None:
        if len(self.pairs) < MOST_KEYS or (inside, owner) in self.pairs:
            self.pairs[inside, owner] = self.pairs.get((inside, owner), 0) + ns


def union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """
    >>> union_ns([(0, 10), (5, 20), (30, 40)])
    30
    """
    total, upto = 0, None
    for start, end in sorted(intervals):
        total += max(0, end - (start if upto is None else max(start, upto)))
        upto = end if upto is None else max(upto, end)
    return total
