#pragma once
// Private: what every tiled product shares. Operands come through loaders, results go through an Output, so
// that the matrix product and the convolution are two users of the same kernels.
//
// A loader serves one operand in chunks of 16 bytes along k, for lines 0, 1, ... (rows of A, columns of B):
//   Line line(i)                    what is known of line i; called once a line, kept in registers
//   Column column(k)                what is known of position k, shared by all lines
//   Source<T> chunk(Line, Column)   the chunk that starts there: an aligned address and the bytes that exist
//   const T* element(Line, Column)  one element, or null for a zero
//   vectors()                       whether chunk() may be used; if not, element() is called for each element
//   lines_adjacent()                whether neighbours in memory are neighbouring lines (else neighbouring k)
//   select(batch)                   moves to that batch entry or group
// chunk() and element() give nothing past the end of the lines or of k.

#include <burin/ops/common/activation_apply.h>
#include <burin/ops/common/element.cuh>
#include <burin/ops/common/fast_divmod.h>
#include <burin/ops/gemm/mma.cuh>

#include <cstdint>

namespace burin::gemm {

/// Elements in 16 bytes.
template <class T>
inline constexpr int kChunk = 16 / static_cast<int>(sizeof(T));

template <class T>
struct Source {
  const T* data;
  int bytes;
};

/// Elements data[line * line_stride + k * k_stride]. kAligned says at compile time that chunks may be read,
/// which spares a kernel the code and the registers of the other way.
template <class T, bool kAligned>
struct MatrixLoader {
  const T* data;
  std::int64_t line_stride, k_stride, batch_stride;
  std::int64_t lines, k;
  bool aligned_chunks, across;

  using Line = const T*;
  struct Column {
    std::int64_t offset;
    int bytes;
  };
  __device__ bool vectors() const { return kAligned || aligned_chunks; }
  __device__ bool lines_adjacent() const { return !kAligned && across; }
  __device__ void select(std::int64_t batch) { data += batch * batch_stride; }
  __device__ Line line(std::int64_t i) const { return i < lines ? data + i * line_stride : nullptr; }
  __device__ Column column(std::int64_t at) const {
    const std::int64_t left = k - at;
    constexpr int kItem = static_cast<int>(sizeof(T));
    return {at * k_stride, left >= kChunk<T> ? 16 : (left > 0 ? static_cast<int>(left) * kItem : 0)};
  }
  __device__ Source<T> chunk(Line line, Column column) const {
    return line && column.bytes > 0 ? Source<T>{line + column.offset, column.bytes} : Source<T>{data, 0};
  }
  __device__ const T* element(Line line, Column column) const {
    return line && column.bytes > 0 ? line + column.offset : nullptr;
  }
};

/// A thread's share of an operand's stage: the chunks of kLines x kChunksPerLine that it loads for every
/// stage.
template <class T, int kLines, int kChunksPerLine, int kThreads, class Loader>
class ChunkShare {
 public:
  static constexpr int kStep = kThreads / kChunksPerLine;
  static constexpr int kCount = kLines / kStep;
  static_assert(kCount >= 1 && kCount * kStep == kLines);

  __device__ ChunkShare(const Loader& loader, std::int64_t first_line) : loader_(loader) {
    const int thread = static_cast<int>(threadIdx.x);
    first_ = loader.lines_adjacent() ? thread % kStep : thread / kChunksPerLine;
    chunk_ = loader.lines_adjacent() ? thread / kStep : thread % kChunksPerLine;
#pragma unroll
    for (int i = 0; i < kCount; ++i) lines_[i] = loader.line(first_line + line(i));
  }

  __device__ int line(int i) const { return first_ + i * kStep; }  // within the tile
  __device__ int chunk() const { return chunk_; }

  /// Calls sink(i, source) with the i-th line's chunk of the stage at k. Only if loader.vectors().
  template <class Sink>
  __device__ void for_each_chunk(std::int64_t k, Sink&& sink) const {
    const auto column = loader_.column(k + chunk_ * kChunk<T>);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sink(i, loader_.chunk(lines_[i], column));
  }

  /// The same chunks, gathered element by element.
  __device__ void gather(std::int64_t k, uint4 (&chunks)[kCount]) const {
    std::uint32_t words[kCount][4] = {};
#pragma unroll
    for (int j = 0; j < kChunk<T>; ++j) {
      const auto column = loader_.column(k + chunk_ * kChunk<T> + j);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const T* element = loader_.element(lines_[i], column);
        if constexpr (sizeof(T) == 4)
          words[i][j] = element ? __ldg(reinterpret_cast<const unsigned*>(element)) : 0u;
        else
          words[i][j / 2] |=
              (element ? std::uint32_t{__ldg(reinterpret_cast<const unsigned short*>(element))} : 0u)
              << (16 * (j % 2));
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      chunks[i] = make_uint4(words[i][0], words[i][1], words[i][2], words[i][3]);
  }

  /// The chunks in registers, whichever way they can be read.
  __device__ void fetch(std::int64_t k, uint4 (&chunks)[kCount]) const {
    if (!loader_.vectors()) return gather(k, chunks);
    for_each_chunk(k, [&](int i, Source<T> source) {
      chunks[i] = make_uint4(0, 0, 0, 0);
      if (source.bytes == 16) {
        chunks[i] = __ldg(reinterpret_cast<const uint4*>(source.data));
      } else if (source.bytes > 0) {
        T values[kChunk<T>] = {};
#pragma unroll
        for (int j = 0; j < kChunk<T>; ++j)
          if (j * static_cast<int>(sizeof(T)) < source.bytes) values[j] = source.data[j];
        chunks[i] = *reinterpret_cast<const uint4*>(values);
      }
    });
  }

 private:
  const Loader& loader_;
  typename Loader::Line lines_[kCount];
  int first_, chunk_;
};

/// Applies an activation to every value. The rarer ones take turns in one copy of their code, each moving the
/// values round by one place, since registers cannot be indexed.
template <int kValues>
__device__ inline void activate_all(const Activation& a, float (&values)[kValues]) {
  if (a.kind == ActivationKind::none) return;
  if (a.kind == ActivationKind::relu) {
#pragma unroll
    for (float& value : values) value = activate<ActivationKind::relu>(value, 0, 0);
    return;
  }
#pragma unroll 1
  for (int turn = 0; turn < kValues; ++turn) {
    const float first = activate(a, values[0]);
#pragma unroll
    for (int j = 1; j < kValues; ++j) values[j - 1] = values[j];
    values[kValues - 1] = first;
  }
}

/// y and what is done to a sum on its way there: y = activation(sum + bias + residual).
///
/// Element (row, col) lies at row * row_stride + col; where the columns run over several planes of
/// `plane_columns`, each plane lies plane_jump elements further than its columns alone would put it.
template <class T>
struct Output {
  T* y;
  const T* residual;  // of y's layout, or null
  const T* bias;      // one element a column, or a row; or null
  bool bias_along_rows;
  bool vectors;  // a whole chunk of columns at a multiple of kChunk may be accessed at once, in y, residual
                 // and bias
  Activation activation;
  std::int64_t rows, cols, row_stride, batch_stride, bias_batch_stride;
  FastDivmod plane_columns;
  std::int64_t plane_jump;

  __device__ void select(std::int64_t batch) {
    y += batch * batch_stride;
    if (residual) residual += batch * batch_stride;
    if (bias) bias += batch * bias_batch_stride;
  }

  __device__ std::int64_t offset(std::int64_t row, std::int64_t col) const {
    std::int64_t at = row * row_stride + col;
    if (plane_jump != 0) at += plane_columns.divide(static_cast<std::uint32_t>(col)) * plane_jump;
    return at;
  }

  /// Finishes the sums of columns col, col + 1, ... of one row; those past the end are dropped.
  __device__ void store(std::int64_t row, std::int64_t col, float (&sum)[kChunk<T>]) const {
    if (row >= rows || col >= cols) return;
    if (vectors && col + kChunk<T> <= cols) {
      const std::int64_t at = offset(row, col);
      if (bias) add(sum, bias_along_rows ? splat(bias[row]) : load(bias + col));
      if (residual) add(sum, load(residual + at));
      activate_all(activation, sum);
      Pack out;
#pragma unroll
      for (int j = 0; j < kChunk<T>; ++j) out.values[j] = narrowed<T>(sum[j]);
      *reinterpret_cast<Pack*>(y + at) = out;
      return;
    }
#pragma unroll
    for (int j = 0; j < kChunk<T>; ++j) {
      if (col + j >= cols) break;
      if (bias) sum[j] += widened(bias[bias_along_rows ? row : col + j]);
      if (residual) sum[j] += widened(residual[offset(row, col + j)]);
    }
    activate_all(activation, sum);
#pragma unroll
    for (int j = 0; j < kChunk<T>; ++j) {
      if (col + j >= cols) break;
      y[offset(row, col + j)] = narrowed<T>(sum[j]);
    }
  }
  /// Finishes one sum.
  __device__ void store_one(std::int64_t row, std::int64_t col, float sum) const {
    if (row >= rows || col >= cols) return;
    const std::int64_t at = offset(row, col);
    if (bias) sum += widened(bias[bias_along_rows ? row : col]);
    if (residual) sum += widened(residual[at]);
    y[at] = narrowed<T>(activate(activation, sum));
  }

 private:
  struct alignas(16) Pack {
    T values[kChunk<T>];
  };
  __device__ static Pack load(const T* data) { return *reinterpret_cast<const Pack*>(data); }
  __device__ static Pack splat(T value) {
    Pack pack;
#pragma unroll
    for (T& each : pack.values) each = value;
    return pack;
  }
  __device__ static void add(float (&sum)[kChunk<T>], const Pack& terms) {
#pragma unroll
    for (int j = 0; j < kChunk<T>; ++j) sum[j] += widened(terms.values[j]);
  }
};

}  // namespace burin::gemm
