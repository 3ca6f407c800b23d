"""The document's `python -m profiling.analyzer --input … --output … --charts … --detailed …` is `hotloop analyze`."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv = ["hotloop", "analyze", *sys.argv[1:]]
    runpy.run_module("hotloop", run_name="__main__", alter_sys=True)
