#include <burin/runtime/cuda/cuda_api.h>

#include <algorithm>

namespace burin::cuda {

int lowest_architecture() noexcept { return std::min({__CUDA_ARCH_LIST__}); }

}  // namespace burin::cuda
