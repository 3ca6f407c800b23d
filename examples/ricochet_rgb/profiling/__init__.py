"""The document's import path; HotLoop does the work.

from profiling import profile, profile_function, get_profiler
"""

from hotloop import get_profiler, profile, profile_function

# The document calls three of its training operations simulated. Here they are the training, and are named so.
REAL_NAMES = {
    "training_total": "training_total",
    "simulated_training_step": "training_step",
    "simulated_data_collection": "training_data_collection",
    "simulated_model_update": "training_model_update",
}

__all__ = ["REAL_NAMES", "get_profiler", "profile", "profile_function"]
