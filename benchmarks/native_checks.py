"""The C recorder under sanitizers, and how much of it the contract suite reaches (reliability A12).

    python benchmarks/native_checks.py sanitize     AddressSanitizer and UBSan over the contract, integration and fork tests
    python benchmarks/native_checks.py coverage     lines and branches reached by the contract suite

Builds its own copy in a temporary folder; needs gcc (and gcov).
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Table

ROOT = Path(__file__).resolve().parent.parent


def build(folder: Path, flags: str) -> Path:
    copy = folder / "hotloop"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "*.so", "build", "runs", "*.egg-info", "__pycache__"))
    env = os.environ | {"NATIVE_FLAGS": flags}
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=copy, env=env, check=True)
    return copy


def run_tests(copy: Path, *tests: str, env: dict[str, str] | None = None) -> int:
    """The tests with the copy's package in front of any installed one, in children too."""
    environment = os.environ | {"PYTHONPATH": str(copy / "src")} | (env or {})
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], cwd=copy, env=environment
    ).returncode


def sanitize() -> int:
    with tempfile.TemporaryDirectory() as folder:
        copy = build(Path(folder), "-fsanitize=address,undefined -fno-sanitize-recover=undefined -g -O1 -DHOTLOOP_CHECKS")
        runtime = [
            subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
            for name in ("libasan.so", "libubsan.so")
        ]
        code = run_tests(
            copy, "tests/contract", "tests/integration/test_concurrency.py", "tests/faults/test_fork.py",
            "-k", "not raw",  # a fork behind the C library's back leaves the sanitizer's own locks taken
            env={"LD_PRELOAD": ":".join(runtime), "ASAN_OPTIONS": "detect_leaks=0,abort_on_error=1", "PYTHONMALLOC": "malloc"},
        )  # fmt: skip
    print("sanitizers:", "clean" if code == 0 else "NOT CLEAN")
    return code


def coverage() -> int:
    with tempfile.TemporaryDirectory() as folder:
        copy = build(Path(folder), "--coverage -O0 -DHOTLOOP_CHECKS")
        if run_tests(copy, "tests/contract"):
            return 1
        (notes,) = copy.rglob("*.gcno")
        subprocess.run(["gcov", "-b", "--json-format", str(notes)], cwd=folder, check=True, capture_output=True)
        (report,) = Path(folder).glob("*.gcov.json.gz")
        data = json.loads(gzip.decompress(report.read_bytes()))
    table = Table("coverage of the C recorder by the contract suite")
    lines = branches = lines_hit = branches_hit = 0
    for file in data["files"]:
        if "record/native" not in file["file"]:
            continue
        own_lines = file["lines"]
        own_branches = [b for x in own_lines for b in x["branches"] if not b["throw"]]
        hit, taken = sum(x["count"] > 0 for x in own_lines), sum(b["count"] > 0 for b in own_branches)
        table.add(
            f"{Path(file['file']).name}: branches taken",
            taken / max(1, len(own_branches)) * 100,
            None,
            "%",
            note=f"of {len(own_branches)}",
        )
        lines, lines_hit = lines + len(own_lines), lines_hit + hit
        branches, branches_hit = branches + len(own_branches), branches_hit + taken
        if "--missing" in sys.argv:
            for x in own_lines:
                missed = sum(b["count"] == 0 for b in x["branches"])
                if missed or not x["count"]:
                    place = f"{Path(file['file']).name}:{x['line_number']}"
                    print(f"{place}: {missed} of {len(x['branches'])} branches, {x['count']} runs")
    table.add("lines", lines_hit / lines * 100, None, "%", note=f"of {lines}")
    table.add("branches", branches_hit / branches * 100, 95, "%", above=True, note=f"of {branches}")
    return table.show()


if __name__ == "__main__":
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what not in ("sanitize", "coverage"):
        sys.exit(__doc__)
    sys.exit(sanitize() if what == "sanitize" else coverage())
