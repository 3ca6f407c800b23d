"""The one global profiler, and the names users import.

What lives here: the only mutable global of the package, and the only reader of `HOTLOOP*` variables, once, at import:
    HOTLOOP=1                 record from the start
    HOTLOOP_SESSION=DIR       join that session (set by a recording parent for its children)
    HOTLOOP_RUN=root          this is the main process of that session (set by `hotloop run`, for one process)
    HOTLOOP_RECORDER=python   use the Python recorder
Invariant: off until asked; after start, nothing here raises into training.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .errors import HotloopError
from .record import backend

if TYPE_CHECKING:
    from .record._zone import Zone
    from .record.recorder import Recording

_F = TypeVar("_F", bound=Callable[..., Any])

_environment = {key: os.environ.get(key, "") for key in ("HOTLOOP", "HOTLOOP_SESSION", "HOTLOOP_RUN", "HOTLOOP_RECORDER")}
os.environ.pop("HOTLOOP_RUN", None)
_recorder = backend.choose(python=_environment["HOTLOOP_RECORDER"] == "python")

if TYPE_CHECKING:
    from .record._zone import count as count
    from .record._zone import profile as profile
    from .record._zone import step as step
else:
    profile = _recorder.profile
    step = _recorder.step
    count = _recorder.count


class Profiler:
    """The process's profiler; get it with `get_profiler()`.

    >>> from hotloop import get_profiler
    >>> get_profiler() is get_profiler()
    True
    """

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self._last: bytes = b""  # the last session's shard, so that its summary outlives stop()
        self._last_resources: dict[str, Any] = {}
        self._paused = False
        self._warned = False
        self._at_exit = False
        self.after_all: Callable[[], None] | None = None  # what is done when the script and its recording have ended
        self._windows: list[Callable[[], None]] = []  # what ends deep windows and device times

    # ---- life ----

    @property
    def enabled(self) -> bool:
        """Is a session recording now?"""
        return self._recording is not None and not self._paused

    @property
    def path(self) -> Path | None:
        """The directory of the session that records now."""
        return self._recording.path if self._recording is not None else None

    def start(
        self,
        name: str | None = None,
        out: str | os.PathLike[str] = "runs",
        print_every: int = 0,
        summary_every: int = 0,
        system: bool = False,
        torch_trace: Mapping[str, Any] | None = None,
        device: bool = False,
        lines: bool = True,
        **options: Any,
    ) -> Path:
        """Start a session in a new directory `out/NAME-TIME` and answer its path.

        `print_every=N` prints the timing of the latest iterations every N of them, `summary_every=N` the summary table every
        N env steps (iterations, where none are counted). `system=True` starts a process that samples CPU, memory and GPU.
        `torch_trace={"wait_steps": 2, "warmup_steps": 2, "active_steps": 4, "record_shapes": True}` runs `torch.profiler` over
        those iterations and writes `torch_trace.json` into the session. `device=True` adds the device's times, copies and waits
        to the spans once the script uses CUDA. A thread of ours samples the script's lines; `lines=False` leaves it out.
        """
        if self._recording is not None and self._recording.path is not None:
            if self._paused:
                self.enable()
            elif self._recording.owner and not self._warned:
                self._warned = True
                self._recording.warn("started", f"HotLoop records already, into {self._recording.path}; start() does nothing.")
            return self._recording.path
        from .record.recorder import Recording, sampling_options

        window = _check_trace(torch_trace)
        recording = Recording(_recorder)
        options = {**sampling_options("on" if lines else "off"), **options}
        path = recording.begin(name or _default_name(), out, system, **options)
        self._recording, self._paused = recording, False
        callbacks: list[Callable[[int, int], None]] = []
        if print_every or summary_every:
            from .printing.live import Announcer

            callbacks.append(Announcer(_recorder, print_every, summary_every))
        if window is not None:
            self._watch_deeply(recording, path, window, callbacks)
        if device:
            self._watch_device(recording, path)
        if callbacks or window is not None:  # the deep window comes to the list when torch does
            _recorder.set_on_step(lambda *args: [call(*args) for call in callbacks])
        self._stop_at_exit()
        return path

    def _watch_deeply(
        self, recording: Recording, path: Path, settings: Any, callbacks: list[Callable[[int, int], None]]
    ) -> None:
        """The deep window, once the script has imported torch."""
        from .record import imports

        recording.meta["options"]["torch_trace"] = settings.as_dict()
        recording.write_meta()

        def begin(torch: Any) -> None:
            note = lambda text: recording.warn("torch_trace", f"HotLoop: {text}.")
            window = _integration("deep_window").DeepWindow(_recorder, torch, str(path), settings, note)
            callbacks.append(window.step)
            self._windows.append(window.finish)

        imports.when_imported("torch.profiler", lambda module: begin(sys.modules["torch"]))

    def _watch_device(self, recording: Recording, path: Path) -> None:
        """Device times, once the script uses one."""
        from .record import imports

        def begin(torch: Any) -> None:
            if torch.version.hip:
                recording.warn("device", "HotLoop: device times are read on CUDA only: work on ROCm shows as the host's time.")
            elif torch.version.cuda:
                note = lambda text: recording.warn("device", f"HotLoop: {text}.")
                patches = _integration("_patch").Patches(_recorder, note, str(path))
                self._windows.append(patches.undo)
                _integration("device.cuda").install(patches, torch)

        imports.when_imported("torch", begin)

    def join(self, session: str, root: bool = False) -> None:
        """Record into the session of a parent process, from the first span on; as its main process, at once."""
        from .record.recorder import Recording

        self._recording = Recording(_recorder)
        self._recording.join(Path(session), root)
        self._stop_at_exit()

    def stop(self) -> Path | None:
        """End the session and answer its directory; None if there is none."""
        recording, self._recording = self._recording, None
        if recording is None:
            return None
        _recorder.settle()  # up to here it is the user's time; what follows is ours
        while self._windows:
            self._windows.pop()()
        self._last = _recorder.snapshot()
        _recorder.charge()
        self._paused = False
        _recorder.set_on_step(None)
        path = recording.end()
        self._last_resources = recording.meta.get("resources", {})
        return path

    def enable(self) -> None:
        """Start with defaults, or go on after `disable()`."""
        if self._recording is None:
            self.start()
        elif self._paused:
            self._paused = False
            _recorder.resume()
            _recorder.attach()

    def disable(self) -> None:
        """Pause: spans cost next to nothing, and this time is not part of the session."""
        if self._recording is not None and not self._paused:
            self._paused = True
            _recorder.pause()

    def reset(self) -> None:
        """Forget what this process recorded and begin a new epoch in the same session."""
        self._last = b""
        if self._recording is not None and not self._paused:
            _recorder.reset()
            _recorder.attach()

    def _stop_at_exit(self) -> None:
        if not self._at_exit:
            self._at_exit = True
            import atexit

            atexit.register(self._exit)

    def _exit(self) -> None:
        try:
            self.stop()
        except Exception as error:
            print(f"HotLoop: the session could not be closed ({error}); what was recorded is kept.", file=sys.stderr)
        if self.after_all is not None:
            self.after_all()

    # ---- spans ----

    def profile(self, name: str, track_memory: bool = False) -> Zone:
        """As `hotloop.profile`."""
        if track_memory:
            zone: Zone = profile(name)
            if zone.site is None:
                caller = sys._getframe(1)
                zone.site = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        return profile(name, track_memory)

    def step(self) -> None:
        step()

    def count(self, name: str, n: int = 1) -> None:
        count(name, n)

    # ---- numbers ----

    def _summary(self) -> Any:
        _recorder.settle()  # what was before is the user's; the rest is charged to us
        from .printing.summary import Summary
        from .store.shard import decode

        _recorder.charge()
        data = _recorder.snapshot() or self._last
        try:
            summary = Summary(decode(data)) if data else None
        except HotloopError:  # there was no memory even for the first span
            summary = None
        _recorder.charge()  # the snapshot settled every track; what came after was ours
        return summary

    def _resources(self) -> dict[str, Any]:
        return self._recording.resources() if self._recording is not None else self._last_resources

    def summary(self) -> dict[str, Any]:
        """The numbers of this process so far, in the shape of `summary` in profiling_report.json."""
        summary = self._summary()
        if summary is None:
            return {"total_operations": 0, "operations": {}, "wall_time": 0.0, "coverage": 0.0, "sps": None, "counters": {},
                    "iterations": 0}  # fmt: skip
        result: dict[str, Any] = summary.as_dict()
        return result

    def print_summary(self, width: int | None = None) -> None:
        """Print the table."""
        self._print(lambda summary: summary.text(width))

    def print_components(self, width: int = 80) -> None:
        """Print the components with their parts and bars; one denominator, the wall time."""
        self._print_block("components", width)

    def print_episodes(self) -> None:
        """Print the times per episode, in groups, and what of the machine was used."""
        self._print_block("episodes")

    def print_rollout(self, last: int = 10) -> None:
        """Print the nested times of the latest iterations, in milliseconds, the largest flagged."""
        self._print_block("rollout", last)

    def _print_block(self, view: str, *more: Any) -> None:
        from .printing.blocks import view_text

        self._print(lambda summary: view_text(view, summary.shard, summary.ledger, self._resources(), *more))

    def _print(self, text: Callable[[Any], str]) -> None:
        summary = self._summary()
        if summary is None:
            print("HotLoop has recorded nothing yet: call start(), or set HOTLOOP=1.")
        else:
            print(text(summary))
            _recorder.charge()

    def save_logs(self, name: str | None = None, folder: str | os.PathLike[str] = "logs/profiling") -> tuple[Path, Path] | None:
        """Write `raw/NAME_TIME.json` and `reports/NAME_TIME_summary.txt` below the folder; None, and one warning, if the disk
        refuses."""
        from .printing.blocks import view_text
        from .printing.logs import write_logs
        from .record.recorder import warn

        summary = self._summary()
        if summary is None:
            return None
        text = view_text("episodes", summary.shard, summary.ledger, self._resources())
        try:
            return write_logs(Path(folder), name or _default_name(), {**summary.report(), "resources": self._resources()}, text)
        except OSError as error:
            warn(f"HotLoop cannot write below {os.fspath(folder)} ({error.strerror or error}); the session is kept.", 3)
            return None
        finally:
            _recorder.charge()

    def save(self, path: str | os.PathLike[str] = "profiling_report.json") -> Path | None:
        """Write the JSON report; None, and one warning, if the disk refuses."""
        from .record.recorder import warn
        from .store.writer import write_json

        summary = self._summary()
        report = summary.report() if summary else {"timestamp": "", "summary": self.summary(), "memory_snapshots": []}
        try:
            write_json(os.fspath(path), report)
        except OSError as error:
            warn(f"HotLoop cannot write {os.fspath(path)} ({error.strerror or error}); the numbers are still in memory.", 3)
            return None
        return Path(path)


def _check_trace(said: Mapping[str, Any] | None) -> Any:
    """The settings of the deep window; None where there is to be none."""
    if said is None:
        return None
    from .model.trace import trace_settings

    settings = trace_settings(said)
    return settings if settings.enabled else None


def _integration(name: str) -> Any:
    """By name: what knows torch lies above this module, and is imported when it is asked for."""
    return importlib.import_module(f"hotloop.integrations.{name}")


def is_root() -> bool:
    """Is this the main process of `hotloop run`?"""
    return _environment["HOTLOOP_RUN"] == "root"


def _default_name() -> str:
    script = getattr(sys.modules.get("__main__"), "__file__", None) or (sys.argv[0] if sys.argv else "")
    return Path(script).stem or "session"


_profiler = Profiler()


def get_profiler() -> Profiler:
    """The process's one profiler."""
    return _profiler


get_global_profiler = get_profiler
start, stop = _profiler.start, _profiler.stop


@overload
def profile_function(name: _F) -> _F: ...
@overload
def profile_function(name: str | None = None, track_memory: bool = False) -> Callable[[_F], _F]: ...
def profile_function(name: Any = None, track_memory: bool = False) -> Any:
    """Each call of the function is a span. Bare, or with a name; on methods, async functions and generators too.

    >>> from hotloop import profile_function
    >>> @profile_function
    ... def update(x):
    ...     return x + 1
    >>> update(1)
    2
    """
    from .record.functions import decorate

    def decorator(function: Any) -> Any:
        inner = getattr(function, "__func__", function)
        label = name if isinstance(name, str) else getattr(inner, "__qualname__", type(inner).__name__)
        return decorate(_recorder, profile(label), function, track_memory)

    return decorator(name) if name is not None and not isinstance(name, str) else decorator


if _environment["HOTLOOP_SESSION"]:
    _profiler.join(_environment["HOTLOOP_SESSION"], root=_environment["HOTLOOP_RUN"] == "root")
elif _environment["HOTLOOP"] not in ("", "0"):
    _profiler.start()
