#include <burin/runtime/config.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/event.h>
#include <burin/runtime/memory/memory_resource.h>

namespace burin {

void MemoryResource::deallocate_after(void* data, std::size_t bytes, StreamView stream,
                                      std::span<const StreamView> users) noexcept {
  if (!data) return;
  for (const StreamView user : users) {
    if (user == stream) continue;
    try {
      // What a capture records runs whenever its graph does: nothing can wait for it.
      if constexpr (kHasCuda)
        if (user.device().is_cuda() && cuda::capture_id(user) != 0) return;
      Event used(user.device(), {.timing = false});
      used.record(user);
      stream.wait(used);
    } catch (...) {
      try {
        user.synchronize();
      } catch (...) {
        return;  // the device may still use it
      }
    }
  }
  deallocate(data, bytes, stream);
}

}  // namespace burin
