#include <burin/runtime/cuda/cuda_api.h>

#include <algorithm>

namespace burin::cuda {

int lowest_architecture() noexcept { return std::min({__CUDA_ARCH_LIST__}); }

int architecture_for(int device) noexcept {
  int best = 0;
  for (const int built : {__CUDA_ARCH_LIST__})
    if (built <= device) best = std::max(best, built);
  return best;
}

}  // namespace burin::cuda
