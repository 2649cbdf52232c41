"""What silicon fixes, as layouts and bit fields: tensor maps, matrix descriptors, fragments, tensor memory.

Every hardware number of the package stands once, in this folder, with its source beside it. Nothing here knows of
kernels, generated code or a driver's presence.
"""

if __name__ != "stridewright.layout.hardware":
    raise ImportError(
        f"this folder is imported as stridewright.layout.hardware, not as {__name__}: `import stridewright.layout.hardware`"
    )

from .descriptors import MatrixDescriptor, decode_matrix_descriptor
from .dtypes import DataType, bits, data_type
from .errors import HardwareError, Problem
from .swizzle_modes import SwizzleMode, swizzle_mode, swizzle_modes
from .tensor_map import MAP_ALIGNMENT, MAP_BYTES, TensorMap, delivery_problems, stage_problems

__all__ = [
    "MAP_ALIGNMENT",
    "MAP_BYTES",
    "DataType",
    "HardwareError",
    "MatrixDescriptor",
    "Problem",
    "SwizzleMode",
    "TensorMap",
    "bits",
    "data_type",
    "decode_matrix_descriptor",
    "delivery_problems",
    "stage_problems",
    "swizzle_mode",
    "swizzle_modes",
]
