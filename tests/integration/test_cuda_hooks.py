"""The CUDA hooks over a made-up device: tensors that say they lie on one, events that keep the time they are recorded at."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import subprocess
import sys
import time
import weakref
from types import SimpleNamespace

import pytest
import torch

from hotloop import api
from hotloop.adapters.torch import ADAPTER as TORCH
from hotloop.integrations import _patch as p
from hotloop.integrations import reads
from hotloop.integrations import torch as torch_hooks
from hotloop.integrations.device import cuda
from hotloop.record import memory
from hotloop.record.backend import recorder
from hotloop.store.reader import read_session

MB = 1 << 20


class OnDevice(torch.Tensor):
    """A tensor of the CPU that says it is elsewhere; reading it takes a moment."""

    is_cuda = True
    reads = 0

    def numel(self):
        return 256


class FakeBackend:
    def __init__(self):
        self.broken = False
        self.recorded = 0
        self.now_ns = time.perf_counter_ns

    def current(self):
        return (0, 0)

    def make_event(self):
        return {}

    def record(self, event):
        if self.broken:
            raise RuntimeError("CUDA error: unspecified launch failure")
        self.recorded += 1
        event["at"] = time.perf_counter_ns()

    def is_done(self, event):
        return True

    def elapsed_ns(self, first, last):
        return last["at"] - first["at"]


class FakeAllocator:
    """The counters of a caching allocator."""

    def __init__(self):
        self.now, self.peak, self.reserved = 0, 0, 64 * MB

    def take(self, size):
        self.now += size
        self.peak = max(self.peak, self.now)

    def stats(self, device):
        rows = {"allocated_bytes": (self.now, self.peak), "reserved_bytes": (self.reserved, self.reserved)}
        return {name: {"all": {"current": now, "peak": peak}} for name, (now, peak) in rows.items()}

    def reset(self, device):
        self.peak = self.now


class StreamContext:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def make_torch(allocator):
    """torch, with another torch.cuda."""
    memory = SimpleNamespace(
        memory_stats_as_nested_dict=allocator.stats, reset_peak_memory_stats=lambda device=None: allocator.reset(device)
    )
    fake = SimpleNamespace(
        StreamContext=type("StreamContext", (StreamContext,), dict(vars(StreamContext))),
        Stream=type("Stream", (), {"synchronize": lambda self: None}),
        Event=type("Event", (), {"synchronize": lambda self: None}),
        CUDAGraph=type("CUDAGraph", (), {"capture_begin": lambda self: None, "capture_end": lambda self: None}),
        synchronize=lambda device=None: None, memory=memory, get_device_name=lambda: "Fake 9000",
        reset_peak_memory_stats=memory.reset_peak_memory_stats,
        _utils=SimpleNamespace(_get_device_index=lambda device, optional: 0),
    )  # fmt: skip
    c = SimpleNamespace(
        _cuda_memoryStats=allocator.stats, _cuda_getDevice=lambda: 0, _cuda_resetPeakMemoryStats=allocator.reset,
        _dynamo=torch._C._dynamo,
    )  # fmt: skip
    return SimpleNamespace(Tensor=torch.Tensor, dtype=torch.dtype, optim=torch.optim, cuda=fake, _C=c, __file__=torch.__file__)


class World:
    def __init__(self, path):
        self.notes: list[str] = []
        self.patches = p.Patches(recorder, self.notes.append, str(path))
        self.allocator = FakeAllocator()
        self.torch = make_torch(self.allocator)
        self.backend = FakeBackend()
        self.patches.apply(TORCH, torch)

    def begin(self):
        self.device = cuda.Device(self.patches, self.torch, self.backend)
        return self.device

    def numbers(self):
        self.device.finish()
        (path,) = list((self.path / "device").iterdir())
        return json.loads(path.read_text())


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(reads, "FIRST_NS", 1 << 62)  # a real device stops them before its own hooks are made
    path = api.start("cuda", out=tmp_path)
    p.gap_zones(recorder)
    made = World(path)
    made.path = path
    before = {name: vars(torch.Tensor).get(name) for name in ("item", "to", "cpu", "__bool__", "tolist")}
    yield made
    made.patches.undo()
    recorder.set_on_edge(None)
    api.stop()
    assert all(vars(torch.Tensor).get(name) is found for name, found in before.items()), "a hook was left behind"
    gc.collect()


def update(net, optimizer):
    loss = torch.nn.functional.mse_loss(net(torch.ones(4, 3)), torch.zeros(4, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def make():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def names_of(world, numbers):
    api.stop()
    shards = {s.id: s for s in read_session(world.path).shards}
    return {shards[row["key"][0]].label_of(row["key"][1]).name: row for row in numbers["labels"] if row["key"][0] in shards}


@pytest.mark.parametrize("early", [True, False], ids=["optimizer before CUDA", "optimizer after CUDA"])
def test_phase_level_calls_are_marked_whenever_their_hooks_were_made(world, early):
    if early:
        net, optimizer = make()
        update(net, optimizer)
    world.begin()
    if not early:
        net, optimizer = make()
    for _ in range(3):
        update(net, optimizer)
    labels = names_of(world, world.numbers())
    assert {"learn/loss", "learn/backward", "learn/optimizer"} <= set(labels)
    assert labels["learn/backward"]["spans"] == labels["learn/optimizer"]["spans"] == 3
    assert not world.notes


def test_results_are_the_same_with_marks(world):
    net, optimizer = make()
    bare = [update(net, optimizer).detach().clone() for _ in range(3)]
    world.begin()
    net, optimizer = make()
    assert all(torch.equal(a, update(net, optimizer).detach()) for a in bare)


def test_reads_of_tensors_on_the_device_are_counted_by_line_and_others_not(world):
    world.begin()
    plain, far = torch.ones(()), torch.ones(()).as_subclass(OnDevice)
    for _ in range(3):
        plain.item(), bool(plain), float(plain), plain.tolist()
        far.item()
    assert bool(far) is True
    assert float(far) == 1.0
    far.cpu()
    world.torch.cuda.synchronize()
    rows = world.numbers()["transfers"]
    found = {row["call"]: row for row in rows}
    assert {name: row["count"] for name, row in found.items()} == {"item": 3, "bool": 1, "float": 1, "cpu": 1, "synchronize": 1}
    assert found["item"]["file"] == __file__
    assert found["item"]["function"] == "test_reads_of_tensors_on_the_device_are_counted_by_line_and_others_not"
    assert found["item"]["direction"] == "device to host"
    assert found["item"]["blocking"] == 3
    assert found["item"]["bytes"] == 3 * 256 * 4
    assert found["synchronize"]["direction"] == "synchronise"


def test_a_move_counts_only_where_it_changes_the_device(world):
    world.begin()
    near, far = torch.ones(4), torch.ones(4).as_subclass(OnDevice)
    near.to(torch.float64)
    far.to(torch.float64)  # stays: the subclass says so
    near.copy_(far, True)
    near.copy_(far)
    rows = world.numbers()["transfers"]
    assert [(row["call"], row["count"], row["blocking"], row["direction"]) for row in rows] == [
        ("copy_", 1, 0, "device to host"),
        ("copy_", 1, 1, "device to host"),
    ]


def test_what_has_no_numbers_yet_is_not_counted_and_breaks_nothing(world):
    """A lazy parameter on its way, a compiler's stand-in with a symbolic size."""

    class Shapeless(OnDevice):
        def numel(self):
            raise ValueError("no shape yet")

    class Symbolic(OnDevice):
        def numel(self):
            return 2.5

    device = world.begin()
    for kind in (Shapeless, Symbolic):
        assert torch.ones(()).as_subclass(kind).item() == 1.0
    assert not device.is_off
    assert world.numbers()["transfers"] == []


def test_a_failure_of_the_device_code_is_one_note_and_training_goes_on(world):
    world.begin()
    net, optimizer = make()
    update(net, optimizer)
    world.backend.broken = True
    losses = [update(net, optimizer).item() for _ in range(5)]
    assert losses[-1] < losses[0]
    assert len(world.notes) == 1
    assert "unspecified launch failure" in world.notes[0]


def test_exceptions_of_the_script_pass_and_close_the_span(world):
    class Odd(torch.nn.Module):
        def forward(self, x):
            raise KeyError("mine")

    device = world.begin()
    with pytest.raises(KeyError, match="mine"):
        Odd()(torch.ones(1))
    assert recorder.depth() == 0
    far = torch.ones(2).as_subclass(OnDevice)
    with pytest.raises((RuntimeError, ValueError)):
        far.item()  # two elements
    assert not device.is_reading()
    assert not world.notes


def test_the_peak_of_a_span_is_the_allocators_and_the_users_own_reading_stays_right(world):
    world.begin()
    allocator, read = world.allocator, world.torch.cuda.memory
    allocator.take(100 * MB)
    allocator.take(-90 * MB)
    with api.profile("outer", track_memory=True):
        allocator.take(20 * MB)
        with api.profile("inner", track_memory=True):
            allocator.take(30 * MB)
            allocator.take(-40 * MB)
        allocator.take(5 * MB)
    assert read.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["peak"] == 100 * MB, "as without us"
    read.reset_peak_memory_stats()
    assert read.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["peak"] == allocator.now
    numbers = world.numbers()
    assert sorted(row[2] for row in numbers["peaks"]) == [60 * MB, 60 * MB]
    assert numbers["peak_allocated"] == 100 * MB
    api.stop()
    nodes = [node.gpu_peak_bytes for shard in read_session(world.path).shards for node in shard.nodes if node.gpu_peak_bytes]
    assert nodes == [60 * MB, 60 * MB]


def test_a_reset_of_one_device_leaves_the_peak_of_another(world):
    world.begin()
    current = [1]
    world.torch._C._cuda_getDevice = lambda: current[0]
    world.torch.cuda._utils._get_device_index = lambda device, optional: current[0] if device is None else device
    world.allocator.take(100 * MB)
    world.allocator.take(-90 * MB)
    with api.profile("a", track_memory=True):
        pass
    current[0] = 0
    world.torch.cuda.reset_peak_memory_stats()
    peaks = [world.torch.cuda.memory.memory_stats_as_nested_dict(i)["allocated_bytes"]["all"]["peak"] for i in (0, 1)]
    assert peaks == [10 * MB, 100 * MB]


def test_readings_and_resets_of_the_user_work_where_ours_fail(world):
    world.begin()
    world.allocator.take(10 * MB)
    with api.profile("a", track_memory=True):
        pass

    def fail(*_, **__):
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    world.torch.cuda._utils._get_device_index = world.torch._C._cuda_getDevice = fail
    world.allocator.take(-10 * MB)
    world.torch.cuda.reset_peak_memory_stats()
    assert world.torch.cuda.memory.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["peak"] == 0


def test_a_device_that_failed_leaves_nothing_behind_either(world):
    device = world.begin()
    device.fail(RuntimeError("unknown error"))
    with api.profile("a"):
        pass
    device.finish()
    assert memory._device is None
    found = weakref.ref(device)
    world.patches.undo()
    del device, world.device
    gc.collect()
    assert found() is None


def test_spans_of_the_user_are_marked_whatever_they_track(world):
    world.begin()
    whole = -time.perf_counter_ns()
    for _ in range(3):
        with api.profile("outer"):
            with api.profile("inner", track_memory=True):
                time.sleep(0.002)
            time.sleep(0.001)
    whole += time.perf_counter_ns()
    labels = names_of(world, world.numbers())
    assert labels["outer"]["spans"] == labels["inner"]["spans"] == 3
    assert labels["inner"]["host_ns"] > 5_000_000
    assert 2_000_000 < labels["outer"]["host_ns"] <= whole - labels["inner"]["host_ns"], "its own time, without the inner one"


def test_methods_that_stand_in_are_equal_to_those_they_replace(world):
    """Lazy parameters keep a list of methods that may be called on them; subclasses keep tables."""
    cpu, known = torch.Tensor.cpu, {torch.Tensor.item: "item"}
    world.begin()
    assert torch.Tensor.cpu is not cpu
    assert torch.Tensor.cpu in [cpu]
    assert known[torch.Tensor.item] == "item"
    assert torch.nn.LazyLinear(5).to("cpu")(torch.ones(2, 3)).shape == (2, 5)
    assert pickle.loads(pickle.dumps(torch.Tensor.cpu)) is torch.Tensor.cpu
    assert copy.copy(torch.Tensor.cpu) is torch.Tensor.cpu
    assert torch.Tensor.cpu.__name__ == "cpu"
    assert torch.Tensor.cpu(torch.ones(2)).sum() == 2
    net, _ = make()
    assert torch.equal(copy.deepcopy(net)(torch.ones(1, 3)), net(torch.ones(1, 3)))


def test_nothing_is_marked_while_a_graph_is_captured(world):
    device = world.begin()
    with api.profile("before"):
        pass
    count = world.backend.recorded
    assert count
    graph = world.torch.cuda.CUDAGraph()
    graph.capture_begin()
    with api.profile("captured"):
        torch.ones(()).as_subclass(OnDevice).item()
    assert world.backend.recorded == count
    graph.capture_end()
    assert device._captures == 0
    with api.profile("after"):
        pass
    assert world.backend.recorded > count


def test_the_file_reads_back_and_the_report_shows_it(world):
    from hotloop.analyse.diagnosis import diagnose
    from hotloop.present.terminal import report_text

    world.begin()
    net, optimizer = make()
    for _ in range(5):
        update(net, optimizer)
        torch.ones(()).as_subclass(OnDevice).item()
    world.device.finish()
    api.stop()
    report = diagnose(read_session(world.path))
    assert report.devices.names == ("Fake 9000",)
    assert report.devices.transfers[0].count == 5
    text = report_text(report)
    assert "DEVICE  Fake 9000" in text
    assert "learn/backward" in text


@torch.no_grad()  # after a graph break dynamo itself warns of gradients, and warnings are errors here
def test_torch_compile_makes_the_same_graphs_beside_marks_and_hooked_reads(world):
    def step(x):
        y = net(x)
        if y.sum().item() > 1e9:  # a graph break
            return y
        return y.to(torch.float64) * 2

    def count_graphs():
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        results = [torch.compile(net, backend="eager")(x), torch.compile(step, backend="eager")(x)]
        return results, dict(torch._dynamo.utils.counters["stats"])

    net, _ = make()
    x = torch.ones(4, 3)
    bare, graphs = count_graphs()
    world.begin()
    hooked, graphs_hooked = count_graphs()
    assert all(torch.equal(a, b) for a, b in zip(bare, hooked, strict=True))
    assert graphs_hooked == graphs
    assert not world.notes
    torch._dynamo.reset()


@pytest.mark.parametrize("passed", [(), (object(),)], ids=["older torch", "torch"])
def test_compilations_are_spans_of_the_start_up_whatever_the_compiler_passes(world, passed):
    handler = SimpleNamespace(start_callbacks=[], end_callbacks=[])
    handler.register_start_callback = handler.start_callbacks.append
    handler.register_end_callback = handler.end_callbacks.append
    patches = p.Patches(recorder, pytest.fail)
    torch_hooks._watch_compiler(patches, SimpleNamespace(callback_handler=handler))
    for callbacks in (handler.start_callbacks, handler.end_callbacks):
        for call in callbacks:
            call(*passed)
    patches.undo()
    assert not handler.start_callbacks and not handler.end_callbacks
    assert api.get_profiler().summary()["operations"]["start-up/compile"]["call_count"] == 1


def test_in_a_build_without_cuda_nothing_of_it_is_imported(tmp_path):
    (tmp_path / "train.py").write_text(
        "import sys, torch\ntorch.ones(1).item()\nprint([m for m in sys.modules if m.startswith('hotloop.')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "hotloop", "run", "--quiet", "train.py"], capture_output=True, text=True, cwd=tmp_path,
        timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "hotloop.integrations.torch" in done.stdout
    about_cuda = (
        "integrations.device.cuda",
        "integrations.device.transfers",
        "integrations.device.allocator",
        "integrations.deep_window",
        "integrations.device.attribution",
    )
    imported = [name for name in about_cuda if f"hotloop.{name}'" in done.stdout]
    assert ("integrations.device.cuda" in imported) if torch.version.cuda else not imported


def test_rocm_has_host_times_and_one_note(monkeypatch):
    """It calls its devices cuda."""
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    notes: list[str] = []
    counts = SimpleNamespace(count_seen=lambda *_: None)
    watch = torch_hooks._Watch(SimpleNamespace(recorder=counts, note=notes.append), torch)
    inputs = torch.ones(2).as_subclass(OnRocm)
    for _ in range(3):
        watch.model_called("", (None, inputs), torch.ones(2), 0)
        watch.model_called("", (None, torch.ones(2)), torch.ones(2), 0)
    assert len(notes) == 1
    assert "read on CUDA only" in notes[0]


class OnRocm(torch.Tensor):
    device = SimpleNamespace(type="cuda")
