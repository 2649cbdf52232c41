"""The CUDA sources of the probes. Every wrapper holds one PTX instruction; all sources are free of headers."""

from __future__ import annotations

from stridewright.layout.hardware.dtypes import bits, data_type
from stridewright.layout.hardware.fragments import MmaShape

PRELUDE = """
typedef unsigned int u32; typedef unsigned long long u64; typedef unsigned char u8;
__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ u32 aligned_base(const void *p) { return (shared_address(p) + 1023u) & ~1023u; }
__device__ __forceinline__ void store_word(u32 a, u32 v) { asm volatile("st.shared.b32 [%0], %1;" :: "r"(a), "r"(v) : "memory"); }
__device__ __forceinline__ u32 load_word(u32 a) { u32 v; asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(a) : "memory"); return v; }
"""

A_BYTES = 32 * 1024
B_BYTES = 64 * 1024
WGMMA_SHARED = A_BYTES + B_BYTES + 1024


def wgmma_name(d: str, a: str, n: int, source: str, ta: int = 0, tb: int = 0) -> str:
    """The kernel's name."""
    return f"wgmma_{d}_{a}_n{n}_{source}_{ta}{tb}"


def wgmma_registers(d: str, n: int) -> int:
    """32-bit accumulator registers a thread."""
    return n // 2 if bits(d) == 32 else n // 4


def wgmma_kernel(d: str, a: str, n: int, source: str = "ss", ta: int = 0, tb: int = 0) -> str:
    """Load two images into shared memory, run ``steps`` wgmma over given descriptors, store every register."""
    count = wgmma_registers(d, n)
    k = data_type(a).wgmma_k
    letter, kind = ("f", "float") if d == "f32" else ("r", "u32")
    outputs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(count))
    names = ", ".join(f"%{i}" for i in range(count))
    if source == "ss":
        left, inputs, p = f"%{count}", '"l"(da), "l"(db), "r"(s)', count + 2
        right = f"%{count + 1}"
    else:
        left = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
        right, p = f"%{count + 4}", count + 5
        inputs = '"r"(f0), "r"(f1), "r"(f2), "r"(f3), "l"(db), "r"(s)'
    tail = "p"
    if bits(a) == 16:
        tail += f", 1, 1, {ta}, {tb}" if source == "ss" else f", 1, 1, {tb}"
    elif d != "s32":
        tail += ", 1, 1"
    instruction = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{a}"
    fragment = ""
    if source == "rs":
        fragment = "u32 f0 = af[t * 4], f1 = af[t * 4 + 1], f2 = af[t * 4 + 2], f3 = af[t * 4 + 3];"
    return f"""
extern "C" __global__ void __launch_bounds__(128) {wgmma_name(d, a, n, source, ta, tb)}(
    const u32 *a_image, const u32 *b_image, const u64 *descriptors, const u32 *af, int steps, u32 *out) {{
  extern __shared__ u8 memory[];
  const u32 base = aligned_base(memory), t = threadIdx.x;
  for (u32 i = t; i < {A_BYTES // 4}; i += 128) store_word(base + 4 * i, a_image[i]);
  for (u32 i = t; i < {B_BYTES // 4}; i += 128) store_word(base + {A_BYTES} + 4 * i, b_image[i]);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  {kind} d[{count}];
  #pragma unroll
  for (int i = 0; i < {count}; ++i) d[i] = 0;
  {fragment}
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  for (int s = 0; s < steps; ++s) {{
    u64 da = descriptors[2 * s] + (base >> 4), db = descriptors[2 * s + 1] + ((base + {A_BYTES}) >> 4);
    asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{p}, 0; {instruction} {{{names}}}, {left}, {right}, {tail}; }}"
        : {outputs} : {inputs});
  }}
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  #pragma unroll
  for (int i = 0; i < {count}; ++i) out[t * {count} + i] = {"__float_as_uint(d[i])" if d == "f32" else "d[i]"};
}}
"""


def mma_name(shape: MmaShape, d: str) -> str:
    """The kernel's name."""
    return f"mma_{shape.name}_{d}_{shape.dtype}"


def mma_words(shape: MmaShape, d: str) -> tuple[int, int, int]:
    """32-bit words a lane of A, B and D."""
    width = bits(shape.dtype)
    return shape.m * shape.k * width // 1024, shape.n * shape.k * width // 1024, shape.m * shape.n * bits(d) // 1024


def mma_kernel(shape: MmaShape, d: str) -> str:
    """One warp: registers from memory, one mma.sync with C = 0, registers to memory."""
    words = mma_words(shape, d)
    wide_in, wide_out = shape.dtype == "f64", d == "f64"
    counts = [words[0] // 2 if wide_in else words[0], words[1] // 2 if wide_in else words[1]]
    results = words[2] // 2 if wide_out else words[2]
    kind_in, letter_in = ("double", "d") if wide_in else ("u32", "r")
    kind_out, letter_out = {"f64": ("double", "d"), "f32": ("float", "f")}.get(d, ("u32", "r"))
    na, nb = counts
    d_names = ", ".join(f"%{i}" for i in range(results))
    a_names = ", ".join(f"%{results + i}" for i in range(na))
    b_names = ", ".join(f"%{results + na + i}" for i in range(nb))
    outputs = ", ".join(f'"+{letter_out}"(d[{i}])' for i in range(results))
    inputs = ", ".join([f'"{letter_in}"(a[{i}])' for i in range(na)] + [f'"{letter_in}"(b[{i}])' for i in range(nb)])
    instruction = f"mma.sync.aligned.{shape.name}.row.col.{d}.{shape.dtype}.{shape.dtype}.{d}"
    return f"""
extern "C" __global__ void {mma_name(shape, d)}(const {kind_in} *pa, const {kind_in} *pb, {kind_out} *out) {{
  const u32 t = threadIdx.x;
  {kind_in} a[{na}], b[{nb}];
  {kind_out} d[{results}];
  for (int i = 0; i < {na}; ++i) a[i] = pa[t * {na} + i];
  for (int i = 0; i < {nb}; ++i) b[i] = pb[t * {nb} + i];
  for (int i = 0; i < {results}; ++i) d[i] = 0;
  asm volatile("{instruction} {{{d_names}}}, {{{a_names}}}, {{{b_names}}}, {{{d_names}}};" : {outputs} : {inputs});
  for (int i = 0; i < {results}; ++i) out[t * {results} + i] = d[i];
}}
"""


def matrix_kernel(op: str, matrices: int, trans: bool) -> str:
    """ldmatrix: shared memory counts up, registers out. stmatrix: registers in, shared memory out. One warp."""
    suffix = f".x{matrices}" + (".trans" if trans else "")
    name = f"{op}_x{matrices}{'_trans' if trans else ''}"
    if op == "ldmatrix":
        outs = ", ".join(f'"=r"(r[{i}])' for i in range(matrices))
        names = ", ".join(f"%{i}" for i in range(matrices))
        work = f"""
  for (u32 i = t; i < 128; i += 32) store_word(base + 4 * i, (2 * i) | (2 * i + 1) << 16);
  __syncwarp();
  asm volatile("ldmatrix.sync.aligned.m8n8{suffix}.shared.b16 {{{names}}}, [%{matrices}];" : {outs} : "r"(base + 16 * t) : "memory");
  for (int i = 0; i < {matrices}; ++i) out[t * {matrices} + i] = r[i];"""
    else:
        ins = ", ".join(f'"r"(r[{i}])' for i in range(matrices))
        names = ", ".join(f"%{i + 1}" for i in range(matrices))
        work = f"""
  for (u32 i = t; i < 128; i += 32) store_word(base + 4 * i, 0xffffffffu);
  __syncwarp();
  for (int i = 0; i < {matrices}; ++i) r[i] = (2 * (t * {matrices} + i)) | (2 * (t * {matrices} + i) + 1) << 16;
  asm volatile("stmatrix.sync.aligned.m8n8{suffix}.shared.b16 [%0], {{{names}}};" :: "r"(base + 16 * t), {ins} : "memory");
  __syncwarp();
  for (u32 i = t; i < 128; i += 32) out[i] = load_word(base + 4 * i);"""
    return f"""
extern "C" __global__ void {name}(u32 *out) {{
  __shared__ __align__(1024) u8 memory[1024];
  const u32 base = shared_address(memory), t = threadIdx.x;
  u32 r[{matrices}];{work}
}}
"""


TMA_SHARED = 200 * 1024  # the largest box of these probes, with what lies before and after it


def tma_kernel(rank: int, store: bool) -> str:
    """One copy of a box at given coordinates; a load is waited for on its mbarrier and all shared memory is written
    out."""
    coordinates = ", ".join(f'"r"(c{i})' for i in range(rank))
    parameters = ", ".join(f"int c{i}" for i in range(rank))
    if store:
        box = "{" + ", ".join(f"%{i + 2}" for i in range(rank)) + "}"
        work = f"""
  for (int i = t; i < words; i += 128) store_word(base + 4 * i, image[i]);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (t == 0) {{
    asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%0, {box}], [%1];"
        :: "l"(&map), "r"(base + offset), {coordinates} : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }}"""
    else:
        box = "{" + ", ".join(f"%{i + 3}" for i in range(rank)) + "}"
        work = f"""
  for (int i = t; i < words; i += 128) store_word(base + 4 * i, 0xa5a5a5a5u);
  if (t == 0) {{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(barrier) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }}
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (t == 0) {{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {box}], [%2];"
        :: "r"(base + offset), "l"(&map), "r"(barrier), {coordinates} : "memory");
  }}
  u32 done = 0;
  for (int tries = 0; tries < 500 && !done; ++tries) {{
    asm volatile("{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }}"
        : "=r"(done) : "r"(barrier) : "memory");
    if (!done) __nanosleep(1000);
  }}
  __syncthreads();
  if (t == 0) status[0] = done;
  for (int i = t; i < words; i += 128) image[i] = load_word(base + 4 * i);"""
    return f"""
struct __align__(64) Map{rank}{int(store)} {{ u8 opaque[128]; }};
extern "C" __global__ void __launch_bounds__(128) tma_{"store" if store else "load"}_{rank}d(
    const __grid_constant__ Map{rank}{int(store)} map, u32 *image, u32 *status, int words, int offset, int bytes, {parameters}) {{
  extern __shared__ u8 memory[];
  __shared__ __align__(8) u64 barrier_word;
  const u32 base = aligned_base(memory), t = threadIdx.x, barrier = shared_address(&barrier_word);{work}
}}
"""


UNROLL = 64


def bank_kernel(op: str, size: int) -> str:
    """One warp runs the access UNROLL times at base + offsets[lane]; the name is op and size (matrices for the last
    two)."""
    if op in ("ld", "st"):
        shape = {4: ("b32", 1), 8: ("v2.b32", 2), 16: ("v4.b32", 4)}[size]
        registers = shape[1]
    else:
        registers = size
    names = ["r0", "r1", "r2", "r3"][:registers]
    if op == "ld":
        outs = ", ".join(f'"=r"({r})' for r in names)
        target = "%0" if registers == 1 else "{" + ", ".join(f"%{i}" for i in range(registers)) + "}"
        body = f'asm volatile("ld.volatile.shared.{shape[0]} {target}, [%{registers}];" : {outs} : "r"(a) : "memory");'
    elif op == "st":
        ins = ", ".join(f'"r"({r})' for r in names)
        source = "%1" if registers == 1 else "{" + ", ".join(f"%{i + 1}" for i in range(registers)) + "}"
        body = f'asm volatile("st.volatile.shared.{shape[0]} [%0], {source};" :: "r"(a), {ins} : "memory");'
    elif op == "ldmatrix":
        outs = ", ".join(f'"=r"({r})' for r in names)
        target = "{" + ", ".join(f"%{i}" for i in range(registers)) + "}"
        # The assembler merges ldmatrix of one address: each takes a zero from the result before, which it cannot know.
        address = '"r"(a + (r0 & (gridDim.y - 1)))'
        body = f'asm volatile("ldmatrix.sync.aligned.m8n8.x{size}.shared.b16 {target}, [%{registers}];" : {outs} : {address} : "memory");'
    else:
        ins = ", ".join(f'"r"({r})' for r in names)
        source = "{" + ", ".join(f"%{i + 1}" for i in range(registers)) + "}"
        body = f'asm volatile("stmatrix.sync.aligned.m8n8.x{size}.shared.b16 [%0], {source};" :: "r"(a), {ins} : "memory");'
    return f"""
extern "C" __global__ void bank_{op}_{size}(const int *offsets, u32 *out) {{
  extern __shared__ u8 memory[];
  const u32 t = threadIdx.x, a = aligned_base(memory) + (offsets[t] < 0 ? 0 : offsets[t]);
  u32 r0 = t, r1 = t, r2 = t, r3 = t;
  if (offsets[t] >= 0) {{
    #pragma unroll
    for (int i = 0; i < {UNROLL}; ++i) {{ {body} }}
  }}
  out[t] = r0 + r1 + r2 + r3;
}}
"""
