"""The mechanism of every sample: interpreting, dispatching, computing, moving, waiting, garbage, starting.

What lives here: stacks in, shares by mechanism out. What decides is measured: the span and the kernel's word (blocked or not),
whether the thread had the interpreter, and whether the same call still ran a moment later (record/native/sampler.h). Whose the
innermost file is, and the text of the expression that was at work, decide only between kinds of native work. Invariant: the
shares of a stack add up to 1.

Tensor calls give the interpreter away while they work: a sample without it, at an instruction that soon goes on, is a call too
small for its arithmetic (dispatching); one that lasts computes, or moves bytes. One call is no proof: in a loop the same
instruction may be met again, so instructions and functions are judged by all of their samples.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ..model import shard as m
from ..model.code import is_standard
from ..model.ledger import Ledger
from ..model.mechanism import COMPUTING, DISPATCHING, GARBAGE, INTERPRETING, MOVING, STARTING, WAITING
from ..model.phase import STARTUP
from ..model.session import Source
from .costs import Costs
from .lines import Stack, responsible
from .owners import OWNER_OF, TENSOR, Owners, owner_of

Shares = tuple[tuple[str, float], ...]
Instruction = tuple[str, str, int, tuple[int, int]]  # file, function, line, columns

_STARTS = ("worker_start", "env_make", "compile")
_TENSOR_SPANS = ("policy", "forward", "backward", "optimizer", "zero_grad", "clip_grad", "loss", "make_tensor", "state_copy")
# Calls whose work is to put bytes elsewhere.
_PUTS = ("save", "load", "store", "sample", "state_copy", "deepcopy", "make_tensor")
# Modules of Python's library, and of NumPy, all of whose work is to pack, unpack, read and write.
_PACKERS = re.compile(
    r"[/\\](zipfile|gzip|bz2|lzma|_compression|tarfile|shutil|struct|base64|pickle|numpy[/\\].*(format|npyio)(_impl)?)\.py$"
)
_COMPOSITE = ("backward",)  # one native call in which many small ones are made: that it lasts says nothing
# Functions of libraries, whatever they are called on, that put bytes elsewhere.
_MOVES = frozenset([
    "clone", "copy", "copy_", "to", "cpu", "cuda", "numpy", "astype", "tobytes", "frombuffer", "from_numpy",
    "as_tensor", "tensor", "array", "asarray", "ascontiguousarray", "contiguous", "stack", "vstack", "hstack", "dstack",
    "column_stack", "cat", "concatenate", "concat", "tolist", "tile", "repeat", "deepcopy", "dumps", "loads", "dump",
    "load", "compress", "decompress", "save", "savez", "savez_compressed", "encode", "decode", "iterencode",
    "raw_decode", "float", "double", "half", "long", "int", "type", "pin_memory", "copyto", "index_select", "gather",
    "take",
])  # fmt: skip
# Methods of arrays and of generators of random numbers, where the text does not begin with the library's name. They keep the
# interpreter as Python's own functions do, but have arithmetic inside.
_COMPUTES = frozenset([
    "argmax", "argmin", "argpartition", "argsort", "choice", "clip", "cumprod", "cumsum", "dirichlet", "dot",
    "exponential", "gamma", "integers", "matmul", "mean", "multinomial", "multivariate_normal", "nonzero", "normal",
    "partition", "permutation", "permuted", "poisson", "prod", "randint", "searchsorted", "shuffle", "standard_normal",
    "std", "uniform", "var",
])  # fmt: skip
_NATIVE = re.compile(
    r"\b(np|numpy|torch|F|jnp|jax|scipy|cv2|nn|math)\.|@"
)  # what the text of an array's or tensor's call begins with
_SCALES = re.compile(r"^(.*\))\s*[-+*/]\s*[\d._e]+$", re.DOTALL)  # `x.float() / 255`: a part of the conversion
_COLLECTS = re.compile(r"gc\.collect\(")  # by hand, in a thread that records no pauses
_IMPORTS = frozenset({"_find_and_load", "_load_unlocked", "import_module"})
_COMPILERS = ("/torch/_dynamo/convert_frame.py", "/torch/_inductor/")
_COMPILES = frozenset({"script", "trace", "trace_module", "freeze", "optimize_for_inference"})  # of torch.jit
_OF_NETWORKS = ("/torch/nn/init.py", "/torch/nn/modules/", "/torch/optim/")
_SETS_UP = frozenset({"__init__", "reset_parameters", "_reset_parameters", "add_param_group"})
LEAST_KNOWN = 4  # samples of an instruction that were looked at again; fewer: its function's are taken
LASTS = 0.5  # of them, from here on its calls last. A loop of the smallest calls meets the same one again in 0.17 of all
# An operator on a small array takes 0.5 us and more here, on a small tensor 3 to 4, with autograd 6; a function of NumPy's or
# torch's that packs (stack, array, concatenate) 2 to 10 on little. Of these, in nanoseconds, the usual cost, and the one from
# which on it is mostly for the bytes. Calls that compute are left to what lasts: how much of theirs is fixed differs too much.
SMALL_NS, LARGE_NS, SMALL_CALL_NS, LARGE_CALL_NS = 2_000, 10_000, 5_000, 40_000
GIVES = 0.15  # of an instruction's samples without the interpreter, from here on it is a native call


class Mechanisms:
    """Decides for the stacks of one session."""

    def __init__(
        self,
        stacks: Sequence[Stack],
        ledger: Ledger,
        sources: Mapping[str, Source],
        owners: Owners = OWNER_OF,
        costs: Costs | None = None,
    ) -> None:
        self._tree, self._sources, self._owners, self._costs = ledger.tree, sources, owners, costs
        self._again: dict[Instruction, Counter[int]] = defaultdict(Counter)  # SHORT and LASTING, without the interpreter
        self._held: dict[Instruction, Counter[int]] = defaultdict(Counter)  # the same with it
        self._free: dict[Instruction, Counter[bool]] = defaultdict(Counter)  # True: without the interpreter
        for stack in stacks:
            if stack.state == m.RUNNING and stack.places:
                for key in (_instruction(stack.places[-1]), _function(stack.places[-1])):
                    self._free[key][not stack.holds_gil] += stack.count
                    if stack.call:
                        (self._held if stack.holds_gil else self._again)[key][stack.call] += stack.count
        self._labels: dict[int, str] = {}
        self._forward = self._share_of_forward(stacks)

    def of(self, stack: Stack) -> Shares:
        """What this stack's time was spent on."""
        shares = self.decide(stack.branch, stack.places, stack.state, stack.holds_gil)
        if shares != ((DISPATCHING, 1.0),) or self._costs is None or self._label(stack.branch) in _TENSOR_SPANS:
            return shares
        own = responsible(stack.places)
        if not own.columns[1]:  # which of the line's calls it was is not known
            return shares
        text = self.expression(own)
        packs, operates = callee(text) in _MOVES, own == stack.places[-1] and not callee(text)
        small, large = (SMALL_CALL_NS, LARGE_CALL_NS) if packs else (SMALL_NS, LARGE_NS)
        cost = self._costs.of(stack) if packs or operates else 0.0
        if cost < large:
            return shares
        mechanism = MOVING if packs or text.endswith("]") else COMPUTING
        return ((DISPATCHING, small / cost), (mechanism, 1 - small / cost))

    def decide(self, branch: int, places: Sequence[m.Place], state: int = m.UNKNOWN, holds_gil: bool = False) -> Shares:
        label = self._label(branch)
        kind = self._tree[branch].kind
        if kind == m.GARBAGE or (places and state == m.RUNNING and _COLLECTS.match(self.expression(places[-1]))):
            return ((GARBAGE, 1.0),)
        if label in _STARTS or self._tree[branch].phase == STARTUP or imports(places) or any(sets_up(p) for p in places):
            return ((STARTING, 1.0),)
        if kind == m.WAIT or state in (m.BLOCKED, m.WANTS_GIL):
            return ((WAITING, 1.0),)
        if label in _COMPOSITE:
            return self._forward
        if not places:
            return ((DISPATCHING if label in _TENSOR_SPANS else INTERPRETING, 1.0),)
        return ((self._of_work(places[-1], state, holds_gil, label), 1.0),)

    # ---- work ----

    def _of_work(self, place: m.Place, state: int, holds_gil: bool, label: str) -> str:
        if _PACKERS.search(place.file):
            return MOVING
        text = self.expression(place)
        native = self._is_arrays(place.file) or bool(_NATIVE.search(text))
        if state == m.UNKNOWN:
            return DISPATCHING if native else INTERPRETING
        key = _instruction(place)
        if not native and holds_gil and not self._gives_away(key):
            # Python's own functions, which keep the interpreter: packing is moving, the rest are Python's objects
            name = callee(text) or place.function.rpartition(".")[2]
            if not self._lasts(self._held, key, _function(place)):
                return INTERPRETING
            return MOVING if name in _MOVES else COMPUTING if f".{name}(" in text and name in _COMPUTES else INTERPRETING
        if not self._lasts(self._held if holds_gil and not self._gives_away(key) else self._again, key, _function(place)):
            return DISPATCHING if native or not is_standard(place.file) else INTERPRETING  # there it is a call of the system
        scaled = _SCALES.match(text)
        name = callee(scaled[1] if scaled else text) or place.function.rpartition(".")[2]
        return MOVING if name in _MOVES or label in _PUTS else COMPUTING

    def _is_arrays(self, file: str) -> bool:
        """Code of the tensors or arrays themselves: what it takes in Python is paid per call. Making text of them is not."""
        return owner_of(file, self._owners) == TENSOR and not file.endswith("arrayprint.py")

    def _gives_away(self, key: Instruction) -> bool:
        seen = self._free[key]
        return seen[True] >= GIVES * (seen[True] + seen[False]) and seen[True] > 0

    @staticmethod
    def _lasts(seen: Mapping[Instruction, Counter[int]], *keys: Instruction) -> bool:
        """By the first of these that is known well enough, else by the last that is known at all."""
        last = False
        for key in keys:
            short, lasting = (seen[key][m.SHORT], seen[key][m.LASTING]) if key in seen else (0, 0)
            if short + lasting:
                last = lasting >= LASTS * (short + lasting)
            if short + lasting >= LEAST_KNOWN:
                break
        return last

    def _share_of_forward(self, stacks: Sequence[Stack]) -> Shares:
        """A backward pass makes about the calls of the forward pass, on about as much: what computes there computes here. Where
        no call is known to be one of learning, those of the policy stand for them."""
        for label in ("forward", "policy"):
            seen: Counter[str] = Counter()
            for stack in stacks:
                if not stack.early and self._label(stack.branch) == label and stack.state == m.RUNNING and stack.places:
                    seen[self._of_work(stack.places[-1], stack.state, stack.holds_gil, label)] += stack.count
            if seen:
                share = (seen[COMPUTING] + seen[MOVING]) / seen.total()
                return ((DISPATCHING, 1 - share), (COMPUTING, share))
        return ((DISPATCHING, 1.0), (COMPUTING, 0.0))

    # ---- the script's text ----

    def expression(self, place: m.Place) -> str:
        """The text of what was at work; the whole line where that is not known, "" where the text is not."""
        source = self._sources.get(place.file)
        text = source.text.get(place.line, "") if source else ""
        first, last = place.columns
        return text.encode()[first:last].decode(errors="replace") if last else text

    def _label(self, branch: int) -> str:
        if branch not in self._labels:
            at = branch
            while at >= 0 and self._tree[at].kind not in (m.USER, m.OVERFLOW):
                at = self._tree[at].parent
            self._labels[branch] = self._tree[at].name.rpartition("/")[2] if at >= 0 else ""
        return self._labels[branch]


def imports(places: Sequence[m.Place]) -> bool:
    return any(p.function.rpartition(".")[2] in _IMPORTS and "importlib" in p.file for p in places)


def sets_up(place: m.Place) -> bool:
    """A function of torch that makes a network or an optimizer, fills its weights for the first time, or compiles it.

    >>> sets_up(m.Place("lib/torch/nn/init.py", "orthogonal_", 1)), sets_up(m.Place("lib/torch/jit/_script.py", "script", 1))
    (True, True)
    >>> others = ("nn/modules/linear.py", "forward"), ("jit/_script.py", "__call__")
    >>> [sets_up(m.Place("lib/torch/" + file, name, 1)) for file, name in others]
    [False, False]
    """
    file = place.file.replace("\\", "/")
    last = place.function.rpartition(".")[2]
    if any(part in file for part in _COMPILERS) or ("/torch/jit/" in file and last in _COMPILES):
        return True
    return any(part in file for part in _OF_NETWORKS) and (last in _SETS_UP or file.endswith("/init.py"))


def _instruction(place: m.Place) -> Instruction:
    return place.file, place.function, place.line, place.columns


def _function(place: m.Place) -> Instruction:
    return place.file, place.function, 0, (0, 0)


def callee(text: str) -> str:
    """The name of the function that an expression calls last.

    >>> callee("torch.stack([f(x) for x in xs])"), callee("net(x).sum(dim=(0, 1))"), callee("a + b")
    ('stack', 'sum', '')
    """
    depth = 0
    for at in range(len(text) - 1, -1, -1) if text.rstrip().endswith(")") else ():
        depth += {")": 1, "(": -1}.get(text[at], 0)
        if not depth and text[at] == "(":
            found = re.search(r"(\w+)\s*$", text[:at])
            return found[1] if found else ""
    return ""
