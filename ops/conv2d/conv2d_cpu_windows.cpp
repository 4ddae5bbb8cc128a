// Convolution of stride 1 without gathering: in a padded copy of x, a term of the windows of neighbouring
// pixels lies side by side, at the same distance from each window's corner. So the register tile reads the
// copy itself. Pixels are counted in the copy's pitch; the few that fall between two rows of y are computed
// and dropped.

#include <burin/ops/conv2d/conv2d_cpu.h>
#include <burin/runtime/cpu/thread_pool.h>

namespace burin::conv2d_impl {
namespace {

constexpr std::int64_t kFewestTerms = 64;  // below, packing costs less than dropping pixels tile by tile
constexpr std::int64_t kMostTerms = 1536;  // whose weights, for one register tile, stay in L1

/// The padded copy of one plane of x.
struct Padded {
  explicit Padded(const Geometry& g)
      : pitch(g.width + g.params.padding.left + g.params.padding.right),
        plane((g.height + g.params.padding.top + g.params.padding.bottom) * pitch),
        span((g.out_height - 1) * pitch + g.out_width) {}
  std::int64_t pitch, plane;
  std::int64_t span;  // pixels, dropped ones included
};

void copy_padded(const Geometry& g, const Padded& padded, const float* x, float* out) {
  const Padding2d& padding = g.params.padding;
  std::fill_n(out, padding.top * padded.pitch + padding.left, 0.0f);
  out += padding.top * padded.pitch + padding.left;
  for (std::int64_t row = 0; row < g.height; ++row, x += g.width, out += padded.pitch) {
    std::copy_n(x, g.width, out);
    std::fill_n(out + g.width, padding.left + padding.right, 0.0f);
  }
  std::fill_n(out, padding.bottom * padded.pitch - padding.left, 0.0f);
}

/// Writes those of the tile's pixels that are y's. The first is column `column` of row `out_row`.
void finish_windows(const Geometry& g, const Slice& t, const Vector (&sums)[kRows][2], int rows,
                    std::int64_t row, std::int64_t out_row, std::int64_t column, std::int64_t columns,
                    std::int64_t pitch) {
  const auto at = [&](std::int64_t r, std::int64_t i, std::int64_t j) {
    return ((row + r) * g.out_height + i) * g.out_width + j;
  };
  if (column + kPanel <= g.out_width && columns == kPanel) {
    const std::int64_t first = at(0, out_row, column);
    const Epilogue epilogue{t.bias ? t.bias + row : nullptr, t.residual ? t.residual + first : nullptr, true,
                            true, g.params.activation};
    return finish_tile(sums, rows, columns, epilogue, t.y + first, g.pixels());
  }
  const bool is_relu = g.params.activation.kind == ActivationKind::relu;
  float values[kRows][kPanel];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v * kVector < columns; ++v) store(values[r] + v * kVector, sums[r][v]);
  for (std::int64_t done = 0; done < columns; column = 0, ++out_row) {
    const std::int64_t run = std::min(columns - done, pitch - column);
    const std::int64_t count = std::min(run, g.out_width - column);
    for (int r = 0; r < rows && count > 0; ++r) {
      const std::int64_t first = at(r, out_row, column);
      const float bias = t.bias ? t.bias[row + r] : 0.0f;
      float* out = t.y + first;
      for (std::int64_t i = 0; i < count; ++i) {
        const float value = values[r][done + i] + (t.residual ? bias + t.residual[first + i] : bias);
        out[i] = is_relu && value < 0.0f ? 0.0f : value;
      }
      if (!is_relu) apply(g.params.activation, out, count);
    }
    done += run;
  }
}

/// Every output channel of pixels [begin, end).
void multiply_windows(const CpuPlan& plan, const Geometry& g, const Padded& padded, const Slice& t,
                      const float* x, std::int64_t begin, std::int64_t end) {
  const std::int64_t terms = g.terms();
  const std::int64_t* offsets = plan.offsets.data();
  for (std::int64_t row = 0; row < g.rows; row += kRows) {
    const int rows = static_cast<int>(std::min<std::int64_t>(kRows, g.rows - row));
    std::int64_t out_row = begin / padded.pitch;
    std::int64_t column = begin % padded.pitch;
    for (std::int64_t pixel = begin; pixel < end; pixel += kPanel) {
      const auto window = [corner = x + pixel, offsets](std::int64_t i) { return corner + offsets[i]; };
      const std::int64_t columns = std::min<std::int64_t>(kPanel, end - pixel);
      Vector sums[kRows][2];
      if (columns > kVector)
        multiply_tile<2>(rows, terms, t.w + row * terms, terms, window, sums);
      else
        multiply_tile<1>(rows, terms, t.w + row * terms, terms, window, sums);
      finish_windows(g, t, sums, rows, row, out_row, column, columns, padded.pitch);
      for (column += kPanel; column >= padded.pitch; column -= padded.pitch) ++out_row;
    }
  }
}

}  // namespace

bool windows_pay(const Geometry& g) {
  const Padded padded(g);
  return g.params.stride == std::array<std::int64_t, 2>{1, 1} && !g.is_pointwise() &&
         g.terms() >= kFewestTerms && g.terms() <= kMostTerms &&
         (padded.pitch - g.out_width) * g.rows <
             24 * g.out_width;  // 24: measured, as rows' worth of packing a pixel
}

CpuPlan windows_prepare(const Problem& problem, int threads) {
  const Geometry g(problem);
  const Padded padded(g);
  CpuPlan plan;
  plan.way = CpuPlan::Way::windows;
  for (std::int64_t c = 0; c < g.channels; ++c)
    for (std::int64_t r = 0; r < g.kernel_height; ++r)
      for (std::int64_t s = 0; s < g.kernel_width; ++s)
        plan.offsets.push_back(c * padded.plane + r * g.params.dilation[0] * padded.pitch +
                               s * g.params.dilation[1]);
  const std::int64_t panels = divide_up(padded.span, kPanel);
  const std::int64_t slices = problem.y[0] * g.groups;
  const std::int64_t most =
      std::max<std::int64_t>(kTileFloats / g.channels - g.kernel_height * padded.pitch, 4 * kPanel) / kPanel;
  const std::int64_t even = threads == 1 ? panels : divide_up(panels * slices, std::int64_t{4} * threads);
  const std::int64_t tiles = divide_up(panels, std::clamp<std::int64_t>(even, 1, most));
  plan.tile_pixels = divide_up(panels, tiles) * kPanel;
  // The last panel reads up to a panel past the last window.
  plan.workspace_bytes =
      static_cast<std::size_t>(slices * g.channels * padded.plane + kPanel) * sizeof(float);
  return plan;
}

void windows_run(const CpuPlan& plan, const Problem& problem, ThreadPool& threads, const Operands& operands,
                 void* workspace) {
  const Geometry g(problem);
  const Padded padded(g);
  float* copy = static_cast<float*>(workspace);
  const std::int64_t slices = problem.y[0] * g.groups;
  const std::int64_t planes = slices * g.channels;
  std::fill_n(copy + planes * padded.plane, kPanel, 0.0f);
  constexpr std::int64_t kGrain = 1 << 14;  // floats: below this a second thread costs more than it saves
  threads.for_ranges(
      planes, std::max<std::int64_t>(1, kGrain / padded.plane), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          copy_padded(g, padded, static_cast<const float*>(operands.x) + i * g.height * g.width,
                      copy + i * padded.plane);
      });
  const std::int64_t tiles = divide_up(padded.span, plan.tile_pixels);
  threads.for_each(slices * tiles, [&](std::int64_t task) {
    const std::int64_t slice = task / tiles;
    const std::int64_t begin = task % tiles * plan.tile_pixels;
    multiply_windows(plan, g, padded, slice_of(g, operands, slice / g.groups, slice % g.groups),
                     copy + slice * g.channels * padded.plane, begin,
                     std::min(begin + plan.tile_pixels, padded.span));
  });
}

}  // namespace burin::conv2d_impl
