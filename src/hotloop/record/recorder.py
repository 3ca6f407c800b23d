"""A recording from start to stop: the session's directory, the hooks, child processes.

What lives here: the life cycle that both recorders share. Who may touch it: `api`. Invariant: whatever fails here is
counted and warned about once; training goes on.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .. import errors
from ..store import schema
from . import imports

if TYPE_CHECKING:
    import subprocess

MB = 1 << 20
# A session stays within 64 MB: the first process may take 28, each of the next 15 takes 2.3.
DEFAULTS: dict[str, Any] = {
    "directory": None,
    "clock": 0,
    "armed": False,
    "is_child": False,
    "budget": 28 * MB,
    "child_budget": 2 * MB + 300 * 1024,
    "ring_events": 32768,
    "child_ring_events": 4096,
    "log_events": 262144,
    "child_log_events": 8192,
    "iter_units": 16,
    "child_iter_units": 2,
    "long_ns": 10_000_000,
    "costs": (0, 0, 0),
    "epoch": 1,
    "peak_method": 0,
    "parent_shard": 0,
    "sample_us": 0,  # interval of the stack sampler; 0: none
    "child_sample_us": 0,
}
# Microseconds between two samples of the stacks, in the main process and in the others.
INTERVALS_US = {"on": (10_000, 25_000), "few": (50_000, 0), "off": (0, 0)}
SESSION_VARIABLE = "HOTLOOP_SESSION"  # set for child processes; read by `api` alone


def sampling_options(lines: str) -> dict[str, Any]:
    """What a recording is told about sampling: `lines` is on, few or off."""
    own, others = INTERVALS_US[lines]
    return {"sample_us": own, "child_sample_us": others}


class Recording:
    """The one recording of this process."""

    def __init__(self, recorder: ModuleType) -> None:
        self.recorder = recorder
        self.path: Path | None = None
        self.owner = False  # this process started the session, so it writes session.json
        self.pid = 0
        self.began = (0.0, 0.0)  # wall and processor seconds
        self.meta: dict[str, Any] = {}
        self.hooks: list[str] = []
        self._bootstrap: Any = None  # multiprocessing's own
        self._sources: ModuleType | None = None  # imported early: at the end that is too late, see _stop_sidecar()
        self.sidecar: subprocess.Popen[bytes] | None = None
        self.costs: tuple[int, int, int] | None = None
        self._warned: set[str] = set()
        from .functions import decorate
        from .memory import MemorySpan
        from .yields import yield_site

        recorder.set_callbacks(
            yield_check=yield_site,
            memory_span=lambda zone: MemorySpan(recorder, zone),
            decorate=lambda zone, function: decorate(recorder, zone, function),
        )

    # ---- life ----

    def begin(self, name: str, out: str | os.PathLike[str], system: bool = False, **options: Any) -> Path:
        """Start a session below `out`; answers its directory, which may not exist if the disk refused."""
        session = new_session_directory(Path(out), name)
        directory: str | None = None
        try:
            (session / schema.SHARD_DIR).mkdir(parents=True)
            directory = str((session / schema.SHARD_DIR).resolve())
        except OSError as error:
            self._disk_trouble(session, error)
        self.path, self.owner = session, True
        if options.get("sample_us"):
            from ..store import sources

            self._sources = sources
        self._open(directory, options)
        self.meta = self._describe(name, options)
        self.write_meta()
        if self.recorder.disk_error() and directory:
            self._disk_trouble(session, OSError(self.recorder.disk_error(), os.strerror(self.recorder.disk_error())))
        elif directory:
            os.environ[SESSION_VARIABLE] = str(session.resolve())
        if system and directory:
            self._start_sidecar(session)
        self.recorder.charge()  # all of this was ours
        return session

    def _start_sidecar(self, session: Path) -> None:
        """A process that samples CPU, memory and GPU; it leaves when we close its input or die."""
        import subprocess

        environment = {key: value for key, value in os.environ.items() if not key.startswith("HOTLOOP")}
        try:
            self.sidecar = subprocess.Popen(
                [sys.executable, "-m", "hotloop.run.system", str(os.getpid()), str(session.resolve())],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
            )  # fmt: skip
        except OSError as error:
            self.warn(
                "sidecar",
                f"HotLoop cannot start its sampler ({error.strerror or error}); there will be no CPU and GPU figures.",
            )

    def _stop_sidecar(self) -> None:
        sidecar, self.sidecar = self.sidecar, None
        if sidecar is None or os.getpid() != self.pid:
            return
        # Not imported for nothing: at exit that changes the exit code after Ctrl-C, because evaluating a string (named tuples
        # do) makes Python forget that a KeyboardInterrupt is on its way out.
        import subprocess

        try:
            if sidecar.stdin is not None:
                sidecar.stdin.close()
            sidecar.wait(2)
        except (OSError, subprocess.TimeoutExpired):
            sidecar.kill()
            sidecar.wait()

    def join(self, session: Path, root: bool = False) -> None:
        """Record into a session that another process started. The `root` is the one that counts as the main process and records
        at once; the others make their shard at their first span."""
        self.path, self.owner = session, False
        self._open(str(session / schema.SHARD_DIR), {**_options_of(session), "armed": not root, "is_child": not root})
        self._name_after_worker()

    def _open(self, directory: str | None, options: dict[str, Any]) -> None:
        from . import host
        from .memory import meter

        settings = {**DEFAULTS, **options}
        settings["directory"] = directory
        if self.costs is None:
            from .calibrate import span_costs

            self.costs = span_costs(self.recorder, settings)
        settings["costs"] = self.costs
        settings["peak_method"] = meter.prepare()
        self.pid = os.getpid()
        self.began = (time.perf_counter(), host.cpu_seconds())
        self.recorder.open(**settings)
        self._install_hooks()

    def end(self) -> Path | None:
        """Stop recording; answers the session's directory."""
        from . import memory

        path = self.path
        if os.getpid() == self.pid:
            self.recorder.settle()
            self._remove_hooks()
            self.recorder.charge()
        self.recorder.close()
        memory.finish(self.recorder)
        self._stop_sidecar()
        if self.owner and os.getpid() == self.pid:
            if os.environ.get(SESSION_VARIABLE):
                del os.environ[SESSION_VARIABLE]
            self._keep_sources()
            self.meta["end_unix_s"] = time.time()
            self.meta["ended"] = True
            self.meta["resources"] = self.resources()
            self.write_meta()
        self.path = None
        return path

    def _keep_sources(self) -> None:
        """The text of the lines that were sampled, while the files are those that ran."""
        if self._sources is None or self.path is None or not self.path.is_dir():
            return
        try:
            self._sources.keep_sources(self.path, self._sources.places_in(self.path / schema.SHARD_DIR))
        except OSError as error:
            self._disk_trouble(self.path, error)

    # ---- what a session says of itself ----

    def resources(self) -> dict[str, Any]:
        """What was used of the machine since the recording began."""
        from ..store import system
        from . import host

        used = host.resources(time.perf_counter() - self.began[0], host.cpu_seconds() - self.began[1])
        return used | (system.summarise(system.read_samples(self.path)) if self.path is not None else {})

    def _describe(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        from . import host
        from .backend import why_not_native

        inside, outside, error = self.costs or (0, 0, 0)
        return {
            "schema": schema.VERSION,
            "tool": "hotloop",
            "name": name,
            "pid": os.getpid(),
            "start_unix_s": time.time(),
            "ended": False,
            "command": host.redact([sys.executable, *sys.orig_argv[1:]]),
            "cwd": host.working_directory(),
            "git": host.git_commit(host.working_directory()),
            "host": host.describe(),
            "versions": host.loaded_versions(),
            "recorder": {"native": bool(self.recorder.NATIVE), "why_not_native": why_not_native, "waits_hooked": self.hooks},
            "own_cost_ns": {"inside": inside / 1000, "outside": outside / 1000, "error": error / 1000},
            "options": {key: value for key, value in options.items() if isinstance(value, (int, float, str, bool))},
        }

    def write_meta(self) -> None:
        if self.path is None or not self.path.is_dir():
            return
        from ..store.writer import write_json

        try:
            write_json(str(self.path / schema.SESSION_FILE), self.meta)
        except OSError as error:
            self._disk_trouble(self.path, error)

    def _disk_trouble(self, where: Path, error: OSError) -> None:
        self.warn(
            "disk",
            f"HotLoop cannot write to {where} ({error.strerror or error}); training goes on and is measured in memory. "
            "Free some space or pass another directory: start(out=...).",
        )

    def warn(self, kind: str, text: str) -> None:
        """Say it once."""
        if kind in self._warned:
            return
        self._warned.add(kind)
        warn(text, 5)

    # ---- hooks ----

    def _install_hooks(self) -> None:
        recorder = self.recorder
        from . import handoff, tasks

        self.hooks = recorder.hook_waits()
        imports.when_imported("concurrent.futures.thread", lambda m: handoff.install(recorder, m.ThreadPoolExecutor))
        imports.when_imported("concurrent.futures.process", lambda m: handoff.install(recorder, m.ProcessPoolExecutor))
        imports.when_imported("asyncio.events", lambda m: tasks.install(recorder, m))
        imports.when_imported("multiprocessing.util", self._close_in_workers)
        imports.when_imported("multiprocessing.process", self._name_spawned)

    def _remove_hooks(self) -> None:
        from . import handoff, tasks

        imports.forget()
        self.recorder.unhook_waits()
        handoff.uninstall()
        tasks.uninstall()
        if self._bootstrap is not None:
            sys.modules["multiprocessing.process"].BaseProcess._bootstrap = self._bootstrap
            self._bootstrap = None

    def _close_in_workers(self, util: Any) -> None:
        """A multiprocessing worker leaves by `os._exit`, past every exit hook but multiprocessing's own."""
        util.register_after_fork(self, Recording._in_worker)

    def _name_spawned(self, module: Any) -> None:
        """A spawned worker runs no after-fork hook, and joins before it knows its name."""
        original = self._bootstrap = module.BaseProcess._bootstrap

        def _bootstrap(process: Any, *args: Any, **keywords: Any) -> Any:
            if getattr(process, "_start_method", "") == "spawn":
                self.recorder.name_process(process.name)
                sys.modules["multiprocessing.util"].Finalize(None, self.recorder.close, exitpriority=-100)
            return original(process, *args, **keywords)

        module.BaseProcess._bootstrap = _bootstrap

    def _in_worker(self) -> None:
        self._name_after_worker()
        sys.modules["multiprocessing.util"].Finalize(None, self.recorder.close, exitpriority=-100)

    def _name_after_worker(self) -> None:
        process = sys.modules.get("multiprocessing.process")
        name = getattr(getattr(process, "_current_process", None), "_name", "")
        if name and name != "MainProcess":
            self.recorder.name_process(name)


def warn(text: str, stacklevel: int) -> None:
    """Never raises: not even where warnings are errors."""
    import warnings

    try:
        warnings.warn(text, errors.HotloopWarning, stacklevel=stacklevel)
    except Warning:
        print(text, file=sys.stderr)


def _options_of(session: Path) -> dict[str, Any]:
    """What the parent's start() was told, for its children."""
    import json

    try:
        options = json.loads((session / schema.SESSION_FILE).read_bytes())["options"]
        return {key: options[key] for key in options if key in DEFAULTS}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def safe_name(name: str) -> str:
    """A name as one part of a path."""
    return ("".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip(".") or "session")[:100]


def new_session_directory(out: Path, name: str) -> Path:
    """`out/NAME-TIME`, a new one; a name never leads out of `out`."""
    safe = safe_name(name)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    session = out / f"{safe}-{stamp}"
    number = 2
    while session.exists():
        session = out / f"{safe}-{stamp}-{number}"
        number += 1
    return session
