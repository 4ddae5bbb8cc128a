#include <burin/runtime/config.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/event.h>
#include <burin/runtime/memory/memory_resource.h>
#include <burin/runtime/stream_state.h>

namespace burin {
namespace {

void synchronize_beside_capture([[maybe_unused]] StreamView stream) {
  if constexpr (kHasCuda) {
    if (stream.device().is_cpu()) return;
    const cuda::BesideCapture beside;
    cuda::synchronize_stream(stream.device().index, stream.native_handle());
  }
}

}  // namespace

void MemoryResource::deallocate_after(void* data, std::size_t bytes, StreamView stream,
                                      std::span<const StreamView> users) noexcept {
  if (!data) return;
  for (const StreamView user : users) {
    if (user == stream) continue;
    try {
      const std::uint64_t capture = detail::capture_of(user);
      if (capture != detail::capture_of(stream)) {
        if (capture != 0) return;          // a wait would make `stream` a part of the capture
        synchronize_beside_capture(user);  // what is captured cannot wait for work outside
        continue;
      }
      Event used(user.device(), {.timing = false});
      used.record(user);
      stream.wait(used);
    } catch (...) {
      try {
        synchronize_beside_capture(user);
      } catch (...) {
        return;  // the device may still use it
      }
    }
  }
  deallocate(data, bytes, stream);
}

}  // namespace burin
