"""The document's core profiler is HotLoop's."""

from hotloop import get_global_profiler, get_profiler

__all__ = ["get_global_profiler", "get_profiler"]
