"""What the parts of the emulated machine raise. They know nothing of PTX: who executes an instruction adds its line."""

from __future__ import annotations

__all__ = ["DescriptorError", "MachineError", "MbarrierError", "MemoryAccessError", "TensorCopyError"]


class MachineError(Exception):
    """An operation that the hardware would refuse, or whose result it does not define.

    Args:
        kind: a short stable word, such as "out of bounds", "misaligned", "unwritten", "barrier", "illegal instruction"
            or "unknown" (the chip was never asked).
        message: what was given, what is allowed, and the nearest thing that works.

    >>> str(MachineError("misaligned", "lane 3: address 0x402 is not a multiple of 4"))
    'misaligned: lane 3: address 0x402 is not a multiple of 4'
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class MemoryAccessError(MachineError):
    """A load or store outside its memory, misaligned, of bytes never written, or over a live mbarrier."""


class MbarrierError(MachineError):
    """An mbarrier operation whose outcome PTX leaves undefined."""


class TensorCopyError(MachineError):
    """A TMA operation that ends in an error on the chip, or whose outcome was never measured."""


class DescriptorError(MachineError):
    """A matrix descriptor or wgmma shape that does not exist, or that reaches outside shared memory."""
