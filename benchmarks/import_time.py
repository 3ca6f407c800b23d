"""What `import hotloop` adds to starting Python.

python benchmarks/import_time.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Table


def start(code: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - begin) * 1e3


def main() -> int:
    for code in ("pass", "import hotloop"):
        start(code)
    extra = [start("import hotloop") - start("pass") for _ in range(41)]
    listing = (
        "import sys, hotloop; names = {m.partition('.')[0] for m in sys.modules};"
        "print(*names - set(sys.stdlib_module_names) - {'hotloop', '__main__'})"
    )
    foreign = subprocess.run(
        [sys.executable, "-Sc", f"import sys; sys.path[:0] = {sys.path!r}; {listing}"],
        capture_output=True,
        text=True,
        check=True,
    )
    table = Table("import time")
    table.add("import hotloop over bare Python", statistics.median(extra), 25, "ms")
    table.add("third-party modules loaded", len(foreign.stdout.split()), 0, "", note=foreign.stdout.strip())
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
