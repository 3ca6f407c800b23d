"""Where the document keeps its modules: `from src.profiling import get_global_profiler`."""
