#include <burin/ops/gemm/dot_kernel.cuh>
#include <burin/ops/gemm/gemm.h>
#include <burin/ops/gemm/tile_kernel.cuh>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/dispatch.h>

#include <algorithm>

namespace burin::gemm {
namespace {

constexpr const char* kOp = "gemm";

/// Lines of `pitch` elements, the first at `data`, all start at a multiple of 16 bytes.
template <class T>
bool lines_aligned(const T* data, std::int64_t pitch, std::int64_t batch_stride) {
  return cuda::is_aligned(data) && pitch % kChunk<T> == 0 && batch_stride % kChunk<T> == 0;
}

template <class T>
Output<T> make_output(const Problem& p, const T* bias, T* y) {
  Output<T> out = {};
  out.y = y;
  out.bias = bias;
  out.vectors = lines_aligned(y, p.ldy, p.y_batch_stride) && cuda::is_aligned(bias);
  out.activation = p.activation;
  out.rows = p.m;
  out.cols = p.n;
  out.row_stride = p.ldy;
  out.batch_stride = p.y_batch_stride;
  return out;
}

/// A's rows or B's columns, with k along the lines in memory or across them.
template <bool kAligned, class T>
MatrixLoader<T, kAligned> make_loader(const T* data, std::int64_t pitch, bool k_along,
                                      std::int64_t batch_stride, std::int64_t lines, std::int64_t k) {
  return {data,
          k_along ? pitch : 1,
          k_along ? 1 : pitch,
          batch_stride,
          lines,
          k,
          k_along && lines_aligned(data, pitch, batch_stride),
          !k_along};
}

/// Dot products win where there are few: then tiles would be mostly padding.
bool is_narrow(const Problem& p) {
  if (p.a_transposed || !p.b_transposed || p.k == 0) return false;
  return std::min(p.m, p.n) <= 8 || p.m * p.n <= 1024;
}

template <class T>
void dots(StreamView stream, const Problem& p, const T* a, const T* b, const Output<T>& out) {
  const bool vectors = lines_aligned(a, p.lda, p.a_batch_stride) && lines_aligned(b, p.ldb, p.b_batch_stride);
  // A block for each where all run at once, and a warp would take more than the turns it has in flight.
  constexpr std::int64_t kMostBlockDots = 1024;
  constexpr std::int64_t kTermsInFlight = 4 * 32 * kChunk<T>;
  if (p.batch * p.m * p.n <= kMostBlockDots && p.k > kTermsInFlight) {
    const dim3 grid(static_cast<unsigned>(p.n), static_cast<unsigned>(p.m), static_cast<unsigned>(p.batch));
    return cuda::launch(kOp, block_dot_kernel<T>,
                        {.grid = grid, .block = dim3(kBlockDotThreads), .starts_early = true}, stream, a, b,
                        p.lda, p.ldb, p.a_batch_stride, p.b_batch_stride, p.k, vectors, out);
  }
  const auto run = [&]<int kRows>() {
    constexpr std::int64_t kMostBlocks = 1 << 16;
    const std::int64_t warps = p.batch * ((p.m - 1) / kRows + 1) * p.n;
    const auto blocks = static_cast<unsigned>(std::min((warps - 1) / 4 + 1, kMostBlocks));
    cuda::launch(kOp, dot_kernel<T, kRows>, {.grid = dim3(blocks), .block = dim3(128), .starts_early = true},
                 stream, a, b, p.lda, p.ldb, p.a_batch_stride, p.b_batch_stride, p.k, p.batch, vectors, out);
  };
  // Four rows share a read of B once there are warps enough without that.
  if (p.m >= 4 && p.batch * p.m * p.n > 4096)
    run.template operator()<4>();
  else
    run.template operator()<1>();
}

/// Whether rows and columns start at multiples of 16 bytes, if the matrices themselves do.
bool pitches_aligned(const Problem& p) {
  const std::int64_t chunk = 16 / static_cast<std::int64_t>(item_bytes(p.dtype));
  return p.lda % chunk == 0 && p.a_batch_stride % chunk == 0 && p.ldb % chunk == 0 &&
         p.b_batch_stride % chunk == 0;
}

TileChoice choose(const Problem& p, int multiprocessors, bool may_split) {
  return choose_tile(tiles_for(p.dtype, p.allow_tf32, !p.a_transposed && pitches_aligned(p)),
                     {p.m, p.n, p.k, p.batch}, multiprocessors, may_split);
}

template <class T>
void tiles(StreamView stream, const Problem& p, const T* a, const T* b, const Output<T>& out,
           void* workspace) {
  const auto [tile, splits, workspace_bytes] =
      choose(p, cuda::multiprocessor_count(stream.device().index), workspace != nullptr);
  const auto run = [&]<class Tile, bool kAligned>() {
    launch_tiles<Tile>(kOp, stream,
                       make_loader<kAligned>(a, p.lda, !p.a_transposed, p.a_batch_stride, p.m, p.k),
                       make_loader<kAligned>(b, p.ldb, p.b_transposed, p.b_batch_stride, p.n, p.k), out, p.k,
                       p.batch, splits, false, workspace);
  };
  if constexpr (std::is_same_v<T, float>) {
    if (!p.allow_tf32) switch (tile) {
        case 0: return run.template operator()<FmaLarge, false>();
        case 1: return run.template operator()<FmaMedium, false>();
        default: return run.template operator()<FmaSmall, false>();
      }
  }
  if (p.a_transposed || !pitches_aligned(p) || !cuda::is_aligned(a) || !cuda::is_aligned(b))
    return run.template operator()<MmaSmall<T>, false>();
  if (p.b_transposed) switch (tile) {
      case 0: return run.template operator()<MmaLarge<T>, true>();
      case 1: return run.template operator()<MmaTall<T>, true>();
      default: return run.template operator()<MmaSmall<T>, true>();
    }
  const auto run_across = [&]<class Tile>() {
    launch_tiles<Tile>(kOp, stream, make_loader<true>(a, p.lda, true, p.a_batch_stride, p.m, p.k),
                       AcrossLoader<T>{b, p.ldb, p.b_batch_stride, p.n, p.k}, out, p.k, p.batch, splits,
                       false, workspace);
  };
  if constexpr (sizeof(T) == 2) {  // TF32 cannot transpose by ldmatrix and would run out of registers
    if (tile == 0) return run_across.template operator()<MmaLarge<T>>();
  }
  switch (tile) {
    case 0:
    case 1: return run_across.template operator()<MmaTall<T>>();
    default: return run_across.template operator()<MmaSmall<T>>();
  }
}

}  // namespace

std::size_t cuda_workspace_bytes(const Problem& p, int multiprocessors) {
  return is_narrow(p) ? 0 : choose(p, multiprocessors, true).workspace_bytes;
}

void cuda(StreamView stream, const Problem& p, const void* a, const void* b, const void* bias, void* y,
          void* workspace) {
  with_float_dtype(p.dtype, kOp, [&]<class T>() {
    const auto out = make_output(p, static_cast<const T*>(bias), static_cast<T*>(y));
    const auto* typed_a = static_cast<const T*>(a);
    const auto* typed_b = static_cast<const T*>(b);
    if (is_narrow(p))
      dots(stream, p, typed_a, typed_b, out);
    else
      tiles(stream, p, typed_a, typed_b, out, workspace);
  });
}

}  // namespace burin::gemm
