// What JITs compile: CUB out of the toolkit, torch's own headers, and an instruction that only the wanted chip has,
// so that a wrong or a general architecture is refused and not merely noticed.
#include <cub/block/block_reduce.cuh>
#include <cuda_bf16.h>
#ifdef TORCH_EXTENSION_NAME
#include <c10/util/BFloat16.h>
#endif

extern "C" __global__ void total(const __nv_bfloat16* in, float* out) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ typename Reduce::TempStorage temp;
  const float sum = Reduce(temp).Sum(__bfloat162float(in[threadIdx.x]));
  if (threadIdx.x == 0) out[0] = sum;
}

extern "C" __global__ void own(const unsigned* in, float* out) {
#ifdef __CUDA_ARCH__
  const unsigned x = in[0];
  float a = 0, b = 0, c = 0, d = 0;
#if __CUDA_ARCH__ >= 1200 // sm_120a, sm_121a: block-scaled FP4
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m1.e2m1.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3}, {%4}, {0, 0}, {%4}, {0, 0};"
      : "+f"(a), "+f"(b), "+f"(c), "+f"(d) : "r"(x));
#elif __CUDA_ARCH__ >= 1000 // sm_110a: tensor memory
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(x));
#else // from sm_80 on
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};"
      : "+f"(a), "+f"(b), "+f"(c), "+f"(d) : "r"(x));
#endif
  out[0] = a + b + c + d;
#endif
}
