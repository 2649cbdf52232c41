"""Launching on a real GPU: what reaches the kernel is what was given, byte for byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stridewright.codegen import driver, launch
from stridewright.codegen.build import build
from stridewright.codegen.launch import DevicePointer, LaunchError, LoadedKernel
from stridewright.layout.hardware import TensorMap

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def cupy() -> Any:
    return launch.import_cupy()


def loaded(source: str, name: str, **given: Any) -> LoadedKernel:
    return LoadedKernel(build(source, launch.device_arch()).cubin, name, **given)


def test_arguments_arrive_byte_for_byte(cupy: Any) -> None:
    source = """
    struct alignas(128) Map { unsigned char bytes[128]; };
    extern "C" __global__ void take(const __grid_constant__ Map map, unsigned char *out, float f, unsigned long long u,
                                    unsigned short h, unsigned char b, double d) {
        unsigned char *to = out;
        auto put = [&](const void *from, int size) {
            for (int i = 0; i < size; i++) *to++ = static_cast<const unsigned char *>(from)[i];
        };
        put(map.bytes, 128); put(&f, 4); put(&u, 8); put(&h, 2); put(&b, 1); put(&d, 8);
    }
    """
    given = np.random.default_rng(0).integers(0, 256, 128, dtype=np.uint8)
    scalars = (np.float32(1.5), np.uint64(2**63 + 1), np.uint16(65535), np.uint8(200), np.float64(-0.1))
    out = cupy.zeros(151, dtype=cupy.uint8)
    pointer = DevicePointer(out.data.ptr)
    kernel = LoadedKernel(build(source, launch.device_arch(), strict=False).cubin, "take")
    kernel(1, 1, (given.view(np.dtype((np.void, 128))), pointer, *scalars))
    assert cupy.asnumpy(out).tobytes() == given.tobytes() + b"".join(scalar.tobytes() for scalar in scalars)


@pytest.mark.parametrize("dynamic", [48, 49152 - 8, 49152, 200_704, 232_448 - 1024])
def test_dynamic_shared_memory_of_every_size_is_usable_beside_static(cupy: Any, dynamic: int) -> None:
    source = """
    extern "C" __global__ void fill(unsigned *out, unsigned words) {
        extern __shared__ unsigned dynamic[];
        __shared__ unsigned fixed[2];
        if (threadIdx.x < 2) fixed[threadIdx.x] = threadIdx.x + 5;
        for (unsigned i = threadIdx.x; i < words; i += blockDim.x) dynamic[i] = i;
        __syncthreads();
        unsigned sum = 0;
        for (unsigned i = threadIdx.x; i < words; i += blockDim.x) sum += dynamic[i] == i;
        atomicAdd(out, sum);
        if (threadIdx.x == 0) atomicAdd(out + 1, fixed[0] + fixed[1]);
    }
    """
    out = cupy.zeros(2, dtype=cupy.uint32)
    loaded(source, "fill", shared_bytes=dynamic)(1, 128, (DevicePointer(out.data.ptr), np.uint32(dynamic // 4)))
    assert out.tolist() == [dynamic // 4, 11]


def test_more_shared_memory_than_there_is_is_refused(cupy: Any) -> None:
    with pytest.raises(LaunchError, match="allows 232448 bytes"):
        loaded('extern "C" __global__ void k() {}', "k", shared_bytes=232_449)(1, 32, ())


@pytest.mark.parametrize("blocks", [2, 8, 16])
def test_clusters_up_to_sixteen_blocks_launch(cupy: Any, blocks: int) -> None:
    source = f"""
    extern "C" __global__ void __cluster_dims__({blocks}, 1, 1) k(unsigned *out) {{
        unsigned rank, size;
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
        if (threadIdx.x == 0) out[blockIdx.x] = rank * 100 + size;
    }}
    """
    out = cupy.zeros(2 * blocks, dtype=cupy.uint32)
    loaded(source, "k", cluster=(blocks, 1, 1))(2 * blocks, 32, (DevicePointer(out.data.ptr),))
    assert out.tolist() == [rank * 100 + blocks for rank in range(blocks)] * 2


def test_launch_goes_to_the_stream_it_is_given(cupy: Any) -> None:
    kernel = loaded('extern "C" __global__ void k(unsigned *out) { atomicAdd(out, 1u); }', "k")
    out = cupy.zeros(1, dtype=cupy.uint32)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    for given in (stream, stream.ptr, None):
        kernel(1, 1, (DevicePointer(out.data.ptr),), stream=given)
    stream.synchronize()
    cupy.cuda.Device().synchronize()
    assert int(out[0]) == 3


def test_cubin_of_another_architecture_is_a_clear_error(cupy: Any) -> None:
    other = "sm_100a" if launch.device_arch() == "sm_90a" else "sm_90a"
    made = build('extern "C" __global__ void k() {}', other)
    with pytest.raises(LaunchError, match=f"could not be loaded.*{launch.device_arch()}"):
        LoadedKernel(made.cubin, "k")(1, 32, ())


def test_driver_takes_a_map_and_names_what_it_refuses(cupy: Any) -> None:
    memory = cupy.zeros((256, 64), dtype=cupy.uint16)
    encoded = driver.encode_tensor_map(TensorMap("bf16", (64, 256), (128,), (64, 128), "128B"), memory.data.ptr)
    assert encoded.nbytes == 128
    assert np.any(encoded.view(np.uint8))


def test_torch_bf16_goes_in_and_comes_out_without_a_copy(cupy: Any) -> None:
    torch = pytest.importorskip("torch")
    from stridewright.codegen.launch_arrays import adopt, give_back

    tensor = torch.arange(64, device="cuda", dtype=torch.bfloat16).reshape(8, 8).requires_grad_()
    taken = adopt(tensor, "a")
    assert (taken.address, taken.dtype, taken.strides) == (tensor.data_ptr(), "bf16", (8, 1))
    assert adopt(tensor.T, "a").majors == ("mn",)
    back = give_back(taken.array, taken.family)
    assert isinstance(back, torch.Tensor)
    assert back.data_ptr() == tensor.data_ptr()
    assert adopt(tensor.detach().to(torch.float8_e4m3fn), "a").dtype == "e4m3"
