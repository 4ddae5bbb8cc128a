#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/cuda/launch.cuh>
#include <burin/runtime/cuda/strided_device.cuh>
#include <burin/runtime/dtype.h>

#include <algorithm>

namespace burin::cuda {

void convert_strided(StreamView stream, DType dst_dtype, void* dst, DType src_dtype, const void* src,
                     const StridedLoop<2>& loop);  // convert_kernel.cu

namespace {

// Copies between equal dtypes move bit patterns of the element's width; 16 bytes at a time where the rows
// allow it.
constexpr int kTile = 32;     // elements of a tile's side
constexpr int kTileRows = 8;  // rows of threads that walk a tile

template <class T>
__global__ void copy_kernel(T* dst, const T* src, const __grid_constant__ StridedLoop<2> loop) {
  for_each_index(loop.count, [&](std::int64_t i) {
    const Offsets<2> at = offsets_of(loop, i);
    dst[at.of[0]] = src[at.of[1]];
  });
}

/// One matrix transposed per index of `outer`: dst is dense along `columns`, src along `rows`.
struct Transpose {
  std::int64_t rows, columns;  // extents
  std::int64_t dst_row;        // stride of dst between rows
  std::int64_t src_column;     // stride of src between columns
  StridedLoop<2> outer;
};

template <class T>
__global__ void copy_transpose_kernel(T* dst, const T* src, const __grid_constant__ Transpose t,
                                      std::int64_t tiles) {
  __shared__ T tile[kTile][kTile + 1];  // the extra column spreads a column over the banks
  const std::int64_t across = (t.columns + kTile - 1) / kTile;
  const std::int64_t down = (t.rows + kTile - 1) / kTile;
  wait_for_previous();
  for (std::int64_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const std::int64_t column = index % across * kTile;
    const std::int64_t row = index / across % down * kTile;
    const Offsets<2> base = offsets_of(t.outer, index / across / down);
    for (int j = static_cast<int>(threadIdx.y); j < kTile; j += kTileRows)
      if (row + threadIdx.x < t.rows && column + j < t.columns)
        tile[j][threadIdx.x] = src[base.of[1] + (column + j) * t.src_column + row + threadIdx.x];
    __syncthreads();
    for (int j = static_cast<int>(threadIdx.y); j < kTile; j += kTileRows)
      if (row + j < t.rows && column + threadIdx.x < t.columns)
        dst[base.of[0] + (row + j) * t.dst_row + column + threadIdx.x] = tile[threadIdx.x][j];
    __syncthreads();
  }
}

/// The axis along which src is dense, where that pays: dst is dense along the last one, and both are long. -1
/// if none.
int transposed_axis(const StridedLoop<2>& loop) {
  constexpr std::int64_t kWorthTiling = 8;
  const int last = loop.rank - 1;
  if (loop.strides[0][last] != 1 || loop.strides[1][last] == 1 || loop.extents[last] < kWorthTiling)
    return -1;
  for (int axis = 0; axis < last; ++axis)
    if (loop.strides[1][axis] == 1 && loop.extents[axis] >= kWorthTiling) return axis;
  return -1;
}

Transpose make_transpose(const StridedLoop<2>& loop, int rows_axis) {
  const int last = loop.rank - 1;
  Transpose t{.rows = loop.extents[rows_axis],
              .columns = loop.extents[last],
              .dst_row = loop.strides[0][rows_axis],
              .src_column = loop.strides[1][last],
              .outer = {}};
  t.outer.count = loop.count / (t.rows * t.columns);
  for (int axis = 0; axis < last; ++axis) {
    if (axis == rows_axis) continue;
    t.outer.extents[t.outer.rank] = loop.extents[axis];
    for (int k = 0; k < 2; ++k) t.outer.strides[k][t.outer.rank] = loop.strides[k][axis];
    ++t.outer.rank;
  }
  return t;
}

template <class T>
void copy_as(StreamView stream, void* dst, const void* src, const StridedLoop<2>& loop) {
  auto* to = static_cast<T*>(dst);
  const auto* from = static_cast<const T*>(src);
  const int rows_axis = transposed_axis(loop);
  if (rows_axis < 0) {
    launch("copy", copy_kernel<T>, grid_stride_shape(loop.count), stream, to, from, loop);
    return;
  }
  const Transpose t = make_transpose(loop, rows_axis);
  const std::int64_t tiles =
      ((t.rows + kTile - 1) / kTile) * ((t.columns + kTile - 1) / kTile) * t.outer.count;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(tiles, 1 << 16));
  launch("copy", copy_transpose_kernel<T>,
         {.grid = dim3(blocks), .block = dim3(kTile, kTileRows), .starts_early = true}, stream, to, from, t,
         tiles);
}

/// Largest width in bytes, from 16 down, in which the rows of both operands can be walked: the element's own
/// width if no wider one fits.
std::size_t widest_access(const void* dst, const void* src, std::size_t item, const StridedLoop<2>& loop) {
  const int last = loop.rank - 1;
  if (loop.strides[0][last] != 1 || loop.strides[1][last] != 1) return item;
  std::uint64_t offsets = reinterpret_cast<std::uintptr_t>(dst) | reinterpret_cast<std::uintptr_t>(src) |
                          static_cast<std::uint64_t>(loop.extents[last]) * item;
  for (int axis = 0; axis < last; ++axis)
    for (int k = 0; k < 2; ++k) offsets |= static_cast<std::uint64_t>(loop.strides[k][axis]) * item;
  std::size_t width = 16;
  while (width > item && offsets % width != 0) width /= 2;
  return width;
}

/// The same loop over groups of `factor` elements.
StridedLoop<2> widened(StridedLoop<2> loop, std::int64_t factor) {
  const int last = loop.rank - 1;
  loop.count /= factor;
  loop.extents[last] /= factor;
  for (int axis = 0; axis < last; ++axis)
    for (int k = 0; k < 2; ++k) loop.strides[k][axis] /= factor;
  return loop;
}

}  // namespace

void copy_strided(StreamView stream, DType dst_dtype, void* dst, DType src_dtype, const void* src,
                  const StridedLoop<2>& loop) {
  if (loop.count == 0) return;
  if (dst_dtype != src_dtype) {
    convert_strided(stream, dst_dtype, dst, src_dtype, src, loop);
    return;
  }
  const std::size_t item = item_bytes(dst_dtype);
  const std::size_t width = widest_access(dst, src, item, loop);
  const StridedLoop<2> wide = widened(loop, static_cast<std::int64_t>(width / item));
  switch (width) {
    case 1: return copy_as<std::uint8_t>(stream, dst, src, wide);
    case 2: return copy_as<std::uint16_t>(stream, dst, src, wide);
    case 4: return copy_as<std::uint32_t>(stream, dst, src, wide);
    case 8: return copy_as<std::uint64_t>(stream, dst, src, wide);
    default:
      return launch("copy", copy_kernel<uint4>, grid_stride_shape(wide.count), stream,
                    static_cast<uint4*>(dst), static_cast<const uint4*>(src), wide);
  }
}

}  // namespace burin::cuda
