"""The function-level profile of an arm: one run under cProfile, never one that is timed.

What lives here: `python -m cProfile` as a process of its own, and its 50 dearest functions as text.
"""

from __future__ import annotations

import io
import os
import pstats
import subprocess
import sys
import tempfile
from pathlib import Path

from ..errors import UsageError
from .command import fill
from .runner import Arm

TOP = 50


def write_functions(arm: Arm, file: Path, seed: int) -> Path:
    """The functions by cumulative time, who calls them and whom they call; answers the file."""
    command = fill(arm.command, {**arm.values, "seed": seed})
    with tempfile.TemporaryDirectory(prefix="hotloop-") as scratch:
        data = Path(scratch) / "functions.prof"
        words = [sys.executable, "-m", "cProfile", "-o", str(data), *command.arguments]
        environment = {**os.environ, **arm.environment, "PYTHONHASHSEED": str(seed % 2**32)}
        # A script that starts HotLoop itself records into a session that is thrown away with the scratch folder.
        session = Path(scratch) / "session"
        (session / "shards").mkdir(parents=True)
        environment["HOTLOOP_SESSION"] = str(session)
        done = subprocess.run(
            words, cwd=arm.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if not data.exists():
            last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise UsageError(f"{arm.name} ended with exit code {done.returncode} under cProfile: {last[:200]}")
        text = io.StringIO()
        print(f"{arm.name}: {command.text}", file=text)
        print("cProfile makes Python calls slower: read shares and call counts here, and seconds in the comparison.", file=text)
        stats = pstats.Stats(str(data), stream=text).sort_stats("cumulative")
        print(f"\n==== Top {TOP} functions by cumulative time ====", file=text)
        stats.print_stats(TOP)
        print(f"==== Call hierarchy: who calls them (top {TOP}) ====", file=text)
        stats.print_callers(TOP)
        print(f"==== Call hierarchy: whom they call (top {TOP}) ====", file=text)
        stats.print_callees(TOP)
    file.write_text(text.getvalue(), encoding="utf-8")
    return file
