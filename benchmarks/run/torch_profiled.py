"""Run a script inside torch.profiler: `python torch_profiled.py script.py args…`.

No trace is written: it would be gigabytes, and the loop bears the recording only.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

script = sys.argv[1]
sys.argv = sys.argv[1:]
sys.path[0] = str(Path(script).parent)
with profile(activities=[ProfilerActivity.CPU]):
    runpy.run_path(script, run_name="__main__")
