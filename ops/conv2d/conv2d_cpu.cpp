// Convolution as a product, weights (K/g x C/g*R*S) by windows (C/g*R*S x pixels), with the windows gathered
// tile by tile into panels that the register tile reads in order (Goto, van de Geijn: "Anatomy of
// high-performance matrix multiplication", 2008), so no image of all windows is ever built.

#include <burin/ops/conv2d/conv2d_cpu.h>
#include <burin/ops/conv2d/conv2d_impl.h>
#include <burin/runtime/cpu/thread_pool.h>

#include <algorithm>
#include <atomic>

namespace burin::conv2d_impl {
namespace {

constexpr std::int64_t kDepth = 384;  // terms: a panel and a row block of that depth fit L1
constexpr std::int64_t kMostTilePixels = 1024;
constexpr std::int64_t kFewestTilePanels = 2;
constexpr std::int64_t kFewestTileRows = 4 * kRows;

/// Output columns [begin, end) whose window column s lies inside the image, and the input column of output
/// column 0.
struct Columns {
  std::int64_t begin, end, first;
};

Columns columns_inside(const Geometry& g, std::int64_t s) {
  const std::int64_t stride = g.params.stride[1];
  const std::int64_t first = s * g.params.dilation[1] - g.params.padding.left;
  std::int64_t begin = std::max<std::int64_t>(-first, 0);
  std::int64_t end = std::max<std::int64_t>(g.width - first, 0);
  if (stride > 1) {
    begin = divide_up(begin, stride);
    end = divide_up(end, stride);
  }
  return {std::min(begin, g.out_width), std::min(std::max(begin, end), g.out_width), first};
}

/// An output pixel.
struct Pixel {
  std::int64_t row, column;
};

/// What one window element, (r, s) of a channel's plane, reads for `count` output pixels from `at` on; zeros
/// outside the image.
void gather(const Geometry& g, const float* plane, std::int64_t r, std::int64_t s, Pixel at,
            std::int64_t count, float* out) {
  const Columns inside = columns_inside(g, s);
  const std::int64_t stride = g.params.stride[1];
  std::int64_t in_row = at.row * g.params.stride[0] + r * g.params.dilation[0] - g.params.padding.top;
  for (std::int64_t left = count; left > 0; in_row += g.params.stride[0], at.column = 0) {
    const std::int64_t stop = std::min(g.out_width, at.column + left);
    const bool is_row_inside = in_row >= 0 && in_row < g.height;
    const std::int64_t from = is_row_inside ? std::clamp(inside.begin, at.column, stop) : stop;
    const std::int64_t to = is_row_inside ? std::clamp(inside.end, from, stop) : stop;
    for (std::int64_t i = at.column; i < from; ++i) *out++ = 0.0f;
    const float* in = plane + (is_row_inside ? in_row * g.width + inside.first + from * stride : 0);
    if (stride == 1)
      copy_run(in, to - from, out);
    else if (stride == 2)
      for (std::int64_t i = 0; i < to - from; ++i) out[i] = in[2 * i];
    else
      for (std::int64_t i = 0; i < to - from; ++i) out[i] = in[i * stride];
    out += to - from;
    for (std::int64_t i = to; i < stop; ++i) *out++ = 0.0f;
    left -= stop - at.column;
  }
}

/// Packs terms [term, term + depth) of output pixels [begin, end): panel after panel, each [depth][kPanel].
void pack(const Geometry& g, const float* x, std::int64_t term, std::int64_t depth, std::int64_t begin,
          std::int64_t end, float* panels) {
  const std::int64_t whole = (end - begin) / kPanel;
  const std::int64_t rest = (end - begin) % kPanel;
  const bool is_pointwise = g.is_pointwise();
  const Pixel first{begin / g.out_width, begin % g.out_width};
  std::int64_t s = term % g.kernel_width;
  std::int64_t r = term / g.kernel_width % g.kernel_height;
  const float* plane = x + term / g.kernel_width / g.kernel_height * g.height * g.width;
  float line[kMostTilePixels];
  for (std::int64_t i = 0; i < depth; ++i) {
    const float* from = line;
    if (is_pointwise)
      from = plane + begin;
    else
      gather(g, plane, r, s, first, end - begin, line);
    float* to = panels + i * kPanel;
    for (std::int64_t panel = 0; panel < whole; ++panel, from += kPanel, to += depth * kPanel)
      store(to, load(from)), store(to + kVector, load(from + kVector));
    if (rest > 0) {
      copy_run(from, rest, to);
      for (std::int64_t j = rest; j < kPanel; ++j) to[j] = 0.0f;
    }
    if (++s < g.kernel_width) continue;
    s = 0;
    if (++r < g.kernel_height) continue;
    r = 0;
    plane += g.height * g.width;
  }
}

/// Asks for part `part` of `parts` of the next rows' weights.
void prefetch_rows(const float* w, std::int64_t rows, std::int64_t pitch, std::int64_t depth,
                   std::int64_t part, std::int64_t parts) {
  constexpr std::int64_t kLine = 16;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = depth * part / parts; i < depth * (part + 1) / parts; i += kLine)
      __builtin_prefetch(w + row * pitch + i, 0, 2);
}

/// Output channels [row, row_end) of pixels [begin, end).
void multiply(const CpuPlan& plan, const Geometry& g, const Slice& t, std::int64_t row_begin,
              std::int64_t row_end, std::int64_t begin, std::int64_t end, float* panels) {
  const std::int64_t terms = g.terms();
  std::int64_t term = 0;
  do {  // once even without terms, for bias, residual and activation
    const std::int64_t depth = std::min(plan.depth, terms - term);
    pack(g, t.x, term, depth, begin, end, panels);
    const std::int64_t panel_count = divide_up(end - begin, kPanel);
    for (std::int64_t row = row_begin; row < row_end; row += kRows) {
      const int rows = static_cast<int>(std::min<std::int64_t>(kRows, row_end - row));
      const float* w = t.w + row * terms + term;
      for (std::int64_t pixel = begin; pixel < end; pixel += kPanel) {
        const std::int64_t columns = std::min<std::int64_t>(kPanel, end - pixel);
        const float* panel = panels + (pixel - begin) * depth;
        const auto window = [panel](std::int64_t i) { return panel + i * kPanel; };
        if (depth < terms)  // rows lie apart, so no hardware prefetcher foresees the next
          prefetch_rows(w + kRows * terms, std::clamp<std::int64_t>(row_end - row - kRows, 0, kRows), terms,
                        depth, (pixel - begin) / kPanel, panel_count);
        Vector sums[kRows][2];
        if (columns > kVector)
          multiply_tile<2>(rows, depth, w, terms, window, sums);
        else
          multiply_tile<1>(rows, depth, w, terms, window, sums);
        const std::int64_t at = row * g.pixels() + pixel;
        const Epilogue epilogue{t.bias ? t.bias + row : nullptr, t.residual ? t.residual + at : nullptr,
                                term == 0, term + depth == terms, g.params.activation};
        finish_tile(sums, rows, columns, epilogue, t.y + at, g.pixels());
      }
    }
    term += depth;
  } while (term < terms);
}

/// One output channel, each of its rows a sum of input rows.
void direct(const Geometry& g, const Slice& t, std::int64_t k) {
  const std::int64_t stride = g.params.stride[1];
  const float bias = t.bias ? t.bias[k] : 0.0f;
  for (std::int64_t row = 0; row < g.out_height; ++row) {
    const std::int64_t at = (k * g.out_height + row) * g.out_width;
    float* y = t.y + at;
    for (std::int64_t i = 0; i < g.out_width; ++i) y[i] = bias + (t.residual ? t.residual[at + i] : 0.0f);
    for (std::int64_t c = 0; c < g.channels; ++c)
      for (std::int64_t r = 0; r < g.kernel_height; ++r) {
        const std::int64_t in_row =
            row * g.params.stride[0] + r * g.params.dilation[0] - g.params.padding.top;
        if (in_row < 0 || in_row >= g.height) continue;
        const float* x = t.x + (c * g.height + in_row) * g.width;
        const float* w = t.w + ((k * g.channels + c) * g.kernel_height + r) * g.kernel_width;
        for (std::int64_t s = 0; s < g.kernel_width; ++s) {
          const Columns inside = columns_inside(g, s);
          const float* in = x + inside.first;
          if (stride == 1)
            for (std::int64_t i = inside.begin; i < inside.end; ++i) y[i] += w[s] * in[i];
          else
            for (std::int64_t i = inside.begin; i < inside.end; ++i) y[i] += w[s] * in[i * stride];
        }
      }
    apply(g.params.activation, y, g.out_width);
  }
}

}  // namespace

CpuPlan cpu_prepare(const Problem& problem, int threads) {
  const Geometry g(problem);
  CpuPlan plan;
  if (g.rows <= kDirectRows) {
    plan.way = CpuPlan::Way::direct;
    return plan;
  }
  if (windows_pay(g)) return windows_prepare(problem, threads);
  const std::int64_t terms = std::max<std::int64_t>(g.terms(), 1);
  plan.depth = divide_up(terms, divide_up(terms, kDepth));
  const std::int64_t panels = divide_up(g.pixels(), kPanel);
  const std::int64_t most =
      std::clamp<std::int64_t>(kTileFloats / plan.depth, kPanel, kMostTilePixels) / kPanel;
  const std::int64_t slices = problem.y[0] * g.groups;
  const std::int64_t wanted = threads == 1 ? 1 : std::int64_t{4} * threads;  // tasks
  const std::int64_t even = divide_up(panels * slices, wanted);
  const std::int64_t tiles = divide_up(panels, std::clamp(even, std::min(kFewestTilePanels, most), most));
  const std::int64_t tile_panels = divide_up(panels, tiles);
  const std::int64_t tasks = slices * divide_up(panels, tile_panels);
  // More blocks of rows mean that more tasks pack the same windows: only where cores would stand idle.
  std::int64_t blocks = 1;
  if (tasks < 2 * threads && threads > 1)
    blocks = std::clamp<std::int64_t>(divide_up(2 * threads, tasks), 1, divide_up(g.rows, kFewestTileRows));
  plan.tile_pixels = tile_panels * kPanel;
  plan.tile_rows = divide_up(divide_up(g.rows, blocks), kRows) * kRows;
  plan.workers = std::min<std::int64_t>(threads, tasks * divide_up(g.rows, plan.tile_rows));
  plan.worker_floats = plan.depth * plan.tile_pixels;
  plan.workspace_bytes = static_cast<std::size_t>(plan.workers * plan.worker_floats) * sizeof(float);
  return plan;
}

void cpu_run(const CpuPlan& plan, const Problem& problem, ThreadPool& threads, const Operands& operands,
             void* workspace) {
  const Geometry g(problem);
  if (plan.way == CpuPlan::Way::windows) return windows_run(plan, problem, threads, operands, workspace);
  if (plan.way == CpuPlan::Way::direct) {
    threads.for_ranges(problem.y[0] * problem.y[1], 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t slice = i / g.rows;
        direct(g, slice_of(g, operands, slice / g.groups, slice % g.groups), i % g.rows);
      }
    });
    return;
  }
  const std::int64_t tiles = divide_up(g.pixels(), plan.tile_pixels);
  const std::int64_t blocks = divide_up(g.rows, plan.tile_rows);
  const std::int64_t tasks = problem.y[0] * g.groups * tiles * blocks;
  std::atomic<std::int64_t> next = 0;
  threads.for_each(plan.workers, [&](std::int64_t worker) {
    float* panels = static_cast<float*>(workspace) + worker * plan.worker_floats;
    for (std::int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      const std::int64_t row = task % blocks * plan.tile_rows;
      const std::int64_t pixel = task / blocks % tiles * plan.tile_pixels;
      const std::int64_t slice = task / blocks / tiles;
      multiply(plan, g, slice_of(g, operands, slice / g.groups, slice % g.groups), row,
               std::min(row + plan.tile_rows, g.rows), pixel, std::min(pixel + plan.tile_pixels, g.pixels()),
               panels);
    }
  });
}

}  // namespace burin::conv2d_impl
