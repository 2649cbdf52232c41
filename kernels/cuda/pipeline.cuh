// The ring of shared-memory slots between the producer and the consumers, and where each of them stands in it.
#pragma once
#include "cluster.cuh"

// A position in the ring. It is carried from tile to tile and never reset: the parity must follow the barrier's own count of
// completed phases, which does not know where a tile ends.
struct RingPosition {
    uint32 slot = 0;
    uint32 parity = 0;

    DEVICE void advance() {
        slot += 1;
        if (slot == STAGES) {
            slot = 0;
            parity ^= 1;
        }
    }

    // As if advanced `count` times.
    DEVICE void skip(uint32 count) {
        const uint32 reached = slot + count;
        slot = reached % STAGES;
        parity ^= (reached / STAGES) & 1;
    }
};

// A slot is released only when the next one has been handed to the tensor core: with one slot that would never come.
static_assert(STAGES >= 2, "the ring needs two slots");

// full[slot]: the copy engine has filled the slot. empty[slot]: every warp that reads what this CTA's loads write there has finished
// reading.
struct Ring {
    uint32 full;     // shared address of the first of STAGES barriers, 8 bytes each
    uint32 empty;
    ClusterPlace place;

    DEVICE Ring(uint32 shared) : full(shared + FULL_BARRIERS_OFFSET), empty(shared + EMPTY_BARRIERS_OFFSET) {}

    DEVICE uint32 full_barrier(uint32 slot) const { return full + slot * 8; }
    DEVICE uint32 empty_barrier(uint32 slot) const { return empty + slot * 8; }

    DEVICE void initialise() const {
        for (uint32 slot = 0; slot < STAGES; ++slot) {
            mbarrier_init(full_barrier(slot), 1);    // the producer's one arrive.expect_tx
            mbarrier_init(empty_barrier(slot), SLOT_READERS * 4 * CLUSTER_PEERS);    // from each warp that reads the slot
        }
        mbarrier_init_fence();
    }

    DEVICE void wait_full(RingPosition at) const { mbarrier_wait(full_barrier(at.slot), at.parity); }

    // A fresh barrier counts its phase "before the first" as complete with parity 1, so the first turn does not wait.
    DEVICE void wait_empty(RingPosition at) const { mbarrier_wait(empty_barrier(at.slot), at.parity ^ 1); }

    // Returns once every slot is free. The peers' last releases are on their way to this CTA's barriers until then, and its shared memory
    // must outlive them.
    DEVICE void drain(RingPosition at) const {
        for (uint32 slot = 0; slot < STAGES; ++slot) {
            wait_empty(at);
            at.advance();
        }
    }

    // This warp has finished reading the slot.
    DEVICE void release(uint32 slot) const {
        if (CLUSTER_SIZE == 1) {
            if (elect_one()) mbarrier_arrive(empty_barrier(slot));
        } else if (threadIdx.x % 32 < CLUSTER_PEERS) {
            // The CTAs that load a part of it must know, each by its own barrier.
            mbarrier_arrive_remote(empty_barrier(slot), place.peer(threadIdx.x % 32));
        }
    }
};
