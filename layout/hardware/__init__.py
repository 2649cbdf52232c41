"""What silicon fixes, as layouts and bit fields: tensor maps, matrix descriptors, fragments, tensor memory.

Every hardware number of the package stands once, in this folder, with its source beside it. Nothing here knows of
kernels, generated code or a driver's presence.
"""

if __name__ != "stridewright.layout.hardware":
    raise ImportError(
        f"this folder is imported as stridewright.layout.hardware, not as {__name__}: `import stridewright.layout.hardware`"
    )

from .atom_table import Atom, atoms
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
from .instruction_descriptors import InstructionDescriptor, decode_instruction_descriptor, instruction_descriptor
from .scale_factors import SCALED_TYPES, ScaledType, ScaleSlot, ScaleTensor, scale_layout_of, scaled_kind
from .swizzle_modes import SwizzleMode, swizzle_mode, swizzle_modes
from .tensor_map import MAP_ALIGNMENT, MAP_BYTES, TensorMap, delivery_problems, stage_problems
from .tensor_map_derive import DerivedMap, derive_tensor_map
from .tensor_map_image import decode_image, encode_image
from .tensor_memory import (
    accumulator_columns,
    accumulator_layout,
    accumulator_tiles,
    data_path,
    mma_operand_layouts,
    operand_a_layout,
    scale_columns,
    scale_layout,
    scale_smem_layout,
    tmem_address,
)
from .tensor_memory_moves import (
    TensorMemoryAccess,
    TensorMemoryCopy,
    tensor_memory_access,
    tensor_memory_copies,
    tensor_memory_copy,
)
from .tensor_memory_plan import (
    Event,
    Plan,
    Region,
    Request,
    accumulator_request,
    allocation_problems,
    plan_tensor_memory,
    scale_request,
)

__all__ = [
    "MAP_ALIGNMENT",
    "MAP_BYTES",
    "SCALED_TYPES",
    "Atom",
    "CanonicalOperand",
    "DataType",
    "DerivedMap",
    "Event",
    "HardwareError",
    "InstructionDescriptor",
    "MatrixDescriptor",
    "Plan",
    "Problem",
    "Region",
    "Request",
    "ScaleSlot",
    "ScaleTensor",
    "ScaledType",
    "SwizzleMode",
    "TensorMap",
    "TensorMemoryAccess",
    "TensorMemoryCopy",
    "accumulator_columns",
    "accumulator_layout",
    "accumulator_request",
    "accumulator_tiles",
    "allocation_problems",
    "atoms",
    "bits",
    "data_path",
    "data_type",
    "decode_image",
    "decode_instruction_descriptor",
    "decode_matrix_descriptor",
    "delivery_problems",
    "derive_tensor_map",
    "encode_image",
    "instruction_descriptor",
    "k_advance",
    "ldmatrix_layout",
    "matrix_descriptor",
    "mma_a_layout",
    "mma_b_layout",
    "mma_d_layout",
    "mma_operand_layouts",
    "movmatrix_layout",
    "operand_a_layout",
    "plan_tensor_memory",
    "recognise",
    "scale_columns",
    "scale_layout",
    "scale_layout_of",
    "scale_request",
    "scale_smem_layout",
    "scaled_kind",
    "smem_atom",
    "smem_tile",
    "stage_problems",
    "stmatrix_layout",
    "swizzle_mode",
    "swizzle_modes",
    "tensor_memory_access",
    "tensor_memory_copies",
    "tensor_memory_copy",
    "tmem_address",
    "wgmma_a_layout",
    "wgmma_d_layout",
    "wgmma_n_values",
]
