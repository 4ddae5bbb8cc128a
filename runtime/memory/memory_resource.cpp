#include <burin/runtime/event.h>
#include <burin/runtime/memory/memory_resource.h>

namespace burin {

void MemoryResource::deallocate_after(void* data, std::size_t bytes, StreamView stream,
                                      std::span<const StreamView> users) noexcept {
  for (const StreamView user : users) {
    if (user == stream) continue;
    try {
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
