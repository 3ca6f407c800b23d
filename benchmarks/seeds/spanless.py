"""Run a script as if it had never heard of HotLoop: its own spans do nothing. For `hotloop run spanless.py SCRIPT ARGUMENTS`.

The script's imports of `hotloop` still work; spans, steps and counts in it have no effect, so whatever is found was found by
the hooks and the lines alone.
"""

import contextlib
import runpy
import sys
from pathlib import Path

import hotloop


class _Nothing(contextlib.ContextDecorator):
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def _profile_function(name=None, track_memory=False):
    return name if callable(name) else lambda function: function


for module in (hotloop, hotloop.api):
    module.profile = lambda name, track_memory=False: _Nothing()
    module.profile_function = _profile_function
    module.step = lambda: None
    module.count = lambda name, n=1: None
sys.argv = sys.argv[1:]
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
runpy.run_path(sys.argv[0], run_name="__main__")
