"""What silicon fixes, as layouts and bit fields: tensor maps, matrix descriptors, fragments, tensor memory.

Every hardware number of the package stands once, in this folder, with its source beside it. Nothing here knows of
kernels, generated code or a driver's presence.
"""

if __name__ != "stridewright.layout.hardware":
    raise ImportError(
        f"this folder is imported as stridewright.layout.hardware, not as {__name__}: `import stridewright.layout.hardware`"
    )

from .canonical import CanonicalOperand, k_advance, matrix_descriptor, recognise, smem_atom, smem_tile
from .descriptors import MatrixDescriptor, decode_matrix_descriptor
from .dtypes import DataType, bits, data_type
from .errors import HardwareError, Problem
from .fragments import (
    ldmatrix_layout,
    mma_a_layout,
    mma_b_layout,
    mma_d_layout,
    movmatrix_layout,
    stmatrix_layout,
    wgmma_a_layout,
    wgmma_d_layout,
    wgmma_n_values,
)
from .swizzle_modes import SwizzleMode, swizzle_mode, swizzle_modes
from .tensor_map import MAP_ALIGNMENT, MAP_BYTES, TensorMap, delivery_problems, stage_problems
from .tensor_map_derive import DerivedMap, derive_tensor_map

__all__ = [
    "MAP_ALIGNMENT",
    "MAP_BYTES",
    "CanonicalOperand",
    "DataType",
    "DerivedMap",
    "HardwareError",
    "MatrixDescriptor",
    "Problem",
    "SwizzleMode",
    "TensorMap",
    "bits",
    "data_type",
    "decode_matrix_descriptor",
    "delivery_problems",
    "derive_tensor_map",
    "k_advance",
    "ldmatrix_layout",
    "matrix_descriptor",
    "mma_a_layout",
    "mma_b_layout",
    "mma_d_layout",
    "movmatrix_layout",
    "recognise",
    "smem_atom",
    "smem_tile",
    "stage_problems",
    "stmatrix_layout",
    "swizzle_mode",
    "swizzle_modes",
    "wgmma_a_layout",
    "wgmma_d_layout",
    "wgmma_n_values",
]
