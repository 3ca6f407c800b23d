"""The one thing pyproject.toml cannot say well: the C extension is optional. Without a compiler the Python twin serves."""

import os

from setuptools import Extension, setup

NATIVE = "src/hotloop/record/native"
HEADERS = (
    "faults", "layout", "clock", "shard", "tree", "track", "hot", "lift", "rows", "waits", "frames", "states", "sampler",
    "phases", "environments", "hooks", "zones", "profiled",
)  # fmt: skip
FLAGS = os.environ.get("NATIVE_FLAGS", "-O2").split()  # benchmarks/native_checks.py sets others

setup(
    ext_modules=[
        Extension(
            "hotloop.record._zone",
            [f"{NATIVE}/_zone.c"],
            depends=[f"{NATIVE}/{name}.h" for name in HEADERS],
            extra_compile_args=[*FLAGS, "-std=gnu11", "-fvisibility=hidden", "-fno-semantic-interposition"],
            extra_link_args=[flag for flag in FLAGS if flag.startswith(("-fsanitize", "--coverage"))],
            optional=True,
        )
    ]
)
