"""Other programs' products over the same buffers, where they are installed: torch.mm, QuACK, Triton."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any

from stridewright.codegen.bench import Entrant
from stridewright.codegen.gpu_values import Buffers
from stridewright.codegen.measure import timing_stream

Product = Callable[[Any, Any, Any], Any]


def installed(names: Sequence[str]) -> list[str]:
    """Those of the names whose packages are there."""
    return [name for name in names if importlib.util.find_spec(name) is not None]


class TorchLoop:
    """A CUDA graph captured by PyTorch, replayed in the stream of the other loops and timed by its events."""

    def __init__(self, launches: Sequence[Callable[[], Any]], target_us: float) -> None:
        import torch

        from stridewright.codegen.measure import repeats_for

        self._stream = torch.cuda.ExternalStream(timing_stream().ptr)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for launch in launches:
                launch()
        torch.cuda.synchronize()
        self._capture(launches, 1, side)
        self.enqueue()()
        again = repeats_for(self.enqueue()(), len(launches), target_us)
        if again > 1:
            self._capture(launches, again, side)

    def _capture(self, launches: Sequence[Callable[[], Any]], repeats: int, side: Any) -> None:
        import torch

        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=side):
            for _ in range(repeats):
                for launch in launches:
                    launch()
        self.products = repeats * len(launches)

    def enqueue(self) -> Callable[[], float]:
        """Starts a replay; what it returns waits for it and gives microseconds a product."""
        import torch

        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self._stream):
            start.record()
            self._graph.replay()
            end.record()

        def microseconds() -> float:
            end.synchronize()
            return float(start.elapsed_time(end)) * 1000 / self.products

        return microseconds


def torch_entrant(label: str, detail: str, buffers: Sequence[Buffers], product: Product) -> Entrant:
    """An entrant whose ``product(a, b, d)`` takes PyTorch's tensors."""
    import torch

    sets = [tuple(torch.from_dlpack(array) for array in (one.a, one.b, one.d)) for one in buffers]
    launches = [lambda one=one: product(*one) for one in sets]

    def first(stream: Any) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
            launches[0]()

    return Entrant((label,), detail, first, lambda target_us: TorchLoop(launches, target_us))


def torch_mm(buffers: Sequence[Buffers]) -> list[Entrant]:
    """torch.mm, which calls cuBLAS."""
    import torch

    return [torch_entrant("torch", f"torch.mm {torch.__version__}", buffers, lambda a, b, d: torch.mm(a, b.t(), out=d))]


def quack_gemm(buffers: Sequence[Buffers]) -> list[Entrant]:
    """QuACK's tuned GEMM for Hopper."""
    quack = importlib.import_module("quack")
    gemm = importlib.import_module("quack.gemm_interface").gemm
    version = getattr(quack, "__version__", "")
    return [torch_entrant("quack", f"quack {version}", buffers, lambda a, b, d: gemm(a, b.t(), out=d))]


def triton_gemm(buffers: Sequence[Buffers]) -> list[Entrant]:
    """A persistent GEMM in Triton, with each of its tiles."""
    triton = importlib.import_module("triton")
    made = importlib.import_module("hopper_bench.triton_gemm")
    return [
        torch_entrant("triton", f"triton {triton.__version__} {config}", buffers, made.product(config))
        for config in made.CONFIGS
    ]


_MAKERS = {"torch": torch_mm, "quack": quack_gemm, "triton": triton_gemm}


def peers(names: Sequence[str]) -> Callable[[Sequence[Buffers]], list[Entrant]]:
    """What makes the entrants of these names from buffers, those that can run; ValueError for a name without one."""
    unknown = [name for name in names if name not in _MAKERS]
    if unknown:
        raise ValueError(f"peers {', '.join(unknown)}: there are {', '.join(_MAKERS)}")
    there = installed(names)
    for name in there:
        importlib.import_module(name)
    return lambda buffers: [
        entrant for name in there for entrant in _MAKERS[name](buffers) if _runs(entrant, timing_stream())
    ]


def _runs(entrant: Entrant, stream: Any) -> bool:
    """Whether an entrant's launch gets through; another program may refuse a shape."""
    try:
        entrant.launch(stream)
        stream.synchronize()
    except Exception as error:  # whatever that program raises
        print(f"{entrant.detail} left out: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr, flush=True)
        return False
    return True
