#include <burin/runtime/convert.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/cuda/launch.cuh>
#include <burin/runtime/dispatch.h>
#include <burin/runtime/philox.h>

namespace burin::cuda {
namespace {

/// A draw that begins where the caller says.
struct FromHost {
  Philox begin;
  __device__ philox::Blocks blocks(std::int64_t count) const {
    return philox::Blocks::cover(begin.seed, begin.offset, count);
  }
};
/// A draw that begins `drawn` elements after the place that is there when the kernel runs.
struct FromDevice {
  const Philox* state;
  std::uint64_t drawn;
  __device__ philox::Blocks blocks(std::int64_t count) const {
    return philox::Blocks::cover(state->seed, state->offset + drawn, count);
  }
};

template <class T, class Source, class Distribution>
__global__ void random_kernel(T* dst, std::int64_t count, Source source, Distribution distribution) {
  wait_for_previous();  // the source may be written by the kernel before
  const philox::Blocks blocks = source.blocks(count);
  for_each_index(blocks.count, [&](std::int64_t block) {
    const philox::Floats floats = distribution(blocks.words(block));
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      const std::int64_t i = 4 * block + lane - blocks.skipped;
      if (i >= 0 && i < count) dst[i] = convert<T>(floats.value[lane]);
    }
  });
}

__global__ void set_state_kernel(Philox* state, Philox value) { *state = value; }
__global__ void advance_state_kernel(Philox* state, std::uint64_t count) { state->offset += count; }

template <class Source, class Distribution>
void generate(const char* op, StreamView stream, DType dtype, void* dst, std::int64_t count,
              const Source& source, const Distribution& distribution) {
  if (count == 0) return;
  const std::int64_t most_blocks = (count - 1) / 4 + 2;  // however the draw lies in blocks of four
  with_float_dtype(dtype, op, [&]<class T>() {
    launch(op, random_kernel<T, Source, Distribution>, grid_stride_shape(most_blocks), stream,
           static_cast<T*>(dst), count, source, distribution);
  });
}

constexpr LaunchShape one_thread() { return {.grid = dim3(1), .block = dim3(1)}; }

}  // namespace

void uniform(StreamView stream, DType dtype, void* dst, std::int64_t count, Philox random, float low,
             float high) {
  generate("uniform", stream, dtype, dst, count, FromHost{random}, philox::Uniform{low, high - low});
}

void uniform(StreamView stream, DType dtype, void* dst, std::int64_t count, const Philox* state,
             std::uint64_t drawn, float low, float high) {
  generate("uniform", stream, dtype, dst, count, FromDevice{state, drawn}, philox::Uniform{low, high - low});
}

void normal(StreamView stream, DType dtype, void* dst, std::int64_t count, Philox random, float mean,
            float stddev) {
  generate("normal", stream, dtype, dst, count, FromHost{random}, philox::Normal{mean, stddev});
}

void normal(StreamView stream, DType dtype, void* dst, std::int64_t count, const Philox* state,
            std::uint64_t drawn, float mean, float stddev) {
  generate("normal", stream, dtype, dst, count, FromDevice{state, drawn}, philox::Normal{mean, stddev});
}

void set_random_state(StreamView stream, void* slot, Philox value) {
  launch("set_random_state", set_state_kernel, one_thread(), stream, static_cast<Philox*>(slot), value);
}

void advance_random_state(StreamView stream, void* slot, std::uint64_t count) {
  launch("advance_random_state", advance_state_kernel, one_thread(), stream, static_cast<Philox*>(slot),
         count);
}

}  // namespace burin::cuda
