"""The one thing pyproject.toml cannot say well: the C extension is optional. Without a compiler the Python twin serves."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "hotloop.record._zone",
            ["src/hotloop/record/native/_zone.c"],
            depends=[f"src/hotloop/record/native/{name}.h" for name in ("layout", "clock", "shard", "tree", "track", "hot", "lift", "rows", "waits")],
            extra_compile_args=["-O2", "-std=gnu11", "-fvisibility=hidden", "-fno-semantic-interposition"],
            optional=True,
        )
    ]
)
