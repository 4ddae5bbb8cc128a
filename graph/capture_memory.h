#pragma once
// Private: the memory of a context while a forward pass is warmed up or recorded.

#include <burin/runtime/buffer.h>
#include <burin/runtime/context.h>
#include <burin/runtime/memory/adaptors.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace burin::detail {

/// Notes the order of requests, which is the same in every run of a forward pass, and can serve some of them,
/// known by their place in that order, with buffers made before: that is how the outputs of a graph come to
/// lie in memory of their own.
class CaptureMemory final : public ResourceAdaptor {
 public:
  struct Request {
    void* data;
    std::size_t bytes;
  };

  /// Requests on other streams than `stream` are no part of the pass, and just passed on.
  CaptureMemory(std::shared_ptr<MemoryResource> upstream, StreamView stream);
  void* allocate(std::size_t bytes, StreamView stream) override;
  void deallocate(void* data, std::size_t bytes, StreamView stream) noexcept override;
  void deallocate_after(void* data, std::size_t bytes, StreamView stream,
                        std::span<const StreamView> users) noexcept override;

  /// Forgets the requests so far, and serves the later ones from `served`, by their place from 0, where the
  /// size is the same. Whoever gets such memory does not own it: the buffer does.
  void restart(std::map<std::size_t, std::shared_ptr<Buffer>> served = {});
  /// Since restart().
  std::vector<Request> requests() const;
  /// Most bytes in use at once since restart().
  std::size_t peak_bytes() const;

 private:
  void forget(void* data) noexcept;
  bool is_served(const void* data) const noexcept;

  const StreamView stream_;
  mutable std::mutex mutex_;
  std::vector<Request> requests_;
  std::map<std::size_t, std::shared_ptr<Buffer>> served_;
  std::unordered_map<void*, std::size_t> live_;  // allocated since restart(), in bytes
  std::size_t live_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};

/// Puts a CaptureMemory in place of the context's memory, for a scope.
class CaptureMemoryScope {
 public:
  explicit CaptureMemoryScope(Context& ctx)
      : ctx_(ctx),
        memory_(std::make_shared<CaptureMemory>(ctx.memory(), ctx.stream())),
        outer_(ctx.exchange_memory(memory_)) {}
  ~CaptureMemoryScope() { ctx_.exchange_memory(std::move(outer_)); }
  CaptureMemoryScope(const CaptureMemoryScope&) = delete;
  CaptureMemoryScope& operator=(const CaptureMemoryScope&) = delete;

  CaptureMemory* operator->() const noexcept { return memory_.get(); }
  const std::shared_ptr<MemoryResource>& outer() const noexcept { return outer_; }

 private:
  Context& ctx_;
  std::shared_ptr<CaptureMemory> memory_;
  std::shared_ptr<MemoryResource> outer_;
};

}  // namespace burin::detail
