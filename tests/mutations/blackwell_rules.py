"""Mutations of the Blackwell kernels' CUDA source: what an engineer could get wrong in tensor memory's lifetime, the rings, the roles, the multiplies, launch
control, pairs and the epilogues. Every trap that others fell into in public (marked "trap") is among them.
"""

from __future__ import annotations

from .rules import Rule, constant, drop, exchange

TEXTBOOK, RING2 = ("textbook",), ("ring",)
ONES = ("textbook", "ring")
STATIC, NARROW, CONTROL, PAIR, HALVES = ("static",), ("narrow",), ("control",), ("pair",), ("halves",)
FAMILY = ("static", "narrow", "control", "pair", "halves")
SINGLE = ("static", "narrow", "control")
PAIRS = ("pair", "halves")
CLC, MULTICAST = ("control", "pair"), ("multicast",)
STAGED = ("static", "pair", "halves")
TWO = ("static", "pair")

_FENCES = "    sync_ctas();\n"
_FREE = "    if (warp == 3) tmem_free<TMEM_COLUMNS>(tmem);\n"
_ALLOCATE = "        tmem_allocate<TMEM_COLUMNS>(shared + TMEM_ADDRESS_OFFSET);\n"
_RELINQUISH = "        tmem_relinquish();\n"
_WAIT_LOAD = "            tmem_load_wait(values);\n"
_RELEASE = "                if (elect_one()) accumulators.release(from);\n"

LIFETIME = (
    drop("tensor memory is not given back", _FREE, FAMILY),
    exchange("half of tensor memory is given back", "tmem_free<TMEM_COLUMNS>(tmem)", "tmem_free<TMEM_COLUMNS / 2>(tmem)", STATIC),
    exchange("another address is given back", "tmem_free<TMEM_COLUMNS>(tmem)", "tmem_free<TMEM_COLUMNS>(tmem + 32)", STATIC),
    exchange("tensor memory is given back twice", _FREE, _FREE * 2, FAMILY),
    exchange("two warps give it back", "    if (warp == 3) tmem_free", "    if (warp >= 3 && warp < 5) tmem_free", STATIC),
    exchange("trap: nothing is allocated", _ALLOCATE, "", (*SINGLE, "pair")),
    exchange("it is taken after the permit is given up", _ALLOCATE + _RELINQUISH, _RELINQUISH + _ALLOCATE, FAMILY),
    exchange("two warps allocate", "    if (warp == 3) {\n        tmem_allocate", "    if (warp >= 3 && warp < 5) {\n        tmem_allocate", STATIC),
    exchange("one thread allocates", "    if (warp == 3) {\n        tmem_allocate", "    if (warp == 3 && elect_one()) {\n        tmem_allocate", STATIC),
    constant("TMEM_COLUMNS", "{} / 2", TWO),
    constant("TMEM_ADDRESS_OFFSET", "{} + 2", STATIC),
    exchange("the address is read before the barrier", _FENCES + "    const uint32 tmem = load_shared(shared + TMEM_ADDRESS_OFFSET);\n", "    const uint32 tmem = load_shared(shared + TMEM_ADDRESS_OFFSET);\n" + _FENCES, (*SINGLE, "pair")),
    exchange("it is given back before the others are done", "    __syncwarp();\n" + _FENCES + _FREE, "    __syncwarp();\n" + _FREE + _FENCES, FAMILY),
    exchange("trap: a CTA leaves early, as one without a tile might", "    dependency_allow();\n", "    if (blockIdx.x + CTAS >= gridDim.x) return;\n", ("static", "halves")),
    exchange("trap: the address is read again where tiles lie", _FREE, "    if (warp == 3) tmem_free<TMEM_COLUMNS>(load_shared(shared + A_OFFSET));\n", STATIC),
    exchange("trap: a tile overwrites the address before all have read it", "    const uint32 tmem = load_shared(shared + TMEM_ADDRESS_OFFSET);\n", "    store_shared_16(shared + TMEM_ADDRESS_OFFSET, Bytes16());\n    const uint32 tmem = load_shared(shared + TMEM_ADDRESS_OFFSET);\n", STATIC),
    exchange("the textbook keeps it", "    if (warp == 0) tmem_free<TMEM_COLUMNS>(tmem);\n", "", ONES),
    exchange("the textbook gives it back too early", "    __syncthreads();\n    if (warp == 0) tmem_free", "    if (warp == 0) tmem_free", ONES),
)  # fmt: skip

PAIRED = (
    exchange("trap: the pair allocates before both CTAs run", "sync_before_allocation() { sync_ctas(); }", "sync_before_allocation() {}", PAIRS),
    exchange("trap: no cluster barrier at the end", _FENCES + _FREE, "    __syncthreads();\n" + _FREE, PAIRS),
    exchange("trap: the follower leaves before the pair has allocated", "    sync_ctas();\n    const uint32 tmem", "    if (cta_of_tile() == 1) return;\n    sync_ctas();\n    const uint32 tmem", PAIRS),
    exchange("only the leader allocates", "    if (warp == 3) {\n        tmem_allocate", "    if (warp == 3 && cta_of_tile() == 0) {\n        tmem_allocate", PAIRS),
    exchange("only the leader gives it back", "    if (warp == 3) tmem_free", "    if (warp == 3 && cta_of_tile() == 0) tmem_free", PAIRS),
    exchange("trap: bytes of one CTA are expected", "CTAS * (A_COUNTED_BYTES + B_COUNTED_BYTES + ScaleFactors::SLOT_BYTES)", "(A_COUNTED_BYTES + B_COUNTED_BYTES + ScaleFactors::SLOT_BYTES)", PAIRS),
    exchange("trap: bytes of four CTAs are expected", "CTAS * (A_COUNTED_BYTES + B_COUNTED_BYTES + ScaleFactors::SLOT_BYTES)", "2 * CTAS * (A_COUNTED_BYTES + B_COUNTED_BYTES + ScaleFactors::SLOT_BYTES)", PAIRS),
    exchange("both CTAs expect bytes", "if (cta_of_tile() == 0) mbarrier_arrive_expect_tx(full, ", "mbarrier_arrive_expect_tx(full, ", PAIRS),
    exchange("the follower's loads count at its own barrier", "barrier & 0xfeffffff", "barrier", PAIRS),
    exchange("both CTAs multiply", "cta_of_tile() == 0 && elect_one()) multiply", "elect_one()) multiply", PAIRS),
    exchange("the follower multiplies", "cta_of_tile() == 0 && elect_one()) multiply", "cta_of_tile() == 1 && elect_one()) multiply", PAIRS),
    exchange("the commit arrives at the leader only", "0b11 <<", "0b01 <<", PAIRS),
    exchange("the commit arrives at the follower only", "0b11 <<", "0b10 <<", PAIR),
    exchange("the commit arrives at a CTA that is not there", "0b11 <<", "0b111 <<", PAIR),
    exchange("accumulators are released at the own CTA", "mbarrier_arrive_remote(barrier, cluster_rank() & ~1u)", "mbarrier_arrive_remote(barrier, cluster_rank())", PAIRS),
    exchange("accumulators are released at the follower", "mbarrier_arrive_remote(barrier, cluster_rank() & ~1u)", "mbarrier_arrive_remote(barrier, cluster_rank() | 1u)", PAIRS),
    exchange("both CTAs load the leader's half of A", "cta_of_tile() * A_ROWS", "0 * A_ROWS", PAIRS),
    exchange("both CTAs load the leader's half of B", "cta_of_tile() * B_ROWS", "0 * B_ROWS", PAIRS),
    exchange("the halves of B change places", "cta_of_tile() * B_ROWS", "(1 - cta_of_tile()) * B_ROWS", PAIRS),
    exchange("both CTAs store the leader's rows", "tile.row * TILE_M + cta_of_tile() * D_ROWS", "tile.row * TILE_M", PAIRS),
    exchange("the cluster barrier is relaxed at the end", "barrier.cluster.arrive.release.aligned", "barrier.cluster.arrive.relaxed.aligned", PAIRS),
    exchange("an accumulator is free when one CTA has read it", "CTAS * EPILOGUE_WARPS", "EPILOGUE_WARPS", PAIRS),
)  # fmt: skip

RINGS = (
    exchange("ring turns one slot late", "if (slot == Count) {", "if (slot == Count + 1) {", FAMILY),
    exchange("parity never changes", "parity ^= 1;", "parity ^= 0;", (*FAMILY, "ring")),
    exchange("parity starts at 1", "uint32 parity = 0;\n\n", "uint32 parity = 1;\n\n", (*SINGLE, "ring")),
    exchange("trap: one empty barrier for all slots", "uint32 empty;\n\n    DEVICE uint32 full_barrier(uint32 slot) const { return full + slot * 8; }\n    DEVICE uint32 empty_barrier(uint32 slot) const { return empty + slot * 8; }\n\n    DEVICE void initialise() const {\n        for (uint32 slot = 0; slot < STAGES", "uint32 empty;\n\n    DEVICE uint32 full_barrier(uint32 slot) const { return full + slot * 8; }\n    DEVICE uint32 empty_barrier(uint32 slot) const { return empty; }\n\n    DEVICE void initialise() const {\n        for (uint32 slot = 0; slot < STAGES", (*FAMILY, "ring")),
    exchange("full barrier expects 2 arrivals", "mbarrier_init(full_barrier(slot), 1);     // the leader's", "mbarrier_init(full_barrier(slot), 2);     // the leader's", (*SINGLE, "ring")),
    exchange("empty barrier expects 2 commits", "mbarrier_init(empty_barrier(slot), SLOT_COMMITS);", "mbarrier_init(empty_barrier(slot), SLOT_COMMITS + 1);", (*FAMILY, "ring")),
    exchange("accumulator's empty barrier expects one warp", "CTAS * EPILOGUE_WARPS)", "1)", FAMILY),
    exchange("accumulator's empty barrier expects a warp more", "CTAS * EPILOGUE_WARPS)", "CTAS * EPILOGUE_WARPS + 1)", FAMILY),
    exchange("trap: every lane releases the accumulator", _RELEASE, "                accumulators.release(from);\n", FAMILY),
    exchange("one warp releases the accumulator", "if (elect_one()) accumulators.release", "if (warp == 0 && elect_one()) accumulators.release", FAMILY),
    drop("accumulators are not released", _RELEASE, FAMILY),
    drop("no fence after the barriers' initialisation", "        mbarrier_init_fence();\n", (*FAMILY, "ring")),
    drop("accumulators' barriers are not initialised", "        accumulators.initialise();\n", TWO),
    exchange("copies do not wait for a free slot", "            ring.wait_empty(at);\n", "", FAMILY),
    exchange("copies in a ring of one thread do not wait", "                ring.wait_empty(fill);\n", "", RING2),
    exchange("the multiply does not wait for the slot", "            ring.wait_full(at);\n", "", (*FAMILY, "ring")),
    exchange("the multiply does not wait for the accumulator", "        accumulators.wait_empty(into);\n", "", (*TWO, "control")),
    exchange("the epilogue does not wait for the accumulator", "        accumulators.wait_full(from);\n", "", FAMILY),
    exchange("slots are not drained at the end", "    ring.drain(at);\n", "", (*SINGLE, "pair")),
    exchange("the multiply stays at its accumulator", "        into.advance();\n", "", TWO),
    exchange("the epilogue stays at its accumulator", "        from.advance();\n", "", TWO),
    exchange("the multiply stays at its slot", "            commit_slot(ring.empty_barrier(at.slot));\n            at.advance();\n", "            commit_slot(ring.empty_barrier(at.slot));\n", FAMILY),
    exchange("wait for the other parity", "mbarrier_wait(full_barrier(at.slot), at.parity); }\n\n    // A fresh", "mbarrier_wait(full_barrier(at.slot), at.parity ^ 1); }\n\n    // A fresh", (*SINGLE, "ring")),
    exchange("waits try once", '        "  bra wait;\\\\n"\n'.replace("\\\\", "\\"), "", SINGLE),
)  # fmt: skip

_COMMIT_SLOT = "            commit_slot(ring.empty_barrier(at.slot));\n"
_COMMIT_TILE = "        tmem_commit(accumulators.full_barrier(into.slot));\n"
MULTIPLY = (
    drop("slots are not committed", _COMMIT_SLOT, FAMILY),
    exchange("slots are committed twice", _COMMIT_SLOT, _COMMIT_SLOT * 2, FAMILY),
    drop("tiles are not committed", _COMMIT_TILE, FAMILY),
    exchange("slots are committed before their multiplies", "            #pragma unroll\n            for (int step = 0; step < K_STEPS; ++step) {\n                const bool accumulate", _COMMIT_SLOT + "            #pragma unroll\n            for (int step = 0; step < K_STEPS; ++step) {\n                const bool accumulate", SINGLE),
    exchange("a slot is freed by an arrival instead of a commit", _COMMIT_SLOT, "            mbarrier_arrive(ring.empty_barrier(at.slot));\n", SINGLE),
    exchange("a tile is announced by an arrival instead of a commit", _COMMIT_TILE, "        mbarrier_arrive(accumulators.full_barrier(into.slot));\n", SINGLE),
    exchange("two threads multiply", "cta_of_tile() == 0 && elect_one()) multiply(", "cta_of_tile() == 0 && threadIdx.x % 32 < 2) multiply(", SINGLE),
    exchange("trap: the textbook's commit comes from another thread", "            tmem_commit(multiplied);\n        }\n", "        }\n        if (warp == 1 && elect_one()) tmem_commit(multiplied);\n", TEXTBOOK),
    exchange("the textbook commits before it multiplies", "            #pragma unroll\n            for (int step = 0; step < K_STEPS; ++step) {\n                tmem_multiply(tmem,", "            tmem_commit(multiplied);\n            #pragma unroll\n            for (int step = 0; step < K_STEPS; ++step) {\n                tmem_multiply(tmem,", TEXTBOOK),
    exchange("sums never start at zero", "k_first > 0 || step > 0", "true", (*FAMILY, *ONES)),
    exchange("each slot starts the sum anew", "k_first > 0 || step > 0", "step > 0", (*FAMILY, *ONES)),
    exchange("each step starts the sum anew", "k_first > 0 || step > 0", "k_first > 0", (*SINGLE, *ONES)),
    exchange("last k-step left out", "step < K_STEPS; ++step", "step < K_STEPS - 1; ++step", (*FAMILY, *ONES)),
    exchange("A one k-step on", "a_step_advance(step)", "a_step_advance((step + 1) % (K_STEPS))", (*FAMILY, *ONES)),
    exchange("B stays at its first k-step", "b_step_advance(step), tmem", "b_step_advance(0), tmem", SINGLE),
    exchange("B stays at its first k-step in the textbook", "b_step_advance(step), k_first", "b_step_advance(0), k_first", ONES),
    exchange("A is read from slot 0", "at.slot * (A_SLOT_BYTES >> 4)", "0 * (A_SLOT_BYTES >> 4)", FAMILY),
    exchange("B's slot in bytes", "at.slot * (B_SLOT_BYTES >> 4)", "at.slot * B_SLOT_BYTES", FAMILY),
    exchange("address of A in units of 8 bytes", "((slots.a & 0x3ffff) >> 4)", "((slots.a & 0x3ffff) >> 3)", SINGLE),
    exchange("A's and B's descriptors exchanged", "left.of_step(a, at.slot, step), b + b_step_advance(step)", "b + b_step_advance(step), left.of_step(a, at.slot, step)", FAMILY),
    exchange("every tile into the first accumulator", "tmem + accumulator_offset(into.slot)", "tmem", TWO),
    exchange("every tile from the first accumulator", "tmem + accumulator_offset(from.slot)", "tmem", TWO),
    exchange("the accumulator one column on", "tmem + accumulator_offset(into.slot)", "tmem + 1 + accumulator_offset(into.slot)", FAMILY),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ 0x480", FAMILY, "f16 for bf16"),
    constant("INSTRUCTION_DESCRIPTOR", "{} | 0x8000", SINGLE, "A transposed"),
    constant("INSTRUCTION_DESCRIPTOR", "{} | 0x2000", SINGLE, "A negated"),
    constant("INSTRUCTION_DESCRIPTOR", "{} - (1u << 18)", FAMILY, "N 16 less"),
    constant("INSTRUCTION_DESCRIPTOR", "{} ^ (3u << 26)", ("static", "narrow"), "M of the other size"),
    constant("INSTRUCTION_DESCRIPTOR", "{} & ~0x10u", SINGLE, "f16 accumulators"),
    constant("A_DESCRIPTOR", "{} & ~(1ull << 46)", FAMILY, "version 0"),
    constant("A_DESCRIPTOR", "{} ^ (6ull << 61)", FAMILY, "swizzle 64B"),
    constant("B_DESCRIPTOR", "{} & ~(7ull << 61)", FAMILY, "no swizzle"),
    constant("B_DESCRIPTOR", "{} + (64ull << 32)", FAMILY, "stride twice"),
    constant("A_DESCRIPTOR", "{} | (1ull << 49)", FAMILY, "base offset 1"),
    constant("A_DESCRIPTOR", "{} + 1", FAMILY, "start 16 bytes on"),
    constant("A_OFFSET", "{} + 128", SINGLE, "trap: 128 bytes on, no multiple of the swizzle's 1024"),
    constant("B_OFFSET", "{} - 1024", FAMILY),
    constant("FULL_BARRIERS_OFFSET", "{} - 8", FAMILY),
)  # fmt: skip

COPY = (
    exchange("expects one byte more", "CTAS * (A_COUNTED_BYTES + B_COUNTED_BYTES + ScaleFactors::SLOT_BYTES)", "CTAS * (A_COUNTED_BYTES + B_COUNTED_BYTES + ScaleFactors::SLOT_BYTES) + 1", FAMILY),
    exchange("expects A's bytes only", "CTAS * (A_COUNTED_BYTES + B_COUNTED_BYTES + ScaleFactors::SLOT_BYTES)", "CTAS * A_SLOT_BYTES", FAMILY),
    exchange("A is always loaded into slot 0", "slots.a + at.slot * A_SLOT_BYTES, ", "slots.a, ", FAMILY),
    exchange("A one row off", "tile.row * TILE_M + half_a", "tile.row * TILE_M + half_a + 1", FAMILY),
    exchange("B from the tile's row", "tile.column * TILE_N + half_b", "tile.row * TILE_N + half_b", FAMILY),
    exchange("boxes of A at the same place", "slot + box * A_BOX_STEP", "slot", NARROW),
    exchange("coordinates of A exchanged", "A_K_MAJOR ? k + along : row + along, A_K_MAJOR ? row : k", "A_K_MAJOR ? row : k, A_K_MAJOR ? k + along : row + along", SINGLE),
    exchange("last k-tile not loaded", "        for (uint32 k_first = 0; k_first < k; k_first += TILE_K) {\n            ring.wait_empty", "        for (uint32 k_first = 0; k_first + TILE_K < k; k_first += TILE_K) {\n            ring.wait_empty", FAMILY),
    exchange("the textbook stages no zeros", "Bytes16 eight = {};\n        if (row + r < rows && k_first + 8 * c < k) eight", "Bytes16 eight = {{0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80}};\n        if (row + r < rows && k_first + 8 * c < k) eight", TEXTBOOK),
    drop("trap: the textbook's stores are not fenced for the tensor core", "        fence_async_proxy();    // the tensor core reads through another proxy than these stores\n", TEXTBOOK),
    exchange("the textbook's threads do not wait for one another", "than these stores\n        __syncthreads();\n", "than these stores\n", TEXTBOOK),
    exchange("the textbook overwrites tiles that are being read", "        mbarrier_wait(multiplied, parity);    // only then may the tiles be overwritten\n        parity ^= 1;\n    }\n", "    }\n    mbarrier_wait(multiplied, parity);\n", TEXTBOOK),
    exchange("the textbook stages in another order of rows", "store_shared_16(slot + place(r, c), eight)", "store_shared_16(slot + place(r ^ 1, c), eight)", TEXTBOOK),
)  # fmt: skip

LAUNCH = (
    exchange("answers' barrier expects a reader less", "TILE_READERS);", "TILE_READERS - 1);", CLC),
    exchange("answers' barrier expects a reader more", "TILE_READERS);", "TILE_READERS + 1);", CLC),
    exchange("answers are not acknowledged", "        arrive_at_first(empty + at.slot * 8);\n", "", CLC),
    drop("answers are overwritten through another proxy", "        fence_async_proxy();    // what overwrites the answer comes through another proxy than this read\n", CLC),
    exchange("answers are read before they are there", "        mbarrier_wait(full + at.slot * 8, at.parity);\n        const Answer", "        const Answer", CLC),
    exchange("the scheduler does not wait for a free slot", "            if (first_cta()) mbarrier_wait(empty + ask.slot * 8, ask.parity ^ 1);\n", "", CLC),
    exchange("answers of 8 bytes are expected", "mbarrier_arrive_expect_tx(full + ask.slot * 8, 16)", "mbarrier_arrive_expect_tx(full + ask.slot * 8, 8)", CLC),
    exchange("both CTAs ask", "if (first_cta()) launch_control_ask", "launch_control_ask", PAIR),
    exchange("only the leader expects answers", "            mbarrier_arrive_expect_tx(full + ask.slot * 8, 16);", "            if (first_cta()) mbarrier_arrive_expect_tx(full + ask.slot * 8, 16);", PAIR),
    exchange("the scheduler asks after a refusal", "        } while (take(tile));", "        } while (take(tile) || ask.slot != 0);", CLC),
    exchange("a refused answer counts as a tile", "if (!launch_control_granted(answer)) return false;\n", "", CLC),
    exchange("answers 8 bytes apart", "answers + at.slot * 16", "answers + at.slot * 8", CLC),
    exchange("tiles by CTA, not by pair", "launch_control_block(answer) / CLUSTER_CTAS", "launch_control_block(answer)", PAIR),
    exchange("the first tile is taken twice", "            started = true;\n", "            started = blockIdx.x != 0;\n", CLC),
    exchange("static tiles in steps of one", "next += gridDim.x / CLUSTER_CTAS;", "next += 1;", ("static", "narrow", "halves")),
    exchange("last tile left out", "if (next >= grid.tiles()) return false;", "if (next + 1 >= grid.tiles()) return false;", ("static", "narrow", "halves")),
    exchange("last group of rows as high as the others", "min(rows - first_row, uint32(GROUP_M))", "uint32(GROUP_M)", ("static", "pair")),
)  # fmt: skip

SHARED = (
    exchange("slices of A at the start of the slot", "slot + slice * A_SLICE_BYTES + box", "slot + box", MULTICAST),
    exchange("every CTA loads the first slice of A", "    row += slice * A_SLICE_ROWS;\n", "", MULTICAST),
    exchange("every CTA loads the first slice of B", "    row += slice * B_SLICE_ROWS;\n", "", MULTICAST),
    exchange("slices of B of the other tile", "const uint32 slice = place_row();", "const uint32 slice = CLUSTER_M - 1 - place_row();", MULTICAST),
    exchange("A is not shared with the last tile", "column < CLUSTER_N; ++column", "column + 1 < CLUSTER_N; ++column", MULTICAST),
    exchange("B is not shared with the first tile", "uint32 row = 0; row < CLUSTER_M", "uint32 row = 1; row < CLUSTER_M", MULTICAST),
    exchange("A goes to the tiles of a column", "static_cast<uint16>(sharers_of_a(cta_of_tile()))", "static_cast<uint16>(sharers_of_b(cta_of_tile()))", MULTICAST),
    exchange("B goes to a CTA that is not there", "static_cast<uint16>(sharers_of_b(cta_of_tile()))", "static_cast<uint16>(sharers_of_b(cta_of_tile()) | 0x100)", MULTICAST),
    exchange("slots are committed to the own tile only", "mask |= sharers_of_a(cta) | sharers_of_b(cta);", "mask |= 1u << cluster_rank();", MULTICAST),
    exchange("slots are committed to the row only", "mask |= sharers_of_a(cta) | sharers_of_b(cta);", "mask |= sharers_of_a(cta);", MULTICAST),
    exchange("slots are committed to the whole cluster", "mask |= sharers_of_a(cta) | sharers_of_b(cta);", "mask |= (1u << CLUSTER_CTAS) - 1;", MULTICAST),
    constant("SLOT_COMMITS", "{} - 1", MULTICAST),
    constant("SLOT_COMMITS", "{} + 1", MULTICAST),
    exchange("answers are acknowledged at the own CTA", "arrive_at_first(uint32 barrier) { mbarrier_arrive_remote(barrier, 0); }", "arrive_at_first(uint32 barrier) { mbarrier_arrive_remote(barrier, cluster_rank()); }", MULTICAST),
    exchange("every tile asks for the next", "return cluster_rank() == 0;", "return cta_of_tile() == 0;", MULTICAST),
    exchange("tiles of a column are one", "block.row * CLUSTER_M + place_row()", "block.row * CLUSTER_M", MULTICAST),
    exchange("tiles of a row are one", "block.column * CLUSTER_N + place_column()", "block.column * CLUSTER_N", MULTICAST),
    exchange("no cluster barrier at the beginning and the end", "        cluster_sync();\n    } else {\n        __syncthreads();\n    }\n", "        __syncthreads();\n    } else {\n        __syncthreads();\n    }\n", MULTICAST),
    exchange("a slot expects the bytes of its own loads only", "CTAS * (A_COUNTED_BYTES + B_COUNTED_BYTES + ScaleFactors::SLOT_BYTES)", "CTAS * (A_COUNTED_BYTES + B_COUNTED_BYTES + ScaleFactors::SLOT_BYTES) / 2", MULTICAST),
    exchange("shared slots are not drained", "    ring.drain(at);\n", "", MULTICAST),
)  # fmt: skip

EPILOGUE = (
    drop("trap: no wait for the registers before the accumulator is released", _WAIT_LOAD, FAMILY),
    exchange("the textbook does not wait for its registers", "        tmem_load_wait(values);\n", "", ONES),
    exchange("the accumulator is released before the last load", "            if (piece == PIECES - 1) {\n", "            if (piece == 0) {\n", TWO),
    exchange("the accumulator is released before the wait", _WAIT_LOAD + "            if (piece == PIECES - 1) {\n                // The accumulator is in registers: the next tile but one may overwrite it while this one is stored.\n                tmem_fence_before_sync();\n                __syncwarp();\n" + _RELEASE + "            }\n", "            if (piece == PIECES - 1) {\n                tmem_fence_before_sync();\n                __syncwarp();\n" + _RELEASE + "            }\n" + _WAIT_LOAD, FAMILY),
    drop("no fence before the accumulator is released", "                tmem_fence_before_sync();\n                __syncwarp();\n", FAMILY),
    exchange("no fence after the accumulator is there", "        accumulators.wait_full(from);\n        tmem_fence_after_sync();\n", "        accumulators.wait_full(from);\n", FAMILY),
    exchange("no fence after the accumulator is free", "        accumulators.wait_empty(into);\n        tmem_fence_after_sync();\n", "        accumulators.wait_empty(into);\n", FAMILY),
    Rule("trap: warps read one another's lanes", r"(DEVICE uint32 warp_lanes\(uint32 warp\) {\n    return) .*;", r"\1 (warp ^ 1) << 21;", FAMILY),
    Rule("trap: 64 rows in 64 neighbouring lanes", r"(DEVICE uint32 warp_lanes\(uint32 warp\) {\n    return) .*;", r"\1 warp << 20;", NARROW),
    exchange("pieces half as far apart", "source + piece * PIECE_COLUMNS", "source + piece * (PIECE_COLUMNS / 2)", ("static", "pair")),
    Rule("rows of the wrong warp", r"(DEVICE uint32 fragment_row\(uint32 lane, uint32 warp\) {\n    return) (.*);", r"\1 (\2) ^ 16;", FAMILY),
    exchange("columns in the wrong order", "values + first, row", "values + (first ^ 8), row", STAGED, 0, 1),
    exchange("D one row off", "const uint32 row = tile.row * TILE_M +", "const uint32 row = 1 + tile.row * TILE_M +", FAMILY),
    exchange("D eight columns off", "row, tile.column * TILE_N);\n        }\n        from", "row, tile.column * TILE_N + 8);\n        }\n        from", FAMILY),
    drop("trap: staged results are not fenced for the copy engine", "            fence_async_proxy();\n            __syncwarp();\n            if (lane == 0) {\n                const bool tail".replace("            __syncwarp();\n            if (lane == 0) {\n                const bool tail", ""), STAGED),
    exchange("warps do not wait for their lanes", "            fence_async_proxy();\n            __syncwarp();\n", "            fence_async_proxy();\n", STAGED),
    drop("panels are overwritten while they are stored", "            if (lane == 0) tma_store_wait_read<STAGING_BUFFERS - 1>();\n", STAGED),
    exchange("one panel more may be unread", "tma_store_wait_read<STAGING_BUFFERS - 1>", "tma_store_wait_read<STAGING_BUFFERS>", STAGED),
    drop("stores are not committed", "                tma_store_commit();    // also where nothing was stored: the wait above counts panels\n", STAGED),
    drop("the CTA does not wait for its stores", "        if (threadIdx.x % 32 == 0) tma_store_wait_read<0>();\n", STAGED),
    exchange("the last panel is as wide as the others", "tail ? output.map_tail : output.map", "output.map", STATIC),
    constant("STAGING_OFFSET", "{} - 1024", STAGED),
    exchange("rows beyond the matrix are stored", "        if (row >= output.m) return;\n", "", ("narrow", "control")),
    exchange("16 bytes are stored at rows that are not aligned", "if (aligned && left + CHUNK <= output.n)", "if (left + CHUNK <= output.n)", CONTROL),
)  # fmt: skip

ROLES = (
    exchange("a warp of the epilogue is idle", "} else if (warp >= 4) {", "} else if (warp >= 5) {", FAMILY),
    exchange("the epilogue begins a warp early", "} else if (warp >= 4) {", "} else if (warp >= 3) {", ("static", "control")),
    exchange("two threads copy", "if (elect_one()) produce(", "if (threadIdx.x < 2) produce(", SINGLE),
    exchange("nobody copies", "if (elect_one()) produce(", "if (false) produce(", STATIC),
    exchange("nobody schedules", "if (elect_one()) tiles.schedule();", "", CLC),
    exchange("two threads schedule", "if (elect_one()) tiles.schedule();", "if (threadIdx.x % 32 < 2) tiles.schedule();", CLC),
    exchange("rows of the wrong format", "D_FORMAT == FORMAT_F16 ? pack_f16(low, high)", "D_FORMAT == FORMAT_BF16 ? pack_f16(low, high)", FAMILY),
    exchange("halves of a word exchanged", "(sum_of(values[i]));", "(sum_of(values[i ^ 1]));", TEXTBOOK),
)  # fmt: skip

# trap: a missing wait::st. The kernels store nothing into tensor memory, so the textbook is made to: its sum starts from zeros that the epilogue's warps store.
_ZEROS = (
    "    const uint32 tmem = load_shared(shared + TMEM_ADDRESS_OFFSET);\n"
    '    for (int column = 0; column < TILE_N; ++column) asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(tmem + warp_lanes(warp) + column), "r"(0) : "memory");\n'
)
_WAIT_STORE = '    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");\n'
# The textbook has no other use for the first fence, whose wrapper its source therefore lacks.
_AFTER = (
    '    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");\n'
    "    __syncthreads();\n    tmem_fence_after_sync();\n"
)
_ADDRESS = "    const uint32 tmem = load_shared(shared + TMEM_ADDRESS_OFFSET);\n"


def zeroed(wait: bool) -> Rule:
    """The textbook kernel, its accumulator zeroed by tcgen05.st first; with or without the wait that this needs."""
    store = _ZEROS + (_WAIT_STORE if wait else "") + _AFTER
    name = "the sum starts from stored zeros" if wait else "trap: stored zeros are not waited for"
    return exchange(name, _ADDRESS, store, TEXTBOOK)


BLACKWELL_RULES: tuple[Rule, ...] = (*LIFETIME, *PAIRED, *RINGS, *MULTIPLY, *COPY, *LAUNCH, *SHARED, *EPILOGUE, *ROLES)

PUBLIC_TRAPS: dict[str, str] = {
    "trap: the follower leaves before the pair has allocated": "the follower deallocates or exits before the pair has allocated (cutlass #3435)",
    "trap: the pair allocates before both CTAs run": "a pair's allocation without a cluster barrier before it (cutlass PR #3316)",
    "trap: every lane releases the accumulator": "32 lanes arrive where one is counted (triton #9498)",
    "trap: no cluster barrier at the end": "no cluster barrier at exit (triton #10656)",
    "trap: one empty barrier for all slots": "one shared rendezvous barrier for a ring (facebookexperimental/triton #3472)",
    "trap: bytes of one CTA are expected": "expect_tx must count the pair's bytes (tilelang #2644)",
    "trap: bytes of four CTAs are expected": "and not those of a larger cluster (tilelang #2644)",
    "A_OFFSET = trap: 128 bytes on, no multiple of the swizzle's 1024": "tiles under the 128-byte swizzle start at multiples of 1024 (tilelang #2379)",
    "trap: 64 rows in 64 neighbouring lanes": "M = 64 uses lanes 0 to 15 of each quarter (tilelang #2877, #2880)",
    "trap: no wait for the registers before the accumulator is released": "no wait::ld before the accumulator is released (cutlass PR #3652)",
    "trap: stored zeros are not waited for": "no wait::st (cutlass PR #2687)",
    "trap: a tile overwrites the address before all have read it": "tensor memory's address is overwritten in shared memory (cutlass PR #2835)",
    "trap: the address is read again where tiles lie": "and read again when it is gone (cutlass PR #2835)",
    "trap: a CTA leaves early, as one without a tile might": "a CTA without a tile leaves without giving tensor memory back (FBGEMM #5022)",
    "trap: the textbook's stores are not fenced for the tensor core": "no fence.proxy.async after ordinary stores (sglang #39124)",
    "trap: staged results are not fenced for the copy engine": "the same before a TMA store (sglang #39124)",
    "trap: warps read one another's lanes": "lane bits of an address that are not the warp's (DeepGEMM PR #341)",
    "trap: nothing is allocated": "tensor memory used without an allocation (cutlass #2230)",
    "trap: the textbook's commit comes from another thread": "a commit speaks for its own thread's multiplies only (PTX ISA, tcgen05.commit)",
}
"""Faults that others shipped: the rule that plants it here, and where it was told. (The comment on the BASE32B layout, cutlass #3089, is of tf32: it is held in
tests/layout/hardware.)
"""
