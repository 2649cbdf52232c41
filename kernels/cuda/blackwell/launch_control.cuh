// Cluster launch control, one function for each PTX instruction: a running cluster cancels one that waits to be launched, and does its work.
#pragma once
#include "tcgen05.cuh"

// Asks for a cluster to cancel. The answer, 16 bytes, comes to `answer` and is counted at `barrier`, in every CTA of this cluster at the same offset.
DEVICE void launch_control_ask(uint32 answer, uint32 barrier) {
    if (CLUSTER_CTAS == 1) {
        asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(answer), "r"(barrier) : "memory");
    } else {
        asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%0], [%1];" ::"r"(answer), "r"(barrier) : "memory");
    }
}

struct Answer {
    uint64 low;
    uint64 high;
};

DEVICE Answer load_answer(uint32 address) {
    Answer answer;
    asm volatile("ld.shared.v2.b64 {%0, %1}, [%2];" : "=l"(answer.low), "=l"(answer.high) : "r"(address) : "memory");
    return answer;
}

// Whether a cluster was cancelled: false when all have been launched.
DEVICE bool launch_control_granted(Answer answer) {
    uint32 granted;
    asm volatile(
        "{\n"
        "  .reg .b128 answer;\n"
        "  .reg .pred granted;\n"
        "  mov.b128 answer, {%1, %2};\n"
        "  clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 granted, answer;\n"
        "  selp.b32 %0, 1, 0, granted;\n"
        "}\n"
        : "=r"(granted)
        : "l"(answer.low), "l"(answer.high));
    return granted != 0;
}

// blockIdx.x of the cancelled cluster's first CTA. Only of an answer that grants one.
DEVICE uint32 launch_control_block(Answer answer) {
    uint32 block;
    asm volatile(
        "{\n"
        "  .reg .b128 answer;\n"
        "  mov.b128 answer, {%1, %2};\n"
        "  clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, answer;\n"
        "}\n"
        : "=r"(block)
        : "l"(answer.low), "l"(answer.high));
    return block;
}
