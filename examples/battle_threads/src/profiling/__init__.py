"""The document's import path: `from src.profiling import get_global_profiler`."""

from .logger import network_block, save_session_logs
from .profiler import get_global_profiler, get_profiler

__all__ = ["get_global_profiler", "get_profiler", "network_block", "save_session_logs"]
