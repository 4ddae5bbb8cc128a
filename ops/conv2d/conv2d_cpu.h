#pragma once
// Private: what the ways of the CPU convolution share.

#include <burin/ops/common/activation_apply.h>
#include <burin/ops/conv2d/conv2d_cpu_tile.h>
#include <burin/ops/conv2d/conv2d_impl.h>
#include <burin/runtime/divide_up.h>

#include <algorithm>
#include <limits>

namespace burin::conv2d_impl {

inline constexpr std::int64_t kTileFloats = 64 * 1024;  // of x that a task works on: half of a usual L2
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr std::int64_t kDirectRows = 3;  // output channels of a group, up to which nothing is packed

/// The sizes of a call under short names, for one group of channels.
struct Geometry {
  explicit Geometry(const Problem& p)
      : groups(p.params.groups),
        channels(p.x.count() == 0 ? 0
                                  : p.w[1]),  // of an empty x nothing is read: all its windows are padding
        height(p.x[2]),
        width(p.x[3]),
        rows(p.w[0] / groups),
        kernel_height(p.w[2]),
        kernel_width(p.w[3]),
        out_height(p.y[2]),
        out_width(p.y[3]),
        params(p.params) {}

  std::int64_t terms() const { return channels * kernel_height * kernel_width; }
  std::int64_t pixels() const { return out_height * out_width; }
  bool is_pointwise() const {
    return kernel_height == 1 && kernel_width == 1 && params.stride == std::array<std::int64_t, 2>{1, 1} &&
           params.padding == Padding2d{};
  }

  std::int64_t groups, channels, height, width, rows, kernel_height, kernel_width, out_height, out_width;
  const Conv2dParams& params;
};

inline void apply(Activation activation, float* values, std::int64_t count) {
  with_activation(activation.kind, [&]<ActivationKind kKind>() {
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = activate<kKind>(values[i], activation.alpha, activation.beta);
  });
}

/// What joins the sums on their way into y. Partial sums wait in y itself.
struct Epilogue {
  const float* bias;      // of the first of these rows, or null
  const float* residual;  // where y's tile is, or null
  bool is_first, is_last;
  Activation activation;
};

/// Writes `columns` values of each row of a tile. y (and residual) have the pitch `pitch`.
[[gnu::always_inline]] inline void finish_tile(const Vector (&sums)[kRows][2], int rows, std::int64_t columns,
                                               const Epilogue& e, float* y, std::int64_t pitch) {
  const bool is_plain =
      e.activation.kind == ActivationKind::none || e.activation.kind == ActivationKind::relu;
  if (columns == kPanel && e.is_first && e.is_last && !e.residual &&
      is_plain) {  // the common case, without a branch
    const Vector floor = e.activation.kind == ActivationKind::relu ? Vector{} : Vector{} - kInfinity;
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < 2; ++v) {
        const Vector value = sums[r][v] + (e.bias ? e.bias[r] : 0.0f);
        store(y + r * pitch + v * kVector, value < floor ? floor : value);
      }
    return;
  }
  for (int r = 0; r < rows; ++r) {
    float* out = y + r * pitch;
    const float* before = e.is_first ? (e.residual ? e.residual + r * pitch : nullptr) : out;
    const float bias = e.is_first && e.bias ? e.bias[r] : 0.0f;
    const bool is_relu = e.is_last && e.activation.kind == ActivationKind::relu;
    for (int v = 0; v * kVector < columns; ++v) {
      const std::int64_t count = std::min<std::int64_t>(kVector, columns - v * kVector);
      Vector value = sums[r][v] + bias;
      if (count == kVector) {
        if (before) value += load(before + v * kVector);
        if (is_relu) value = value < Vector{} ? Vector{} : value;
        store(out + v * kVector, value);
        continue;
      }
      float lanes[kVector] = {};
      if (before) std::copy_n(before + v * kVector, count, lanes);
      value += load(lanes);
      if (is_relu) value = value < Vector{} ? Vector{} : value;
      store(lanes, value);
      std::copy_n(lanes, count, out + v * kVector);
    }
    if (e.is_last && !is_relu && e.activation.kind != ActivationKind::none) apply(e.activation, out, columns);
  }
}

/// Operands of one image and group.
struct Slice {
  const float* x;
  const float* w;
  const float* bias;
  const float* residual;
  float* y;
};

inline Slice slice_of(const Geometry& g, const Operands& o, std::int64_t image, std::int64_t group) {
  const std::int64_t channel = image * g.groups + group;  // the same for x and y, counted in groups
  const auto at = [](const void* base, std::int64_t offset) {
    return base ? static_cast<const float*>(base) + offset : nullptr;
  };
  const std::int64_t out = channel * g.rows * g.pixels();
  return {at(o.x, channel * g.channels * g.height * g.width), at(o.w, group * g.rows * g.terms()),
          at(o.bias, group * g.rows), at(o.residual, out), static_cast<float*>(o.y) + out};
}

/// Whether windows_run beats packing: stride 1, few pixels dropped, and few output channels to share the
/// packing.
bool windows_pay(const Geometry& g);
CpuPlan windows_prepare(const Problem& problem, int threads);
void windows_run(const CpuPlan& plan, const Problem& problem, ThreadPool& threads, const Operands& operands,
                 void* workspace);

}  // namespace burin::conv2d_impl
