"""Mutations of the CUDA source of block-scaled and typed Blackwell kernels: what an engineer could get wrong in the factors' way from global to tensor memory, in the
descriptors' type fields, in bytes that packed operands count, in weight-stationary tiles, in A's way to tensor memory, and between the lanes of a warp.
"""

from __future__ import annotations

from .rules import Rule, constant, drop, exchange

NVFP4, MXFP8, PAIR, MIXED = ("nvfp4",), ("mxfp8",), ("mxfp4-pair",), ("mixed",)
SCALED = ("nvfp4", "mxfp8", "mxfp4-pair", "mixed")
SINGLE = ("nvfp4", "mxfp8", "mixed")
FOURS = ("nvfp4", "mxfp4-pair")
IDS = ("mxfp8", "mxfp4-pair", "mixed")
PADDED, SIXES, TF32, WHOLE, STATIONARY = ("padded",), ("sixes",), ("tf32",), ("whole",), ("stationary",)
PACKED = ("padded", "sixes", "mixed")
TYPED = ("padded", "sixes", "tf32", "whole", "stationary")
COPIED, REGISTERS = ("copied",), ("registers",)
LEFTS = ("copied", "registers")
EVERY = (*SCALED, *TYPED, *LEFTS)

_WAIT = "            ring.wait_full(at);\n"
_COPY = "            scales.copy(at.slot, tmem);\n"
_LOAD = "            scales.load(at.slot, leaders_barrier(full), tile, k_first);\n"


def returns(function: str, formula: str, on: tuple[str, ...], label: str) -> Rule:
    """Another value of a generated function; ``{}`` in the formula is the value it has."""
    return Rule(
        f"{function}: {label}",
        rf"({function}\(uint32 \w+\) {{\n    return) (.*);",
        r"\1 " + formula.replace("{}", r"(\2)") + ";",
        on,
    )


LOADS = (
    exchange("factors' bytes are not expected", " + ScaleFactors::SLOT_BYTES)", ")", SCALED),
    exchange("factors' bytes are expected twice", " + ScaleFactors::SLOT_BYTES)", " + 2 * ScaleFactors::SLOT_BYTES)", SCALED),
    exchange("the bytes of one CTA's factors are expected", "CTAS * (A_COUNTED_BYTES + B_COUNTED_BYTES + ScaleFactors::SLOT_BYTES)", "CTAS * (A_COUNTED_BYTES + B_COUNTED_BYTES) + ScaleFactors::SLOT_BYTES", PAIR),
    exchange("A's factors are not counted", "SLOT_BYTES = SCALE_A_SLOT_BYTES + SCALE_B_SLOT_BYTES", "SLOT_BYTES = SCALE_B_SLOT_BYTES", SCALED),
    drop("factors are not loaded", _LOAD, SCALED),
    exchange("factors are counted at the next slot's barrier", "scales.load(at.slot, leaders_barrier(full)", "scales.load(at.slot, leaders_barrier(ring.full_barrier((at.slot + 1) % STAGES))", SCALED),
    Rule("factors are loaded before the slot is free", r"            ring\.wait_empty\(at\);\n((?:.*\n)*?)            scales\.load\(.*\n", "            scales.load(at.slot, leaders_barrier(ring.full_barrier(at.slot)), tile, k_first);\n            ring.wait_empty(at);\n" + r"\1", SCALED),
    exchange("A's factors are always loaded into slot 0", "a + slot * SCALE_A_SLOT_BYTES, maps.a", "a, maps.a", SCALED),
    exchange("B's factors are always loaded into slot 0", "b + slot * SCALE_B_SLOT_BYTES, maps.b", "b, maps.b", SCALED),
    exchange("B's factors are loaded where A's lie", "b + slot * SCALE_B_SLOT_BYTES, maps.b", "a + slot * SCALE_A_SLOT_BYTES, maps.b", SCALED),
    exchange("factors do not follow K", "along = k_first / SCALE_ATOM_K", "along = 0", SCALED),
    exchange("factors along K counted in elements", "along = k_first / SCALE_ATOM_K", "along = k_first", SCALED),
    exchange("factors of the next atom along K", "along = k_first / SCALE_ATOM_K", "along = k_first / SCALE_ATOM_K + 1", SCALED),
    exchange("A's factors from the row, not the atom", "cta_of_tile() * A_ROWS) / SCALE_ATOM_ROWS", "cta_of_tile() * A_ROWS)", SCALED),
    exchange("A's factors from the first block of rows", "(tile.row * TILE_M + cta_of_tile() * A_ROWS) / SCALE_ATOM_ROWS", "0", SCALED),
    exchange("B's factors from the tile's row", "along, tile.column * TILE_N / SCALE_ATOM_ROWS", "along, tile.row * TILE_N / SCALE_ATOM_ROWS", SCALED),
    exchange("B's factors one atom of rows on", "along, tile.column * TILE_N / SCALE_ATOM_ROWS", "along, tile.column * TILE_N / SCALE_ATOM_ROWS + 1", SCALED),
    exchange("the follower takes the leader's factors of A", "tile.row * TILE_M + cta_of_tile() * A_ROWS) / SCALE", "tile.row * TILE_M) / SCALE", PAIR),
    exchange("each CTA takes the factors of its half of B only", "along, tile.column * TILE_N / SCALE_ATOM_ROWS", "along, (tile.column * TILE_N + cta_of_tile() * B_ROWS) / SCALE_ATOM_ROWS", PAIR),
    exchange("A's map for B's factors", "maps.b, barrier, along", "maps.a, barrier, along", SCALED),
    exchange("coordinates of atoms exchanged", '"r"(along), "r"(down)', '"r"(down), "r"(along)', SCALED),
    exchange("atoms from their second element on", '"r"(0), "r"(along)', '"r"(1), "r"(along)', SCALED),
    exchange("factors count at a barrier of the other CTA without .cta_group::2", "complete_tx::bytes.cta_group::2 [%0], [%1, {%3, %4, %5}]", "complete_tx::bytes [%0], [%1, {%3, %4, %5}]", PAIR),
    constant("SCALE_B_OFFSET", "{} - 512", SCALED),
    constant("SCALE_A_OFFSET", "{} - 512", SCALED),
    constant("SCALE_A_OFFSET", "{} + 64", SCALED, "64 bytes on"),
)  # fmt: skip

COPIES = (
    exchange("factors are copied before they have arrived", _WAIT + _COPY, _COPY + _WAIT, SCALED),
    drop("factors are not copied", _COPY, SCALED),
    exchange("factors are copied once a tile", _COPY, "            if (k_first == 0) scales.copy(at.slot, tmem);\n", SCALED),
    exchange("factors are copied from the slot before", _COPY, "            scales.copy((at.slot + STAGES - 1) % STAGES, tmem);\n", SCALED),
    exchange("factors are copied after the slot is committed", "            commit_slot(ring.empty_barrier(at.slot));\n", "            commit_slot(ring.empty_barrier(at.slot));\n" + _COPY, SCALED),
    exchange("no fence between the wait and the copies", "        tmem_fence_after_sync();\n        const uint64 from_a", "        const uint64 from_a", SCALED),
    exchange("the fence stands before the barrier's side of it", "        tmem_fence_after_sync();\n        const uint64 from_a", '        asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");\n        const uint64 from_a', SCALED),
    exchange("A's factors from slot 0", "(((a + slot * SCALE_A_SLOT_BYTES) & 0x3ffff) >> 4)", "((a & 0x3ffff) >> 4)", SCALED),
    exchange("B's factors from slot 0", "(((b + slot * SCALE_B_SLOT_BYTES) & 0x3ffff) >> 4)", "((b & 0x3ffff) >> 4)", SCALED),
    exchange("A's factors from B's bytes", "from_a + scale_a_from(atom)", "from_b + scale_a_from(atom)", SCALED),
    exchange("addresses of factors in bytes", "((b + slot * SCALE_B_SLOT_BYTES) & 0x3ffff) >> 4)", "(b + slot * SCALE_B_SLOT_BYTES) & 0x3fff)", SCALED),
    exchange("the last atom of A is not copied", "atom < SCALE_A_ATOMS", "atom < SCALE_A_ATOMS - 1", SCALED),
    exchange("the last atom of B is not copied", "atom < SCALE_B_ATOMS", "atom < SCALE_B_ATOMS - 1", SCALED),
    exchange("an atom of B too many is copied", "atom < SCALE_B_ATOMS", "atom < SCALE_B_ATOMS + 1", FOURS),
    exchange("A's atoms one column on", "SCALE_A_COLUMN + scale_columns(slot) + scale_a_to(atom)", "SCALE_A_COLUMN + 1 + scale_columns(slot) + scale_a_to(atom)", SCALED),
    exchange("A's atoms in the lanes of the second quarter", "tmem_copy_atom(tmem + SCALE_A_COLUMN", "tmem_copy_atom(tmem + (32u << 16) + SCALE_A_COLUMN", SCALED),
    exchange("B's atoms onto A's columns", "tmem_copy_atom(tmem + SCALE_B_COLUMN", "tmem_copy_atom(tmem + SCALE_A_COLUMN", SCALED),
    constant("SCALE_DESCRIPTOR", "{} + 32", SCALED, "an atom on"),
    constant("SCALE_DESCRIPTOR", "{} & ~(1ull << 46)", SCALED, "version 0"),
    constant("SCALE_DESCRIPTOR", "{} | (2ull << 61)", SCALED, "swizzle 128B"),
    constant("SCALE_DESCRIPTOR", "{} + (8ull << 32)", SCALED, "groups of 8 rows twice as far apart"),
    constant("SCALE_DESCRIPTOR", "{} - (4ull << 32)", SCALED, "groups of 8 rows half as far apart"),
    exchange("copies of 64 rows", "::1.32x128b.warpx4", "::1.64x128b.warpx2::02_13", SINGLE),
    exchange("copies of 4 rows", "::1.32x128b.warpx4", "::1.4x256b", SINGLE),
    exchange("copies to one quarter of the lanes, 128 rows", "::1.32x128b.warpx4", "::1.128x128b", SINGLE),
    exchange("copies unpack 4 bits", "::1.32x128b.warpx4", "::1.32x128b.warpx4.b8x16.b4x16_p64", SINGLE),
    returns("scale_a_from", "{} + 32", FOURS, "an atom on"),
    returns("scale_b_from", "atom << 5", NVFP4, "in the order of bytes, not of columns"),
    returns("scale_a_to", "0", FOURS, "all to the same columns"),
    returns("scale_b_to", "{} / 2", FOURS, "half as far apart"),
    returns("scale_columns", "0 * {}", SCALED, "the same for all slots"),
    returns("scale_columns", "{} / 2", SCALED, "half as far apart"),
)  # fmt: skip

MULTIPLIES = (
    exchange("factors of A from the next slot's columns", "scale_a = tmem + SCALE_A_COLUMN + scale_columns(slot)", "scale_a = tmem + SCALE_A_COLUMN + scale_columns((slot + 1) % STAGES)", SCALED),
    exchange("factors of A from B's columns", "scale_a = tmem + SCALE_A_COLUMN", "scale_a = tmem + SCALE_B_COLUMN", SCALED),
    exchange("factors of B from a column too far", "scale_b_step(step) + within", "scale_b_step(step) + within + 1", SCALED),
    exchange("a tile that begins inside an atom is taken from its start", "scale_b_step(step) + within", "scale_b_step(step)", FOURS),
    exchange("a tile inside an atom counted in rows of 64", "% SCALE_ATOM_ROWS / 32", "% SCALE_ATOM_ROWS / 64", ("nvfp4", "mxfp8", "mxfp4-pair")),
    exchange("the columns of A's and B's factors exchanged", "scale_ids(step), scale_a, scale_b", "scale_ids(step), scale_b, scale_a", SCALED),
    exchange("one id for all steps", "INSTRUCTION_DESCRIPTOR + scale_ids(step)", "INSTRUCTION_DESCRIPTOR", IDS),
    returns("scale_ids", "{} & ~0x30u", IDS, "B's factors stay at the first"),
    returns("scale_ids", "{} & 0x3fffffffu", IDS, "A's factors stay at the first"),
    returns("scale_a_step", "0 * {}", FOURS, "all steps from the first columns"),
    returns("scale_b_step", "{} / 2", FOURS, "half as far apart"),
    returns("scale_b_step", "{} + 4", FOURS, "a step ahead"),
    constant("SCALE_A_COLUMN", "{} - 4", SCALED, "the accumulator's last columns"),
    constant("SCALE_B_COLUMN", "{} - 4", SCALED, "A's last columns"),
    constant("TMEM_COLUMNS", "{} / 4", SCALED, "too few are allocated"),
    exchange("a factor for 32 elements instead of 16", "block_scale.block16", "block_scale.block32", NVFP4),
    exchange("the kind without ue4m3", "kind::mxf4nvf4.block_scale.block16", "kind::mxf4.block_scale.block32", NVFP4),
    exchange("the kind of bytes for packed pairs", "kind::mxf4.block_scale.block32", "kind::mxf8f6f4.block_scale", PAIR),
    exchange("the kind of packed pairs for bytes", "kind::mxf8f6f4.block_scale", "kind::mxf4.block_scale", ("mxfp8", "mixed")),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (1u << 23)", SCALED, "factors of the other type"),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (1u << 7)", MXFP8, "A e5m2 for e4m3"),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (1u << 7)", MIXED, "A e4m3 for e5m2"),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (5u << 10)", MIXED, "B e4m3 for e2m1"),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (6u << 10)", MIXED, "B e2m3 for e2m1"),
    constant("INSTRUCTION_DESCRIPTOR", "{} & ~(7u << 7)", FOURS, "A of no format"),
    constant("INSTRUCTION_DESCRIPTOR", "{} | (1u << 13)", SCALED, "A negated"),
    constant("INSTRUCTION_DESCRIPTOR", "{} | (1u << 16)", ("nvfp4", "mxfp8"), "B transposed"),
    constant("INSTRUCTION_DESCRIPTOR", "{} - (2u << 17)", SCALED, "N 16 less"),
    constant("INSTRUCTION_DESCRIPTOR", "{} | (1u << 29)", SCALED, "A's first factor is its second"),
    constant("INSTRUCTION_DESCRIPTOR", "{} | (1u << 4)", SCALED, "B's first factor is its second"),
    exchange("sums of scaled products never start at zero", "k_first > 0 || step > 0", "true", SCALED),
    exchange("last k-step of factors left out", "step < K_STEPS; ++step", "step < K_STEPS - 1; ++step", SCALED),
)  # fmt: skip

TYPES = (
    exchange("the bytes of slots are expected, not of packed rows", "A_COUNTED_BYTES + B_COUNTED_BYTES", "A_SLOT_BYTES + B_SLOT_BYTES", PACKED),
    constant("B_COUNTED_BYTES", "{} / 2", EVERY),
    constant("A_COUNTED_BYTES", "{} + 16", TYPED),
    constant("B_COUNTED_BYTES", "{} * 3 / 2", PADDED, "of 6 bits"),
    constant("A_COUNTED_BYTES", "{} * 2 / 3", SIXES, "of 4 bits"),
    constant("B_BOX_SPAN", "{} / 2", TF32),
    constant("A_BOX_STEP", "{} / 2", TF32),
    constant("A_BOXES", "{} - 1", TF32),
    constant("A_K_MAJOR", "!{}", ("tf32", "padded")),
    constant("TILE_K", "{} / 2", ("padded", "sixes", "tf32", "whole")),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (1u << 7)", PADDED, "A e5m2 for e4m3"),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (5u << 10)", PADDED, "B e4m3 for e2m1"),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (1u << 10)", PADDED, "B e3m2 for e2m1"),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (7u << 7) ^ (7u << 10)", SIXES, "A's and B's formats exchanged"),
    constant("INSTRUCTION_DESCRIPTOR", "{} & ~(7u << 7)", SIXES, "A e4m3 for e2m3"),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (3u << 7)", TF32, "A bf16 for tf32"),
    constant("INSTRUCTION_DESCRIPTOR", "{} & ~(1u << 15)", TF32, "A is not transposed"),
    constant("INSTRUCTION_DESCRIPTOR", "{} & ~(1u << 16)", TF32, "B is not transposed"),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (1u << 7)", WHOLE, "A signed"),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (1u << 10)", WHOLE, "B unsigned"),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (3u << 4)", WHOLE, "float32 sums of whole numbers"),
    constant("INSTRUCTION_DESCRIPTOR", "{} | (1u << 13)", WHOLE, "A negated"),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (3u << 4)", PADDED, "whole sums of floats"),
    constant("INSTRUCTION_DESCRIPTOR", "{} & ~(3u << 4)", SIXES, "float16 sums"),
    constant("INSTRUCTION_DESCRIPTOR", "{} | (1u << 2)", TYPED, "sparse"),
    exchange("tf32 as 16 bits", '"kind::tf32"', '"kind::f16"', TF32),
    exchange("whole numbers as floats", '"kind::i8"', '"kind::f8f6f4"', WHOLE),
    exchange("floats as whole numbers", '"kind::f8f6f4"', '"kind::i8"', ("padded", "sixes")),
    exchange("bytes as 16 bits", '"kind::f8f6f4"', '"kind::f16"', PADDED),
    constant("A_DESCRIPTOR", "{} ^ (3ull << 61)", TF32, "swizzle 128B of 16-byte atoms"),
    constant("A_DESCRIPTOR", "{} + (64ull << 16)", TF32, "blocks along M further apart"),
    constant("B_DESCRIPTOR", "{} - (32ull << 32)", TF32, "groups of K half as far apart"),
    constant("B_DESCRIPTOR", "{} ^ (6ull << 61)", PADDED, "swizzle 64B"),
    returns("a_step_advance", "step * 2", TF32, "as if K-major"),
    returns("b_step_advance", "step * 1", PACKED, "packed bytes of a step"),
    constant("INTEGER", "!{}", ("whole", "padded")),
    constant("D_FORMAT", "FORMAT_BF16", SIXES, "bf16 for f16"),
    constant("CHUNK", "{} / 2", ("whole", "padded")),
)  # fmt: skip

STILL = (
    exchange("the stationary multiply is an ordinary one", '#define MULTIPLY_FORM ".ws"', '#define MULTIPLY_FORM ""', STATIONARY),
    constant("INSTRUCTION_DESCRIPTOR", "{} + (2u << 24)", STATIONARY, "M 32 more"),
    constant("INSTRUCTION_DESCRIPTOR", "{} - (8u << 17)", STATIONARY, "N 64 less"),
    Rule("each warp reads the first quarter of lanes", r"(DEVICE uint32 warp_lanes\(uint32 warp\) {\n    return) .*;", r"\1 0;", STATIONARY),
    Rule("columns as if all warps had the same", r"(DEVICE uint32 fragment_column\(uint32 lane, uint32 warp, uint32 value, uint32 piece\) {\n    return) (.*);", r"\1 value + (piece << 5);", STATIONARY),
    Rule("rows as if each warp had its own", r"(DEVICE uint32 fragment_row\(uint32 lane, uint32 warp\) {\n    return) (.*);", r"\1 lane + (warp << 5);", STATIONARY),
    exchange("the accumulator one column on", "tmem + accumulator_offset(into.slot)", "tmem + 1 + accumulator_offset(into.slot)", STATIONARY),
    drop("the accumulator's barrier is not committed", "        tmem_commit(accumulators.full_barrier(into.slot));\n", STATIONARY),
)  # fmt: skip

_FILL = "            left.fill(at, a);\n"
_ARRIVALS = "                    mbarrier_arrive(ready + at.slot * 8);\n"
_FREED = "                    mbarrier_arrive(ring.empty_barrier(at.slot));    // beside the commit, which speaks for the multiplies alone\n"
_FENCES = "                tmem_store_wait();\n                tmem_fence_before_sync();\n"
_PROXY = "                fence_async_proxy();    // the copy engine overwrites through another proxy what these loads have read\n"

LEFT = (
    drop("A is not brought to tensor memory", _FILL, LEFTS),
    exchange("A is copied before it has arrived", _WAIT, "            left.fill(at, descriptor_a + at.slot * (A_SLOT_BYTES >> 4));\n" + _WAIT, COPIED),
    exchange("A is multiplied from slot 0's columns", "return {tmem + tensor_a(slot, step)}", "return {tmem + tensor_a(0, step)}", LEFTS),
    exchange("A stays at its first step's columns", "return {tmem + tensor_a(slot, step)}", "return {tmem + tensor_a(slot, 0)}", LEFTS),
    exchange("A is multiplied from the next slot's columns", "return {tmem + tensor_a(slot, step)}", "return {tmem + tensor_a((slot + 1) % STAGES, step)}", LEFTS),
    exchange("the columns of A are those of its sums", "tmem(tmem + TENSOR_A_COLUMN)", "tmem(tmem)", LEFTS),
    constant("TENSOR_A_COLUMN", "{} - 8", LEFTS, "the accumulator's last columns"),
    Rule("tensor_a: the same for all slots and steps", r"(tensor_a\(uint32 slot, uint32 step\) {\n    return) (.*);", r"\1 0;", LEFTS),
    Rule("tensor_a: slots half as far apart", r"(tensor_a\(uint32 slot, uint32 step\) {\n    return) (.*);", r"\1 (slot << 4) + (step << 3);", LEFTS),
    exchange("no fence before A is copied", "        tmem_fence_after_sync();\n        #pragma unroll\n        for (int step = 0; step < K_STEPS; ++step) tmem_copy_rows", "        #pragma unroll\n        for (int step = 0; step < K_STEPS; ++step) tmem_copy_rows", COPIED),
    exchange("A is copied from one step on", "tmem_copy_rows(tmem + tensor_a(at.slot, step), a + a_step_advance(step))", "tmem_copy_rows(tmem + tensor_a(at.slot, step), a + a_step_advance((step + 1) % (K_STEPS)))", COPIED),
    exchange("the last step of A is not copied", "step < K_STEPS; ++step) tmem_copy_rows", "step < K_STEPS - 1; ++step) tmem_copy_rows", COPIED),
    exchange("half the bytes of a step are copied", "cta_group::2.128x256b", "cta_group::2.128x128b", COPIED),
    exchange("4 rows are copied", "cta_group::2.128x256b", "cta_group::2.4x256b", COPIED),
    constant("A_DESCRIPTOR", "{} ^ (6ull << 61)", COPIED, "swizzle 64B"),
    exchange("A in registers is not waited for", "                ring.wait_full(at);\n                tmem_fence_after_sync();\n                const", "                tmem_fence_after_sync();\n                const", REGISTERS),
    exchange("no fence after the slot is full", "                ring.wait_full(at);\n                tmem_fence_after_sync();\n                const", "                ring.wait_full(at);\n                const", REGISTERS),
    exchange("the multiply does not wait for A's warps", "        mbarrier_wait(ready + at.slot * 8, at.parity);\n", "", REGISTERS),
    exchange("no fence after A is ready", "        mbarrier_wait(ready + at.slot * 8, at.parity);\n        tmem_fence_after_sync();\n", "        mbarrier_wait(ready + at.slot * 8, at.parity);\n", REGISTERS),
    exchange("stores of A are not waited for", _FENCES, "                tmem_fence_before_sync();\n", REGISTERS),
    exchange("no fence before A is said to be ready", _FENCES, "                tmem_store_wait();\n", REGISTERS),
    drop("what A's warps have read is not fenced for the copy engine", _PROXY, REGISTERS),
    drop("nobody says that A is ready", _ARRIVALS, REGISTERS),
    drop("A's warps do not free the slot", _FREED, REGISTERS),
    exchange("all lanes say that A is ready", "                if (elect_one()) {\n" + _ARRIVALS, "                mbarrier_arrive(ready + at.slot * 8);\n                if (elect_one()) {\n", REGISTERS),
    exchange("A is ready when one warp is", "slot * 8, WARPS);", "slot * 8, 1);", REGISTERS),
    exchange("A's slot is free before it was read", "                ring.wait_full(at);\n                tmem_fence_after_sync();\n                const", "                ring.wait_full(at);\n                if (elect_one()) mbarrier_arrive(ring.empty_barrier(at.slot));\n                tmem_fence_after_sync();\n                const", REGISTERS),
    exchange("A's barriers are not initialised", "        LeftOperand::initialise(shared);\n", "", REGISTERS),
    exchange("rows of A from the wrong warp", "const uint32 row = threadIdx.x % 128;\n        Position", "const uint32 row = threadIdx.x % 128 ^ 32;\n        Position", REGISTERS),
    exchange("warps write one another's lanes", "part * A_STORED + warp_lanes(warp)", "part * A_STORED + warp_lanes(warp ^ 1)", REGISTERS),
    exchange("chunks of A backwards", "a_chunk(row, part * A_STORE_CHUNKS + chunk)", "a_chunk(row, part * A_STORE_CHUNKS + (A_STORE_CHUNKS - 1 - chunk))", REGISTERS),
    Rule("a_chunk: no swizzle", r"(a_chunk\(uint32 row, uint32 chunk\) {\n    return) (.*);", r"\1 (row << 6) + (chunk << 4);", REGISTERS),
    exchange("the two elements of a word exchanged", "halves : pack_bf16(widened_f16(static_cast<uint16>(halves)), widened_f16(static_cast<uint16>(halves >> 16)))", "halves : pack_bf16(widened_f16(static_cast<uint16>(halves >> 16)), widened_f16(static_cast<uint16>(halves)))", REGISTERS),
    exchange("A as e5m2", '#define A_TYPE "e4m3x2"', '#define A_TYPE "e5m2x2"', REGISTERS),
    constant("TO_F16", "!{}", REGISTERS),
    exchange("a warp of A's has nothing to do", "warp >= 8) {\n        left.convert", "warp >= 9) {\n        left.convert", REGISTERS),
)  # fmt: skip

LANES = (
    exchange("lanes do not meet after one has waited for its stores", "tma_store_wait_read<STAGING_BUFFERS - 1>();\n            __syncwarp();\n", "tma_store_wait_read<STAGING_BUFFERS - 1>();\n", ("mxfp8", "sixes", "whole")),
    exchange("lanes do not meet before one sends off what they staged", "            fence_async_proxy();\n            __syncwarp();\n", "            fence_async_proxy();\n", ("mxfp8", "sixes", "whole")),
    exchange("lanes do not meet before one says that A is ready", _PROXY + "                __syncwarp();\n", _PROXY, REGISTERS),
    exchange("one lane alone fences, before the lanes have met", "                fence_async_proxy();    // the copy engine", "                if (elect_one()) fence_async_proxy();    // the copy engine", REGISTERS),
    exchange("one lane alone fences what all have staged", "            fence_async_proxy();\n            __syncwarp();\n            if (lane == 0) {\n", "            if (lane == 0) fence_async_proxy();\n            __syncwarp();\n            if (lane == 0) {\n", ("mxfp8", "sixes", "whole")),
    exchange("one lane alone fences what all have read", "                fence_async_proxy();    // the copy engine overwrites through another proxy what these loads have read\n                __syncwarp();\n                if (elect_one()) {\n", "                __syncwarp();\n                if (elect_one()) {\n                    fence_async_proxy();\n", REGISTERS),
)  # fmt: skip

ORDER = (
    exchange("the multiply does not wait for the slot", _WAIT, "", (*SCALED, *TYPED, "copied")),
    exchange("a slot is freed by an arrival instead of a commit", "            commit_slot(ring.empty_barrier(at.slot));\n", "            mbarrier_arrive(ring.empty_barrier(at.slot));\n", ("nvfp4", "mxfp8", "padded", "whole")),
    exchange("copies do not wait for a free slot", "            ring.wait_empty(at);\n", "", EVERY),
    exchange("no fence after the accumulator is free", "        accumulators.wait_empty(into);\n        tmem_fence_after_sync();\n", "        accumulators.wait_empty(into);\n", ("mxfp8", "padded", "whole", "stationary")),
    drop("no wait for the registers", "            tmem_load_wait(values);\n", EVERY),
)  # fmt: skip

TYPED_RULES: tuple[Rule, ...] = (*LOADS, *COPIES, *MULTIPLIES, *TYPES, *STILL, *LEFT, *LANES, *ORDER)
