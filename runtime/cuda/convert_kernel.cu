#include <burin/runtime/convert.h>
#include <burin/runtime/cuda/launch.cuh>
#include <burin/runtime/cuda/strided_device.cuh>
#include <burin/runtime/dispatch.h>

#include <algorithm>
#include <type_traits>

namespace burin::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 4;  // loads under way at once

template <class To, class From>
__global__ void convert_kernel(To* dst, const From* src, const __grid_constant__ StridedLoop<2> loop) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * kPerThread;
  wait_for_previous();
  for (std::int64_t first = std::int64_t{blockIdx.x} * kThreads * kPerThread + threadIdx.x;
       first < loop.count; first += step) {
    From values[kPerThread];
    std::int64_t to[kPerThread];
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      if (first + j * kThreads >= loop.count) break;
      const Offsets<2> at = offsets_of(loop, first + j * kThreads);
      to[j] = at.of[0];
      values[j] = src[at.of[1]];
    }
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      if (first + j * kThreads >= loop.count) break;
      dst[to[j]] = convert<To>(values[j]);
    }
  }
}

}  // namespace

void convert_strided(StreamView stream, DType dst_dtype, void* dst, DType src_dtype, const void* src,
                     const StridedLoop<2>& loop) {
  constexpr std::int64_t kMostBlocks = 1 << 14;
  const std::int64_t blocks = std::min((loop.count - 1) / (kThreads * kPerThread) + 1, kMostBlocks);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads), .starts_early = true};
  with_any_dtype(dst_dtype, "copy", [&]<class To>() {
    with_any_dtype(src_dtype, "copy", [&]<class From>() {
      if constexpr (!std::is_same_v<To, From>)
        launch("copy", convert_kernel<To, From>, shape, stream, static_cast<To*>(dst),
               static_cast<const From*>(src), loop);
    });
  });
}

}  // namespace burin::cuda
