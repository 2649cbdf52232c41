// What Blackwell adds, one function for each PTX instruction: the fences and moves of tensor memory that are the same for one CTA and for a pair.
// The forms that differ stand in single.cuh and pair.cuh: a kernel uses one of them throughout (the assembler refuses a mix).
#pragma once
#include "../ptx.cuh"

// ---- order ------------------------------------------------------------------------------------------------------

// Where tensor memory changes hands: its instructions before this come before whatever the thread signals next. (Taking it and giving it back are synchronous and
// need no fence; nor do operands in shared memory, which barriers hand over.)
DEVICE void tmem_fence_before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }

// And on the other side: its instructions after this come after what the thread waited for.
DEVICE void tmem_fence_after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// Every thread of every CTA of the cluster has arrived, and what they wrote before is visible to those who leave.
DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// What a thread has stored to tensor memory is there.
DEVICE void tmem_store_wait() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

// An operand in tensor memory.
struct TensorMemory {
    uint32 address;
};

// ---- shared memory ----------------------------------------------------------------------------------------------

DEVICE uint32 load_shared(uint32 address) {
    uint32 value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

struct Bytes16 {
    uint32 words[4];
};

DEVICE Bytes16 load_shared_16(uint32 address) {
    Bytes16 value;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(value.words[0]), "=r"(value.words[1]), "=r"(value.words[2]), "=r"(value.words[3]) : "r"(address) : "memory");
    return value;
}

DEVICE void store_shared_16(uint32 address, Bytes16 value) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.words[0]), "r"(value.words[1]), "r"(value.words[2]), "r"(value.words[3]) : "memory");
}

DEVICE void store_global_16(void *address, Bytes16 value) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(value.words[0]), "r"(value.words[1]), "r"(value.words[2]), "r"(value.words[3]) : "memory");
}

DEVICE Bytes16 load_global_16(const void *address) {
    Bytes16 value;
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(value.words[0]), "=r"(value.words[1]), "=r"(value.words[2]), "=r"(value.words[3]) : "l"(address) : "memory");
    return value;
}

// ---- results ----------------------------------------------------------------------------------------------------
