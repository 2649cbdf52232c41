// Two rings and where a role stands in them: slots of shared memory between the copy engine and the multiply, accumulators between the multiply and the epilogue.
#pragma once

// It is carried from tile to tile and never reset: the parity must follow the barrier's own count of completed phases.
template <int Count> struct Position {
    uint32 slot = 0;
    uint32 parity = 0;

    DEVICE void advance() {
        slot += 1;
        if (slot == Count) {
            slot = 0;
            parity ^= 1;
        }
    }
};

struct Slots {
    uint32 a;    // shared address of slot 0 of A
    uint32 b;
};

// full[slot]: the copy engine has filled the slot, in both CTAs of a pair; only the leader's counts.
// empty[slot]: the multiplies that read what this CTA loads are complete; each CTA has its own, and the commits arrive at all whose loads they have read.
// (Warps that take A through registers arrive there, too.)
struct Ring {
    uint32 full;
    uint32 empty;

    DEVICE uint32 full_barrier(uint32 slot) const { return full + slot * 8; }
    DEVICE uint32 empty_barrier(uint32 slot) const { return empty + slot * 8; }

    DEVICE void initialise() const {
        for (uint32 slot = 0; slot < STAGES; ++slot) {
            mbarrier_init(full_barrier(slot), 1);     // the leader's one arrive.expect_tx
            mbarrier_init(empty_barrier(slot), SLOT_COMMITS);
        }
    }

    DEVICE void wait_full(Position<STAGES> at) const { mbarrier_wait(full_barrier(at.slot), at.parity); }

    // A fresh barrier counts its phase "before the first" as complete with parity 1, so the first turn does not wait.
    DEVICE void wait_empty(Position<STAGES> at) const { mbarrier_wait(empty_barrier(at.slot), at.parity ^ 1); }

    // Until every slot that was filled is free again: no commit arrives in this shared memory any more.
    DEVICE void drain(Position<STAGES> at) const {
        for (int slot = 0; slot < STAGES; ++slot) {
            wait_empty(at);
            at.advance();
        }
    }
};

// full[i]: accumulator i holds a tile; each CTA has its own, and the commit arrives at both.
// empty[i]: every epilogue warp, of both CTAs of a pair, has it in registers; only the leader's counts.
struct Accumulators {
    uint32 full;
    uint32 empty;

    DEVICE uint32 full_barrier(uint32 slot) const { return full + slot * 8; }
    DEVICE uint32 empty_barrier(uint32 slot) const { return empty + slot * 8; }

    DEVICE void initialise() const {
        for (uint32 slot = 0; slot < ACCUMULATORS; ++slot) {
            mbarrier_init(full_barrier(slot), 1);
            mbarrier_init(empty_barrier(slot), CTAS * EPILOGUE_WARPS);
        }
    }

    DEVICE void wait_full(Position<ACCUMULATORS> at) const { mbarrier_wait(full_barrier(at.slot), at.parity); }
    DEVICE void wait_empty(Position<ACCUMULATORS> at) const { mbarrier_wait(empty_barrier(at.slot), at.parity ^ 1); }
    DEVICE void release(Position<ACCUMULATORS> at) const { arrive_at_leader(empty_barrier(at.slot)); }
};
