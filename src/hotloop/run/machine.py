"""The constants of this machine: as they were measured before, or measured now.

What lives here: asking the file, starting the measuring process (`run/calibration.py`). Invariant: at most MOST_S seconds; what
fails costs the constants, never the report.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ..errors import HotloopError
from ..model.machine import Machine
from ..record import host
from ..store.machine import MACHINE_FILE, fingerprint, keep, machine_data, parse_machine, read_kept
from ..store.writer import write_json

MOST_S = 20.0  # beside others on a slow machine; alone it takes 3 to 5


def calibrate() -> tuple[Machine, Path]:
    """Measure, and keep; answers the file too."""
    words = [sys.executable, "-m", "hotloop.run.calibration"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOTLOOP")}
    try:
        done = subprocess.run(words, capture_output=True, timeout=MOST_S, env=environment)
        machine = parse_machine(json.loads(done.stdout or b"null"))
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise HotloopError(
            f"this machine could not be measured ({type(error).__name__}); try again when it is less busy"
        ) from None
    if not machine.call_ns:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise HotloopError(f"this machine could not be measured ({last[:200] or 'nothing was said'})")
    return machine, keep(fingerprint(host.describe()), machine)


def constants_for(session: Path) -> None:
    """Put the constants beside a session that was just recorded; measured now where they are not known yet."""
    machine = read_kept(fingerprint(host.describe()))
    try:
        write_json(str(session / MACHINE_FILE), machine_data(machine if machine is not None else calibrate()[0]))
    except (HotloopError, OSError):
        pass  # the report does without
