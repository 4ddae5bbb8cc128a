#include <burin/runtime/cuda/nvtx.h>

#include <nvtx3/nvToolsExt.h>

namespace burin::cuda {

void begin_range(const char* name) noexcept { nvtxRangePushA(name); }
void end_range() noexcept { nvtxRangePop(); }

}  // namespace burin::cuda
