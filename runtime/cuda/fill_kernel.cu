#include <burin/runtime/convert.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/cuda/device_guard.h>
#include <burin/runtime/cuda/launch.cuh>
#include <burin/runtime/dispatch.h>

#include <cstring>

namespace burin::cuda {
namespace {

template <class T>
__global__ void fill_kernel(T* dst, std::int64_t count, T value) {
  for_each_index(count, [&](std::int64_t i) { dst[i] = value; });
}

template <class T>
__global__ void arange_kernel(T* dst, std::int64_t count, double begin, double step) {
  // Two roundings, as on the CPU: no fused multiply-add.
  for_each_index(count, [&](std::int64_t i) {
    dst[i] = convert<T>(__dadd_rn(begin, __dmul_rn(static_cast<double>(i), step)));
  });
}

/// Elements are filled as bit patterns of their width.
template <class Bits, class T>
void fill_bits(StreamView stream, void* dst, std::int64_t count, T value) {
  Bits bits;
  static_assert(sizeof(Bits) == sizeof(T));
  std::memcpy(&bits, &value, sizeof bits);
  constexpr std::int64_t kWide = sizeof(uint4) / sizeof(Bits);
  const std::int64_t wide = is_aligned(dst) ? count / kWide : 0;
  if (wide > 0) {
    uint4 pattern;
    for (std::size_t i = 0; i < sizeof pattern / sizeof bits; ++i)
      std::memcpy(reinterpret_cast<char*>(&pattern) + i * sizeof bits, &bits, sizeof bits);
    launch("fill", fill_kernel<uint4>, grid_stride_shape(wide), stream, static_cast<uint4*>(dst), wide,
           pattern);
  }
  const std::int64_t done = wide * kWide;
  launch("fill", fill_kernel<Bits>, grid_stride_shape(count - done), stream, static_cast<Bits*>(dst) + done,
         count - done, bits);
}

}  // namespace

void fill(StreamView stream, DType dtype, void* dst, std::int64_t count, double value) {
  if (count == 0) return;
  with_any_dtype(dtype, "fill", [&]<class T>() {
    const T element = convert<T>(value);
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &element, sizeof(T));
    bool uniform = true;
    for (const unsigned char byte : bytes) uniform = uniform && byte == bytes[0];
    if (uniform) {
      const DeviceGuard guard(stream.device().index, "fill");
      BURIN_CUDA("fill", cudaMemsetAsync, dst, bytes[0], static_cast<std::size_t>(count) * sizeof(T),
                 static_cast<cudaStream_t>(stream.native_handle()));
    } else if constexpr (sizeof(T) == 2) {
      fill_bits<std::uint16_t>(stream, dst, count, element);
    } else if constexpr (sizeof(T) == 4) {
      fill_bits<std::uint32_t>(stream, dst, count, element);
    } else if constexpr (sizeof(T) == 8) {
      fill_bits<std::uint64_t>(stream, dst, count, element);
    }
  });
}

void arange(StreamView stream, DType dtype, void* dst, std::int64_t count, double begin, double step) {
  with_any_dtype(dtype, "arange", [&]<class T>() {
    launch("arange", arange_kernel<T>, grid_stride_shape(count), stream, static_cast<T*>(dst), count, begin,
           step);
  });
}

}  // namespace burin::cuda
