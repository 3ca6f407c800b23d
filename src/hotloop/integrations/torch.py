"""Plain PyTorch: model calls, optimizer steps, gradient clipping, copies, tensors made of lists.

What lives here: the hook points that are no plain targets of `adapters/torch.py`, and the sparse evidence a few calls in a
hundred give (batch size, autograd, number type). Invariant: nothing here touches a device, and a compiler traces through what
it knows.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..model import role as r
from ..model.phase import COLLECT, LEARN, NONE, STARTUP
from ..record import imports
from . import _patch as p
from . import lines, reads
from .probes import HELD, rows_of

if TYPE_CHECKING:
    from ..model.trace import TraceSettings

_LOSSES = ("mse_loss", "smooth_l1_loss", "huber_loss", "cross_entropy", "l1_loss", "nll_loss", "kl_div",
           "binary_cross_entropy", "binary_cross_entropy_with_logits", "gaussian_nll_loss")  # fmt: skip
_EVERY_UPDATE = 16
MOST_LOOKED = 1 << 18  # numbers of a batch that is looked at: 0.02 to 0.06 ms, 0.4 where its ends are filler
LEAST_ALIKE = 4  # sequences in a batch: fewer may be alike by chance
MOST_SHAPES = 64  # that are kept
_EVERY_BACKWARD = 384  # three in so many
MOST_NODES = 2000  # of a graph; a microsecond each


def install(patches: p.Patches, torch: Any) -> None:
    watch = _Watch(patches, torch)
    patches.looker = watch.looker
    patches.wrap(torch.nn.Module, "__call__", r.FORWARD, watch.looker(""), p.EVERY)
    traced = patches.part("traced")
    for name in ("tensor", "as_tensor", "from_numpy"):
        traced.exchange(
            torch,
            name,
            lambda made: traced.hooked(traced.hooked(made, r.MAKE_TENSOR, watch.tensor_made, p.EVERY), r.FROM_LIST),
        )
    for name in _LOSSES:
        if hasattr(torch.nn.functional, name):
            traced.wrap(torch.nn.functional, name, r.LOSS)
    _step_aside_for_compilers(patches, torch)
    imports.when_imported("torch._dynamo.callback", lambda module: _watch_compiler(patches, module))
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        patches.wrap(torch.nn.utils.clip_grad, name, r.CLIP_GRAD)
        patches.put(torch.nn.utils, name, getattr(torch.nn.utils.clip_grad, name))
    patches.wrap(torch.autograd, "backward", r.BACKWARD, watch.went_back, _EVERY_BACKWARD)
    _hook_steps(patches, torch.optim.Optimizer, watch)
    import copy

    patches.wrap(copy, "deepcopy", r.COPY)
    for module in (sys.modules[__name__], reads, lines):
        p.hide_from_dynamo(torch, module)
    if patches.trace is not None:
        _watch_deeply(patches, torch, watch, patches.trace)
    watch.reads = reads.Reads(patches, torch)
    if torch.version.cuda or torch.version.hip:  # a build that can; whether there is a device is the script's to find out
        torch.cuda._lazy_call(watch.reads.stop)
    if torch.version.cuda:
        from .device import cuda

        cuda.install(patches, torch)


def _step_aside_for_compilers(patches: p.Patches, torch: Any) -> None:
    """What a compiler traces through must be what it knows: from the first torch.compile or scripting on, functions and model
    methods are as they were. Calls of compiled models are still seen."""

    def around(original: Any, at_once: bool) -> Any:
        @functools.wraps(original)
        def compiles(*args: Any, **keywords: Any) -> Any:
            if p.undo_parts("traced"):
                # its tables of known functions may have been made while ours stood in for them
                rules = sys.modules.get("torch._dynamo.trace_rules")
                getattr(rules, "clear_lru_cache", lambda: None)()
            if at_once:
                patches.recorder.count_seen("~compilations")
            return original(*args, **keywords)

        return compiles

    for owner, name, at_once in (
        (torch, "compile", False), (torch.nn.Module, "compile", False), (torch, "export", False),
        (torch.jit, "script", True), (torch.jit, "trace", True),
    ):  # fmt: skip
        if callable(vars(owner).get(name)):
            patches.exchange(owner, name, functools.partial(around, at_once=at_once))


def _watch_compiler(patches: p.Patches, callback: Any) -> None:
    """Compilations, the first and those that a new shape or branch causes, are spans of the start-up."""
    zone, handler, seen = patches.zone("compile", STARTUP), callback.callback_handler, 0

    def begins(*_: Any) -> None:  # older versions of torch pass nothing
        zone.__enter__()

    def ends(*_: Any) -> None:
        nonlocal seen
        zone.__exit__(None, None, None)
        breaks = _graph_breaks()
        patches.recorder.count_seen("~graph_breaks", max(0, breaks - seen))
        seen = max(seen, breaks)

    handler.register_start_callback(begins)
    handler.register_end_callback(ends)

    def forget() -> None:
        for callbacks, ours in ((handler.start_callbacks, begins), (handler.end_callbacks, ends)):
            if ours in callbacks:
                callbacks.remove(ours)

    patches.later(forget)


def _graph_breaks() -> int:
    """As the compiler counts them; 0 where it does so in a way we do not know."""
    try:
        return int(sum(sys.modules["torch._dynamo.utils"].counters.get("graph_break", {}).values()))
    except (KeyError, AttributeError, TypeError):
        return 0


def _hook_steps(patches: p.Patches, optimizer: Any, watch: _Watch) -> None:
    """Optimizers wrap the `step` of their class when the first of it is made: ours goes around that, so that nothing is
    left out."""
    original = vars(optimizer)["profile_hook_step"].__func__

    def profile_hook_step(function: Any) -> Any:
        patches.recorder.expect_updates()
        if p.is_ours(function):
            return function
        return patches.hooked(original(function), r.OPTIMIZER, watch.updated)

    patches.put(optimizer, "profile_hook_step", staticmethod(profile_hook_step))

    def unhook() -> None:
        waiting = [optimizer]
        while waiting:
            kind = waiting.pop()
            waiting += kind.__subclasses__()
            step = vars(kind).get("step")
            if p.is_ours(step):
                kind.step = step.__wrapped__

    patches.later(unhook)


def _watch_deeply(patches: p.Patches, torch: Any, watch: _Watch, settings: TraceSettings) -> None:
    import atexit

    from .deep_window import DeepWindow

    window = DeepWindow(patches.recorder, torch, patches.session, settings, patches.note)
    patches.recorder.set_on_step(window.step)
    patches.later(lambda: patches.recorder.set_on_step(None))
    watch.window = window
    atexit.register(window.finish)
    patches.later(window.finish)


class _Watch:
    """Counts what a few calls in a hundred show."""

    def __init__(self, patches: p.Patches, torch: ModuleType) -> None:
        self._count, self._torch, self._note = patches.recorder.count_seen, torch, patches.note
        self.window: Any = None  # the deep window, while there is one
        self.reads: reads.Reads | None = None
        self._known_devices = {"cpu", "meta"} | ({"cuda"} if torch.version.cuda else set())  # ROCm calls itself cuda
        self._steps: dict[int, int] = {}  # by optimizer
        self._updates = 0
        self._batch = 0
        self._uncounted = 0  # updates whose batch size was not known yet
        self._latest_tensors: list[weakref.ref[Any]] = []
        self._of_sequences: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._latest: Any = None  # the call that was looked at last: network, method, what it got, updates before it
        self._met: weakref.WeakSet[Any] = weakref.WeakSet()  # networks that are still there
        self._ever_met = self._dropped = 0
        self._shapes: dict[tuple[int, str], tuple[int, ...]] = {}  # of what each network got last

    def looker(self, method: str) -> Callable[[tuple[Any, ...], Any, int], None]:
        """What looks at calls of that method of networks; "": of the networks themselves."""
        return lambda args, result, phase: self.model_called(method, args, result, phase)

    def model_called(self, method: str, args: tuple[Any, ...], result: Any, phase: int) -> None:
        if self.reads is not None:
            self.reads.turn()
        if self._is_recorded():
            return
        tensor = self._torch.Tensor
        inputs = next((a for a in args[1:] if isinstance(a, tensor)), None)
        outputs = [r for r in (result if isinstance(result, (tuple, list)) else (result,)) if isinstance(r, tensor)]
        has_grad = any(r.requires_grad for r in outputs)
        if phase == LEARN and (has_grad or not outputs) and inputs is not None and inputs.dim():  # else a target's
            self._batch = rows_of(inputs)
            self._count("~learn_calls")
            self._count("~learn_batch", self._batch)
        elif phase == COLLECT and outputs:
            self._count("~collect_calls")
            self._count("~collect_grad", int(has_grad))
            if inputs is not None and inputs.dim():
                self._count("~collect_rows", rows_of(inputs))
        if inputs is not None:
            if inputs.device.type not in self._known_devices:
                self._known_devices.add(inputs.device.type)
                self._note(f"device times are read on CUDA only: work on {inputs.device.type} shows as the host's time")
            self._count("~model_calls")
            self._count("~model_double", int(inputs.dtype == self._torch.float64))
            self._count("~threads_seen", self._torch.get_num_threads())
            if isinstance(args[0], self._torch.nn.Module):
                HELD.saw_call(self._torch, method, args, phase, has_grad)
                if args[0] not in self._met:
                    self._met.add(args[0])
                    self._ever_met += 1
                    self._count("~networks_dropped", self._ever_met - len(self._met) - self._dropped)
                    self._dropped = self._ever_met - len(self._met)
                self._look_for_repetition(method, args, phase)
                name = "learn" if phase == LEARN or (phase == NONE and has_grad) else "collect"  # none: what comes next decides
                if not has_grad and phase in (NONE, COLLECT, LEARN):
                    self._look_for_past(name, args[0], method, inputs)
                if phase in (NONE, COLLECT) or (phase == LEARN and has_grad):
                    self._look_for_filler(name, args[0], inputs)

    def _is_recorded(self) -> bool:
        """Are calls of tensors recorded or transformed (tracing, export, vmap)? Ours would become part of it."""
        c = self._torch._C
        return bool(
            c._get_tracing_state() is not None
            or c._len_torch_dispatch_stack()
            or c._functorch.peek_interpreter_stack() is not None
        )

    def _look_for_repetition(self, method: str, args: tuple[Any, ...], phase: int) -> None:
        """Is this the call before, once more: the same network and weights, the same tensors, unchanged? Only if those of the
        call before are still there: memory that was given back is handed out again at once."""
        tensors = [a for a in args if isinstance(a, self._torch.Tensor)]
        got = tuple((a.data_ptr(), a._version, tuple(a.shape)) if isinstance(a, self._torch.Tensor) else id(a) for a in args)
        call = method, got, sum(self._steps.values())
        if phase == LEARN:
            alive = all(ref() is not None for ref in self._latest_tensors)
            self._count("~repeats_looked")
            self._count("~repeats", int(call == self._latest and alive))
        self._latest, self._latest_tensors = call, [weakref.ref(a) for a in tensors]

    def _look_for_past(self, phase: str, network: Any, method: str, inputs: Any) -> None:
        """Is this the call before with one step more? Of three neighbours two follow the call they are compared with."""
        shape, key = tuple(inputs.shape), (id(network), method)
        before = self._shapes.get(key, ())
        if len(self._shapes) >= MOST_SHAPES:
            self._shapes.clear()
        self._shapes[key] = shape
        other = [at for at, (a, b) in enumerate(zip(before, shape, strict=False)) if a != b]
        self._count(f"~{phase}_calls_followed")
        if len(shape) == len(before) > 1 and other in ([0], [1]) and shape[other[0]] == before[other[0]] + 1:
            self._count(f"~{phase}_calls_longer")
            self._count(f"~{phase}_length", shape[other[0]])

    def _look_for_filler(self, phase: str, network: Any, inputs: Any) -> None:
        """How many of the steps of a batch of sequences are filler: at its beginning or end empty in all of them, or at its end
        the same in all of them, as steps are that were filled up and then embedded."""
        numbers = inputs.is_floating_point()
        if inputs.device.type != "cpu" or inputs.dim() != (3 if numbers else 2) or not 0 < inputs.numel() <= MOST_LOOKED:
            return
        if network not in self._of_sequences:
            nn = self._torch.nn
            kinds = nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.Embedding
            self._of_sequences[network] = any(isinstance(part, kinds) for part in network.modules())
        if not self._of_sequences[network]:  # what is empty in a picture belongs to it
            return
        most = 0.0
        for steps in (inputs, inputs.transpose(0, 1)):
            for end in (0, -1):
                filler = 0 if numbers else steps[end].reshape(-1)[0]
                if not len((steps[end] != filler).nonzero()):  # `len` reads a number without what counts the script's reads
                    used = (steps != filler).reshape(len(steps), -1).any(1)
                    used = used.flip(0) if end else used
                    most = max(most, self._run_of(~used))
            last = steps[-1].reshape(steps.shape[1], -1)
            if len(last) >= LEAST_ALIKE and not len((last != last[:1]).nonzero()):
                alike = (steps == steps[:, :1]).reshape(len(steps), -1).all(1)
                run = self._run_of(alike.flip(0))
                most = max(most, run if run < 1 else 0.0)  # all of it: sequences that do not differ
        self._count(f"~{phase}_sequences", 1000)
        self._count(f"~{phase}_filler", round(1000 * most))

    @staticmethod
    def _run_of(filler: Any) -> float:
        """Of all steps, those at the beginning that are filler. One is none: a word that all begin with."""
        run = len((filler.logical_not().cumsum(0) == 0).nonzero())
        return run / len(filler) if run > 1 else 0.0

    def tensor_made(self, args: tuple[Any, ...], result: Any, phase: int) -> None:
        if isinstance(result, self._torch.Tensor):
            self._count("~made_tensors")
            self._count("~made_bytes", result.numel() * result.element_size())

    def went_back(self, args: tuple[Any, ...], result: Any, phase: int) -> None:
        """How many operations a backward pass went through: the nodes of its graph, which outlives it."""
        first = args[0] if args else None
        roots = first if isinstance(first, (tuple, list)) else (first,)
        waiting = [node for x in roots if (node := getattr(x, "grad_fn", None)) is not None]
        seen = set(waiting)
        while waiting and len(seen) < MOST_NODES:
            for node, _ in waiting.pop().next_functions:
                if node is not None and node not in seen:
                    seen.add(node)
                    waiting.append(node)
        self._count("~graphs_looked")
        self._count("~graph_nodes", len(seen))

    def updated(self, args: tuple[Any, ...], result: Any, phase: int) -> None:
        """The optimizer that has stepped most counts the updates; others step beside it."""
        if self.window is not None:
            self.window.poll()
            if self.window.done:
                self.window = None
        key = id(args[0]) if args else 0
        steps = self._steps[key] = self._steps.get(key, 0) + 1
        if steps > self._updates:
            self._updates = steps
            self._count("updates")
            self._uncounted += 1
            if self._batch:  # until the first reading it is not known
                self._count("samples", self._batch * self._uncounted)
                self._uncounted = 0
            if steps % _EVERY_UPDATE == 1:
                HELD.saw_update(args[0])
                self._count("~update_looks")
                self._count("~anomaly_updates", int(self._torch.is_anomaly_enabled()))
                self._count("~torch_threads", self._torch.get_num_threads())
