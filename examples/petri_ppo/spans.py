"""Where the framework's time ends and ours begins.

What lives here: two wrappers. TorchRL calls us back (the environment, the networks) in the middle of its own functions, so a
span around one of those would hold everybody's time. Instead the span is handed over at each border: `framework` opens a span
for as long as TorchRL itself runs, `called_back` closes it while our code runs and opens it again after. Nothing is inferred by
subtraction, and no time is left between the spans.

HotLoop charges a span to whoever wrote the file it was opened in: `profile_function` on a function of TorchRL gives TorchRL's.
Under `hotloop run` the wrappers step aside: its hooks stand at the same borders, and spans that end inside each other's would
be cut short.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

from hotloop import profile, profile_function

_HOOKED = "HOTLOOP_SESSION" in os.environ  # recorded from outside, by `hotloop run`
_running: list[Any] = []  # TorchRL's own spans, innermost last; None while we are called back


def framework(label: str, function: Callable[..., Any], own: str = "torchrl") -> Callable[..., Any]:
    """`function` of TorchRL as a span `label`, within it a span `own` whenever TorchRL itself runs."""
    if _HOOKED:
        return function
    whole, part = profile(label), profile(own)
    timed = profile_function(own)(function)

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        _running.append(part)
        try:
            with whole:
                return timed(*arguments, **keywords)
        finally:
            _running.pop()

    return call


def called_back(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which TorchRL calls: while it runs, TorchRL's own span is closed."""
    if _HOOKED:
        return function

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        caller = _running[-1] if _running else None
        if caller is None:
            return function(*arguments, **keywords)
        caller.__exit__(None, None, None)
        _running.append(None)
        try:
            return function(*arguments, **keywords)
        finally:
            _running.pop()
            caller.__enter__()

    return call
