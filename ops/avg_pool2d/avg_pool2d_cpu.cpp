#include <burin/ops/avg_pool2d/avg_pool2d_impl.h>
#include <burin/ops/common/pool2d_cpu.h>
#include <burin/runtime/divide_up.h>

#include <algorithm>

namespace burin::avg_pool2d_impl {
namespace {

constexpr std::int64_t kLanes = 8;      // pixel i of a plane is added to sum i % kLanes, in both layouts
constexpr std::int64_t kChannels = 64;  // a block of channels whose sums stay in the first-level cache

float sum_of_lanes(const float* lanes, std::int64_t step) {
  return ((lanes[0] + lanes[4 * step]) + (lanes[2 * step] + lanes[6 * step])) +
         ((lanes[step] + lanes[5 * step]) + (lanes[3 * step] + lanes[7 * step]));
}

float plane_sum(const float* x, std::int64_t pixels) {
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= pixels; i += kLanes)
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] += x[i + j];
  for (std::int64_t j = 0; i + j < pixels; ++j) lanes[j] += x[i + j];
  return sum_of_lanes(lanes, 1);
}

/// Sums of up to kChannels channels whose pixels are `pitch` elements apart.
void channel_means(const float* x, std::int64_t pixels, std::int64_t pitch, std::int64_t channels, float* y) {
  float lanes[kLanes][kChannels] = {};
  for (std::int64_t i = 0; i < pixels; ++i) {
    float* __restrict sums = lanes[i % kLanes];
    const float* __restrict pixel = x + i * pitch;
    for (std::int64_t c = 0; c < channels; ++c) sums[c] += pixel[c];
  }
  for (std::int64_t c = 0; c < channels; ++c)
    y[c] = sum_of_lanes(lanes[0] + c, kChannels) / static_cast<float>(pixels);
}

}  // namespace

void cpu(Context& ctx, const Problem& problem, const Tensor& x, Tensor& y) {
  const Pool2d<std::int64_t>& p = problem.pool;
  Tensor columns = empty(ctx, {p.w.out});
  float* counts = columns.data<float>();
  for (std::int64_t o = 0; o < p.w.out; ++o) counts[o] = window_count(p.w, o, problem.count_include_pad);
  const auto divide = [&](float* __restrict sums, std::int64_t count, std::int64_t step, std::int64_t oh,
                          std::int64_t ow) {
    const float rows = window_count(p.h, oh, problem.count_include_pad);
    if (step == 1) {
      for (std::int64_t i = 0; i < count; ++i) sums[i] /= rows * counts[ow + i];
    } else {
      const float divisor = rows * counts[ow];
      for (std::int64_t i = 0; i < count; ++i) sums[i] /= divisor;
    }
  };
  pool2d_cpu::pool2d(
      ctx.threads(), p, problem.layout, x.data<float>(), y.data<float>(), 0.0f,
      [](float sum, float value) { return sum + value; }, divide);
}

void cpu_global(Context& ctx, Layout layout, const Tensor& x, Tensor& y) {
  const std::int64_t batch = x.shape()[0];
  const std::int64_t channels = x.shape()[1];
  const std::int64_t pixels = x.shape()[2] * x.shape()[3];
  const float* in = x.data<float>();
  float* out = y.data<float>();
  if (layout == Layout::contiguous) {
    ctx.threads().for_ranges(batch * channels, std::max<std::int64_t>(1, (1 << 15) / pixels),
                             [&](std::int64_t begin, std::int64_t end) {
                               for (std::int64_t i = begin; i < end; ++i)
                                 out[i] = plane_sum(in + i * pixels, pixels) / static_cast<float>(pixels);
                             });
  } else {
    const std::int64_t blocks = divide_up(channels, kChannels);
    ctx.threads().for_ranges(batch * blocks, std::max<std::int64_t>(1, (1 << 15) / (pixels * kChannels)),
                             [&](std::int64_t begin, std::int64_t end) {
                               for (std::int64_t i = begin; i < end; ++i) {
                                 const std::int64_t n = i / blocks;
                                 const std::int64_t c = i % blocks * kChannels;
                                 channel_means(in + n * pixels * channels + c, pixels, channels,
                                               std::min(kChannels, channels - c), out + n * channels + c);
                               }
                             });
  }
}

}  // namespace burin::avg_pool2d_impl
