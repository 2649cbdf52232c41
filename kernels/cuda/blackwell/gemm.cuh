// D[M,N] = A[M,K] B[N,K]^T on Blackwell, summed in tensor memory: float32 sums of floats, int32 ones of integers.
//
// One CTA has eight warps, each with one role. Warp 0 asks the copy engine for tiles of A and B, slot after slot around a ring of STAGES slots. Warp 1
// multiplies from shared memory into one of ACCUMULATORS accumulators in tensor memory. Warp 2 says which tile is next. Warp 3 takes tensor memory and
// gives it back. Warps 4 to 7 are the epilogue: each may read the quarter of tensor memory's lanes that its number modulo 4 names, and stores those rows.
//
// Where A goes to tensor memory through registers, warps 8 to 11 take it there.
//
// The constants in capitals and the functions a_step_advance, b_step_advance, accumulator_offset, warp_lanes, fragment_row, fragment_column and staging_offset
// come from the layouts of this configuration: they stand above, each under a comment that names its layout.
#pragma once

DEVICE void produce(const TensorMap *map_a, const TensorMap *map_b, Slots slots, ScaleFactors scales, Ring ring, Tiles tiles, uint32 k) {
    // Of a pair, each CTA loads its half of the tile's rows of A and of B.
    const uint32 half_a = cta_of_tile() * A_ROWS;
    const uint32 half_b = cta_of_tile() * B_ROWS;
    // Nothing is loaded before the kernel before has ended, and nothing is stored before something was loaded.
    dependency_wait();
    Position<STAGES> at;
    TileCoordinate tile;
    while (tiles.take(tile)) {
        for (uint32 k_first = 0; k_first < k; k_first += TILE_K) {
            ring.wait_empty(at);
            const uint32 full = ring.full_barrier(at.slot);
            // What lies outside the tensors is filled with zeros and counted too. The leader expects the bytes of both CTAs.
            if (cta_of_tile() == 0) mbarrier_arrive_expect_tx(full, CTAS * (A_COUNTED_BYTES + B_COUNTED_BYTES + ScaleFactors::SLOT_BYTES));
            load_a(map_a, slots.a + at.slot * A_SLOT_BYTES, leaders_barrier(full), tile.row * TILE_M + half_a, k_first, tile.batch);
            load_b(map_b, slots.b + at.slot * B_SLOT_BYTES, leaders_barrier(full), tile.column * TILE_N + half_b, k_first, tile.batch);
            scales.load(at.slot, leaders_barrier(full), tile, k_first);
            at.advance();
        }
    }
    ring.drain(at);
}

DEVICE void multiply(Slots slots, LeftOperand left, ScaleFactors scales, Ring ring, Accumulators accumulators, Tiles tiles, uint32 tmem, uint32 k) {
    // A matrix descriptor holds its address, 18 bits of it, in units of 16 bytes in its low bits, so advancing an operand is an addition.
    const uint64 descriptor_a = A_DESCRIPTOR + ((slots.a & 0x3ffff) >> 4);
    const uint64 descriptor_b = B_DESCRIPTOR + ((slots.b & 0x3ffff) >> 4);
    Position<STAGES> at;
    Position<ACCUMULATORS> into;
    TileCoordinate tile;
    while (tiles.take(tile)) {
        accumulators.wait_empty(into);
        tmem_fence_after_sync();
        const uint32 d = tmem + accumulator_offset(into.slot);
        for (uint32 k_first = 0; k_first < k; k_first += TILE_K) {
            ring.wait_full(at);
            scales.copy(at.slot, tmem);
            const uint64 a = descriptor_a + at.slot * (A_SLOT_BYTES >> 4);
            const uint64 b = descriptor_b + at.slot * (B_SLOT_BYTES >> 4);
            left.fill(at, a);
            #pragma unroll
            for (int step = 0; step < K_STEPS; ++step) {
                const bool accumulate = k_first > 0 || step > 0;    // the first starts the sum
                scales.multiply(d, left.of_step(a, at.slot, step), b + b_step_advance(step), tmem, tile, at.slot, step, accumulate);
            }
            commit_slot(ring.empty_barrier(at.slot));
            at.advance();
        }
        tmem_commit(accumulators.full_barrier(into.slot));
        into.advance();
    }
}

DEVICE void store(Epilogue epilogue, Finish finish, Accumulators accumulators, Tiles tiles, uint32 tmem) {
    const uint32 warp = (threadIdx.x / 32) % 4;
    Position<ACCUMULATORS> from;
    TileCoordinate tile;
    finish.begin();
    while (tiles.take(tile)) {
        accumulators.wait_full(from);
        tmem_fence_after_sync();
        const uint32 source = tmem + accumulator_offset(from.slot) + warp_lanes(warp);
        const uint32 row = tile.row * TILE_M + cta_of_tile() * D_ROWS;
        if (FORM == FORM_BATCH) {
            finish.move_to(tile.batch);
            epilogue.move_to(tile.batch);
        }
        #pragma unroll PIECES_UNROLLED
        for (int piece = 0; piece < PIECES; ++piece) {
            uint32 values[VALUES];
            tmem_load(values, source + piece * PIECE_COLUMNS);
            tmem_load_wait(values);
            if (piece == PIECES - 1) {
                // The accumulator is in registers: the next tile but one may overwrite it while this one is stored.
                tmem_fence_before_sync();
                __syncwarp();
                if (elect_one()) accumulators.release(from);
            }
            epilogue.put(finish, values, piece, row, tile.column * TILE_N);
        }
        from.advance();
    }
    epilogue.finish();
    finish.end();
}

// One CTA. The tensor maps are the kernel's parameters: the copy engine wants to find them there.
DEVICE void gemm(const TensorMap &tensor_map_a, const TensorMap &tensor_map_b, const ScaleMaps &scale_maps, Output output, uint32 k, const Terms &terms) {
    extern __shared__ uint8 dynamic_shared[];
    // The swizzle acts on address bits, so tiles start at multiples of 1024 bytes. The launch asks for 1023 bytes more than the map below.
    const uint32 shared = (shared_address(dynamic_shared) + 1023) & ~1023u;
    const Slots slots = {shared + A_OFFSET, shared + B_OFFSET};
    const ScaleFactors scales(scale_maps, shared);
    const Ring ring = {shared + FULL_BARRIERS_OFFSET, shared + EMPTY_BARRIERS_OFFSET};
    const Accumulators accumulators = {shared + ACCUMULATOR_FULL_OFFSET, shared + ACCUMULATOR_EMPTY_OFFSET};
    Tiles tiles(shared, output.m, output.n, batches(terms));
    const uint32 warp = warp_uniform(threadIdx.x / 32);

    if (threadIdx.x == 0) {
        tensor_map_prefetch(&tensor_map_a);
        tensor_map_prefetch(&tensor_map_b);
        scales.prefetch();
        ring.initialise();
        accumulators.initialise();
        Tiles::initialise(shared);
        LeftOperand::initialise(shared);
        mbarrier_init_fence();
    }
    sync_before_allocation();
    if (warp == 3) {
        tmem_allocate<TMEM_COLUMNS>(shared + TMEM_ADDRESS_OFFSET);
        tmem_relinquish();
    }
    sync_ctas();
    const uint32 tmem = load_shared(shared + TMEM_ADDRESS_OFFSET);
    const LeftOperand left(slots, shared, tmem);

    dependency_allow();

    if (warp < 4) LeftOperand::registers_of_few();
    if (warp == 0) {
        if (elect_one()) produce(&tensor_map_a, &tensor_map_b, slots, scales, ring, tiles, k);
    } else if (warp == 1) {
        if (cta_of_tile() == 0 && elect_one()) multiply(slots, left, scales, ring, accumulators, tiles, tmem, k);
    } else if (warp == 2) {
        if (elect_one()) tiles.schedule();
    } else if (LeftOperand::WARPS > 0 && warp >= 8) {
        left.convert(ring, tiles, k);
    } else if (warp >= 4) {
        LeftOperand::registers_of_epilogue();
        store(Epilogue(output, shared), Finish(terms, output.m, output.n), accumulators, tiles, tmem);
    }

    // Tensor memory is given back when nobody uses it any more, and a CTA's shared memory outlives what its peer still does to it.
    __syncwarp();
    sync_ctas();
    if (warp == 3) tmem_free<TMEM_COLUMNS>(tmem);
}
