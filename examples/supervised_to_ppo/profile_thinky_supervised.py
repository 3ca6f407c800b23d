#!/usr/bin/env python3
"""The document's profiling script, from here: runs recipes/experiment/cvc/profile_thinky_supervised.py."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).with_name("recipes") / "experiment/cvc/profile_thinky_supervised.py"), run_name="__main__")
