#include <burin/runtime/convert.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/cuda/launch.cuh>
#include <burin/runtime/dispatch.h>
#include <burin/runtime/philox.h>

namespace burin::cuda {
namespace {

template <class T, class Distribution>
__global__ void random_kernel(T* dst, std::int64_t count, philox::Blocks blocks, Distribution distribution) {
  for_each_index(blocks.count, [&](std::int64_t block) {
    const philox::Floats floats = distribution(blocks.words(block));
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      const std::int64_t i = 4 * block + lane - blocks.skipped;
      if (i >= 0 && i < count) dst[i] = convert<T>(floats.value[lane]);
    }
  });
}

template <class Distribution>
void generate(const char* op, StreamView stream, DType dtype, void* dst, std::int64_t count, Philox random,
              const Distribution& distribution) {
  const philox::Blocks blocks = philox::Blocks::cover(random.seed, random.offset, count);
  with_float_dtype(dtype, op, [&]<class T>() {
    launch(op, random_kernel<T, Distribution>, grid_stride_shape(blocks.count), stream, static_cast<T*>(dst),
           count, blocks, distribution);
  });
}

}  // namespace

void uniform(StreamView stream, DType dtype, void* dst, std::int64_t count, Philox random, float low,
             float high) {
  generate("uniform", stream, dtype, dst, count, random, philox::Uniform{low, high - low});
}

void normal(StreamView stream, DType dtype, void* dst, std::int64_t count, Philox random, float mean,
            float stddev) {
  generate("normal", stream, dtype, dst, count, random, philox::Normal{mean, stddev});
}

}  // namespace burin::cuda
