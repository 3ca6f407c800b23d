"""What device times are made of: labels' numbers, marks, waits, windows, and what a backend can do.

What lives here: plain holders, no logic; `device` works with them. Invariant: a mark's event is recorded once per window.
"""

from __future__ import annotations

from typing import Any, Protocol

Key = tuple[int, int]  # shard and path of a span, as `here()` says them
BETWEEN: Key = (0, 0)  # no span that is marked
EARLIER: Key = (0, -1)  # queued before the window began


class Backend(Protocol):
    """What the machine needs of a device; streams are (device, stream) and only compared."""

    def now_ns(self) -> int: ...
    def current(self) -> tuple[int, int]: ...
    def make_event(self) -> Any: ...
    def record(self, event: Any) -> None: ...
    def is_done(self, event: Any) -> bool: ...
    def elapsed_ns(self, first: Any, last: Any) -> float: ...


class Times:
    """The numbers of one span's label, scaled to the whole run."""

    __slots__ = ("blocked_ns", "copy_ns", "host_ns", "least_ns", "most_ns", "spans", "waited_ns")

    def __init__(self) -> None:
        self.spans = 0.0
        self.host_ns = 0.0  # the host in it, without what it was blocked: queueing
        self.least_ns = self.most_ns = 0.0  # the device on its work, at least and at most
        self.blocked_ns = 0.0  # the host blocked inside it, whoever's work that was for
        self.copy_ns = 0.0  # of that, what no queued work explains: its own copy
        self.waited_ns = 0.0  # the host blocked anywhere, for work queued in it

    def numbers(self) -> dict[str, int]:
        return {name: round(getattr(self, name)) for name in self.__slots__}


class Mark:
    __slots__ = ("after_ns", "before_ns", "busy_ns", "done_ns", "event", "owner", "stream")

    def __init__(self, stream: tuple[int, int], event: Any, before_ns: int, after_ns: int, owner: Key | None) -> None:
        self.stream, self.event = stream, event
        self.before_ns, self.after_ns = before_ns, after_ns  # our own time lies between the two
        self.busy_ns = self.done_ns = 0  # when it was asked for: not reached yet, reached; 0: not asked
        self.owner = owner  # whose segment ends here; None: the stream's first mark of the window


class Wait:
    """The host blocked until the stream of a mark, or every stream, had done its work."""

    __slots__ = ("begin_ns", "end_ns", "everything", "is_short", "key", "mark")

    def __init__(self, key: Key, begin_ns: int, mark: Mark, everything: bool, is_short: bool = True) -> None:
        self.key, self.begin_ns, self.end_ns, self.mark, self.everything = key, begin_ns, begin_ns, mark, everything
        self.is_short = is_short  # it copies next to nothing itself, so it ends when the mark is reached


class Window:
    def __init__(self, begin_ns: int) -> None:
        self.begin_ns = self.end_ns = begin_ns
        self.stands_ns = 0  # since the window before: how much of the run it speaks for; 0: not known yet
        self.spans: dict[Key, int] = {}
        self.marks: list[Mark] = []
        self.waits: list[Wait] = []
        self.last: dict[tuple[int, int], Mark] = {}  # by stream
        self.owners: dict[tuple[int, int], Key] = {}  # whose span is open since that mark


Segment = tuple[int, int, tuple[int, int], Key]  # from, to (in the host's time), stream, owner
