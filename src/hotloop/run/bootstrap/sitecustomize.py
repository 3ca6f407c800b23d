"""Run by every Python process below `hotloop run`, because this folder is first on their PYTHONPATH.

It steps aside for the user's own sitecustomize, then starts the recorder. Whatever goes wrong here is one line on standard
error; the script runs on as if nothing had been there.
"""

import os
import sys


def _step_aside() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401  the next one on the path
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours


def _begin() -> None:
    try:
        import hotloop.run.child  # noqa: F401
    except Exception as error:
        print(
            f"HotLoop could not start in process {os.getpid()} ({type(error).__name__}: {error}); it is not recorded.",
            file=sys.stderr,
        )


_step_aside()
_begin()
