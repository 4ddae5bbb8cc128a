#include <burin/runtime/convert.h>
#include <burin/runtime/cuda/launch.cuh>
#include <burin/runtime/cuda/strided_device.cuh>
#include <burin/runtime/dispatch.h>

#include <type_traits>

namespace burin::cuda {
namespace {

template <class To, class From>
__global__ void convert_kernel(To* dst, const From* src, const __grid_constant__ StridedLoop<2> loop) {
  for_each_index(loop.count, [&](std::int64_t i) {
    const Offsets<2> at = offsets_of(loop, i);
    dst[at.of[0]] = convert<To>(src[at.of[1]]);
  });
}

}  // namespace

void convert_strided(StreamView stream, DType dst_dtype, void* dst, DType src_dtype, const void* src,
                     const StridedLoop<2>& loop) {
  with_any_dtype(dst_dtype, "copy", [&]<class To>() {
    with_any_dtype(src_dtype, "copy", [&]<class From>() {
      if constexpr (!std::is_same_v<To, From>)
        launch("copy", convert_kernel<To, From>, grid_stride_shape(loop.count), stream, static_cast<To*>(dst),
               static_cast<const From*>(src), loop);
    });
  });
}

}  // namespace burin::cuda
