"""Every allocation and every system call of the native recorder fails once: in a build for checks, which is made here unless
the recorder is one already (`python benchmarks/native_checks.py`)."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import threading
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from hotloop.errors import UnreadableError
from hotloop.store.shard import decode

from .conftest import Rig, native

SOURCE = Path(__file__).parents[2] / "src" / "hotloop" / "record" / "native" / "_zone.c"


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The native recorder, in which calls can be made to fail."""
    if hasattr(native, "fail_nth"):
        return native
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler makes the build for checks"
    library = tmp_path_factory.mktemp("checked") / "_zone.so"
    flags = ["-shared", "-fPIC", "-O1", "-std=gnu11", "-fvisibility=hidden", "-DHOTLOOP_CHECKS"]
    include = f"-I{sysconfig.get_paths()['include']}"
    subprocess.run([compiler, *flags, include, "-o", str(library), str(SOURCE)], check=True)
    spec = spec_from_file_location("checked._zone", library)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def workout(recorder: ModuleType, folder: str | None) -> bytes:
    """A bit of everything that may need memory or the disk."""
    rig = Rig(recorder, directory=folder, clock=0, long_ns=1, log_events=64, ring_events=64, budget=3 << 20).open()
    for i in range(300):
        rig.enter("outer")
        rig.enter(f"label {i}")
        rig.exit(f"label {i}")
        rig.exit("outer")
    for _ in range(100):
        rig.enter("deep")
    token = recorder.lift(2, True)
    rig.span("between", 0)
    if token is not None:
        recorder.lower(token)
    origin = recorder.here()

    def work() -> None:
        if origin is not None:
            recorder.adopt(*origin)
            recorder.adopt(77, 7)
        with recorder.profile("in thread"):
            recorder.count("mine", 2)
        recorder.release()
        recorder.release()

    for i in range(3):
        thread = threading.Thread(target=work, name=f"worker-{'ab'[i % 2]}")
        thread.start()
        thread.join()
    recorder.step()
    recorder.reset()
    with recorder.profile("x" * 5000):
        recorder.step()
    recorder.pause()
    recorder.resume()
    recorder.name_process("p")
    data = recorder.snapshot()
    rig.close()
    return data


@pytest.mark.parametrize("on_disk", [True, False])
def test_whichever_call_fails_nothing_breaks(tmp_path, checked, on_disk):
    folder = str(tmp_path) if on_disk else None
    checked.fail_nth(0)
    workout(checked, folder)
    calls = checked.fail_nth(0)
    assert calls > 50
    for nth in range(1, calls + 40):
        checked.fail_nth(nth)
        data = workout(checked, folder)
        checked.fail_nth(0)
        if data:
            try:
                shard = decode(data)
            except UnreadableError as error:  # not even the first path could be kept
                assert "holds no paths" in str(error), nth
                continue
            assert shard.attempted == shard.recorded + shard.dropped + shard.open_count, nth
    assert Rig(checked).open().read().losses == {}
    checked.close()
