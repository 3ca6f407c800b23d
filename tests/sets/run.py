"""The tests of libraries that cannot share an environment with the others: `python tests/sets/run.py [NAME ...]`.

Each folder here is a set: its requirements, scripts that train with them, and the tests. Environments are kept in
~/.cache/hotloop-tests and made again when the requirements change.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import environments  # noqa: E402

SETS = sorted(path.parent.name for path in HERE.glob("*/requirements.txt"))


def run_set(name: str) -> str:
    """One line about how it went; empty where all is well."""
    began = time.monotonic()
    lines = (HERE / name / "requirements.txt").read_text().split()
    python = environments.make(f"set-{name}", environments.this_python(), lines, "test-tools")
    if python is None:
        return "its libraries could not be installed"
    print(f"== set {name}: installed in {time.monotonic() - began:.0f} s", flush=True)
    code = environments.run(python, "-m", "pytest", "-q", HERE / name, env={"LIBRARY_SET": name})
    return f"tests failed ({code})" if code else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", choices=[*SETS, []], help=f"all by default: {', '.join(SETS)}")
    results = {name: run_set(name) for name in parser.parse_args().name or SETS}
    for name, wrong in results.items():
        print(f"set {name}: {wrong or 'passed'}")
    return int(any(results.values()))


if __name__ == "__main__":
    sys.exit(main())
