#include <burin/ops/common/vector_math.h>
#include <burin/ops/softmax/softmax_impl.h>
#include <burin/runtime/cpu/thread_pool.h>
#include <burin/runtime/divide_up.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace burin::softmax_impl {
namespace {

constexpr std::int64_t kLanes = 16;    // independent partial results of one line, for vector registers
constexpr std::int64_t kColumns = 64;  // neighbouring lines that are worked on together

inline float exponential(float x) { return vector_exp(x); }
inline double exponential(double x) { return std::exp(x); }

/// A NaN need not be the largest: it makes the sum NaN, which reaches every element.
template <class T>
T larger(T a, T b) {
  return a < b ? b : a;
}

template <class T>
T largest_of(const T* x, std::int64_t width) {
  T lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<T>::infinity());
  std::int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] = larger(lanes[j], x[i + j]);
  for (; i < width; ++i) lanes[0] = larger(lanes[0], x[i]);
  return *std::max_element(lanes, lanes + kLanes, [](T a, T b) { return a < b; });
}

/// y = exp(x - largest); returns the sum.
template <class T>
T exponentials(const T* __restrict x, T* __restrict y, std::int64_t width, T largest) {
  for (std::int64_t i = 0; i < width; ++i) y[i] = exponential(x[i] - largest);
  T lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] += y[i + j];
  for (; i < width; ++i) lanes[0] += y[i];
  T sum = 0;
  for (const T lane : lanes) sum += lane;
  return sum;
}

template <class T>
void softmax_line(const T* __restrict x, T* __restrict y, std::int64_t width, bool log) {
  const T largest = largest_of(x, width);
  const T sum = exponentials(x, y, width, largest);
  if (log) {
    const T log_sum = std::log(sum);
    for (std::int64_t i = 0; i < width; ++i) y[i] = (x[i] - largest) - log_sum;
  } else {
    for (std::int64_t i = 0; i < width; ++i) y[i] /= sum;
  }
}

/// `columns` <= kColumns neighbouring lines whose elements are `pitch` apart.
template <class T>
void softmax_columns(const T* __restrict x, T* __restrict y, std::int64_t width, std::int64_t pitch,
                     std::int64_t columns, bool log) {
  T largest[kColumns];
  T sum[kColumns] = {};
  std::fill_n(largest, kColumns, -std::numeric_limits<T>::infinity());
  for (std::int64_t i = 0; i < width; ++i)
    for (std::int64_t c = 0; c < columns; ++c) largest[c] = larger(largest[c], x[i * pitch + c]);
  for (std::int64_t i = 0; i < width; ++i)
    for (std::int64_t c = 0; c < columns; ++c) {
      const T e = exponential(x[i * pitch + c] - largest[c]);
      y[i * pitch + c] = e;
      sum[c] += e;
    }
  if (log) {
    for (std::int64_t c = 0; c < columns; ++c) sum[c] = std::log(sum[c]);
    for (std::int64_t i = 0; i < width; ++i)
      for (std::int64_t c = 0; c < columns; ++c) y[i * pitch + c] = (x[i * pitch + c] - largest[c]) - sum[c];
  } else {
    for (std::int64_t i = 0; i < width; ++i)
      for (std::int64_t c = 0; c < columns; ++c) y[i * pitch + c] /= sum[c];
  }
}

template <class T>
void run(ThreadPool& threads, const Lines& lines, bool log, const T* x, T* y) {
  constexpr std::int64_t kGrain = 1 << 12;  // elements: below this a second thread costs more than it saves
  const std::int64_t width = lines.width;
  if (lines.inner == 1) {
    threads.for_ranges(lines.outer, std::max<std::int64_t>(1, kGrain / width),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t i = begin; i < end; ++i)
                           softmax_line(x + i * width, y + i * width, width, log);
                       });
    return;
  }
  const std::int64_t blocks = divide_up(lines.inner, kColumns);
  const std::int64_t block = std::min(lines.inner, kColumns) * width;
  threads.for_ranges(lines.outer * blocks, std::max<std::int64_t>(1, kGrain / block),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         const std::int64_t column = i % blocks * kColumns;
                         const std::int64_t at = i / blocks * width * lines.inner + column;
                         softmax_columns(x + at, y + at, width, lines.inner,
                                         std::min(kColumns, lines.inner - column), log);
                       }
                     });
}

}  // namespace

void cpu(Context& ctx, const Lines& lines, bool log, const Tensor& x, Tensor& y) {
  if (x.dtype() == DType::f64)
    run(ctx.threads(), lines, log, x.data<double>(), y.data<double>());
  else
    run(ctx.threads(), lines, log, x.data<float>(), y.data<float>());
}

}  // namespace burin::softmax_impl
