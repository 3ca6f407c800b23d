"""The deep window: which iterations `torch.profiler` watches, as the command line and the API say it.

What lives here: the settings, and reading them from text or a mapping. Invariant: what does not make sense is one sentence with
the next step, before training begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..errors import UsageError

MOST_STEPS = 1000
MOST_ACTIVE = 100  # every one of them is megabytes
TRACE_FILE = "torch_trace.json"


@dataclass(frozen=True, slots=True)
class TraceSettings:
    enabled: bool = True
    wait_steps: int = 2  # iterations that are left alone
    warmup_steps: int = 2  # the profiler runs, and nothing is kept
    active_steps: int = 4  # kept
    record_shapes: bool = False
    gzip: bool = False

    @property
    def file(self) -> str:
        return TRACE_FILE + ".gz" * self.gzip

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse_trace(text: str) -> TraceSettings:
    """As on the command line.

    >>> parse_trace("wait=1,active=3,record_shapes")
    TraceSettings(enabled=True, wait_steps=1, warmup_steps=2, active_steps=3, record_shapes=True, gzip=False)
    """
    said: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (x.strip() for x in word.partition("="))
        if name in ("record_shapes", "gzip") and not equals:
            said[name] = True
        elif name in ("wait", "warmup", "active") and value.isdecimal():
            said[f"{name}_steps"] = int(value)
        else:
            raise UsageError(f"--torch-trace does not know `{word}`; write for example wait=2,warmup=2,active=4,record_shapes")
    return trace_settings(said)


def trace_settings(said: Mapping[str, Any]) -> TraceSettings:
    """From a mapping with the names of the settings."""
    known = {field.name: field.type for field in fields(TraceSettings)}
    for name, value in said.items():
        if name not in known:
            raise UsageError(f"torch_trace has no setting `{name}`; it has {', '.join(known)}")
        if type(value).__name__ != known[name]:
            raise UsageError(
                f"torch_trace: `{name}` takes {'a whole number' if known[name] == 'int' else 'True or False'}, not {value!r}"
            )
    settings = TraceSettings(**said)
    if min(settings.wait_steps, settings.warmup_steps) < 0 or max(settings.wait_steps, settings.warmup_steps) > MOST_STEPS:
        raise UsageError(f"torch_trace: wait and warm-up are 0 to {MOST_STEPS} iterations")
    if not 1 <= settings.active_steps <= MOST_ACTIVE:
        raise UsageError(
            f"torch_trace: 1 to {MOST_ACTIVE} active iterations, not {settings.active_steps}; a few show what all do"
        )
    return settings
