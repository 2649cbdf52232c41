// Block scaling: every 16 or 32 elements of a row share a factor along K, and the tensor core multiplies by it. Factors lie in atoms of 128 rows x 4 factors, 512
// bytes, in global memory, in shared memory and (a column for every 32 rows) in tensor memory. The copy engine brings the atoms of a tile into a slot beside its
// elements; the thread that multiplies copies them to tensor memory in front of the multiplies that read them.
//
// Each slot has columns of its own: they are overwritten when the slot has been filled again, hence after the multiplies that read them are complete.
#pragma once

struct ScaleMaps {
    const TensorMap *a;    // (half an atom's bytes, atoms along K, atoms along M)
    const TensorMap *b;
};

struct ScaleFactors {
    static constexpr uint32 SLOT_BYTES = SCALE_A_SLOT_BYTES + SCALE_B_SLOT_BYTES;

    ScaleMaps maps;
    uint32 a;    // shared address of slot 0's factors of A
    uint32 b;

    DEVICE ScaleFactors(const ScaleMaps &maps, uint32 shared) : maps(maps), a(shared + SCALE_A_OFFSET), b(shared + SCALE_B_OFFSET) {}

    DEVICE void prefetch() const {
        tensor_map_prefetch(maps.a);
        tensor_map_prefetch(maps.b);
    }

    // Of a pair, each CTA needs the factors of its own rows of A, and those of all rows of B. What lies outside the tensor becomes code 0.
    DEVICE void load(uint32 slot, uint32 barrier, TileCoordinate tile, uint32 k_first) const {
        const uint32 along = k_first / SCALE_ATOM_K;
        tma_load_atoms(a + slot * SCALE_A_SLOT_BYTES, maps.a, barrier, along, (tile.row * TILE_M + cta_of_tile() * A_ROWS) / SCALE_ATOM_ROWS);
        tma_load_atoms(b + slot * SCALE_B_SLOT_BYTES, maps.b, barrier, along, tile.column * TILE_N / SCALE_ATOM_ROWS);
    }

    // To the columns of the slot. The multiplies that this thread issues next come after it without a wait (PTX ISA 9.1, section 9.7.16.6: cp and mma are pipelined).
    DEVICE void copy(uint32 slot, uint32 tmem) const {
        // The multiplies that last read these columns were issued by this thread, but their end came by way of the copy engine's thread.
        tmem_fence_after_sync();
        const uint64 from_a = SCALE_DESCRIPTOR + (((a + slot * SCALE_A_SLOT_BYTES) & 0x3ffff) >> 4);
        const uint64 from_b = SCALE_DESCRIPTOR + (((b + slot * SCALE_B_SLOT_BYTES) & 0x3ffff) >> 4);
        #pragma unroll
        for (int atom = 0; atom < SCALE_A_ATOMS; ++atom) tmem_copy_atom(tmem + SCALE_A_COLUMN + scale_columns(slot) + scale_a_to(atom), from_a + scale_a_from(atom));
        #pragma unroll
        for (int atom = 0; atom < SCALE_B_ATOMS; ++atom) tmem_copy_atom(tmem + SCALE_B_COLUMN + scale_columns(slot) + scale_b_to(atom), from_b + scale_b_from(atom));
    }

    // One step of K. Which of a column's four factors it takes is said in the instruction descriptor; a tile whose rows of B begin inside an atom skips columns.
    DEVICE void multiply(uint32 d, uint64 a, uint64 b, uint32 tmem, TileCoordinate tile, uint32 slot, int step, bool accumulate) const {
        const uint32 within = TILE_N % SCALE_ATOM_ROWS == 0 ? 0 : tile.column * TILE_N % SCALE_ATOM_ROWS / 32;
        const uint32 scale_a = tmem + SCALE_A_COLUMN + scale_columns(slot) + scale_a_step(step);
        const uint32 scale_b = tmem + SCALE_B_COLUMN + scale_columns(slot) + scale_b_step(step) + within;
        tmem_multiply_scaled(d, a, b, INSTRUCTION_DESCRIPTOR + scale_ids(step), scale_a, scale_b, accumulate);
    }
};
