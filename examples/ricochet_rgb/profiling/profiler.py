"""The document's `profiling/profiler.py`: the profiler is HotLoop's."""

from hotloop import Profiler, get_profiler, profile, profile_function

__all__ = ["Profiler", "get_profiler", "profile", "profile_function"]
