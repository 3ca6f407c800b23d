"""Which recorder serves: the native one, or the Python one where nothing was compiled.

What lives here: the choice, made once. Everyone inside training gets `recorder` from here.
"""

from __future__ import annotations

from types import ModuleType

why_not_native = ""
recorder: ModuleType  # set by choose()


def choose(python: bool = False) -> ModuleType:
    """Choose the recorder; `python` asks for the twin."""
    global recorder, why_not_native
    if python:
        why_not_native = "HOTLOOP_RECORDER=python asks for the Python recorder"
    else:
        try:
            from . import _zone

            recorder = _zone
            return recorder
        except ImportError as error:
            why_not_native = f"the C extension is not built, or does not load ({error})"
    from . import twin

    recorder = twin
    return recorder
