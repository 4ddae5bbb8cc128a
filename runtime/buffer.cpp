#include <burin/runtime/buffer.h>
#include <burin/runtime/stream_state.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace burin {
namespace {

class AllocatedBuffer final : public Buffer {
 public:
  AllocatedBuffer(std::shared_ptr<MemoryResource> resource, void* data, std::size_t bytes, StreamView stream,
                  std::shared_ptr<detail::StreamState> stream_owner)
      : Buffer(data, bytes, resource->device(), resource->kind()),
        resource_(std::move(resource)),
        stream_owner_(std::move(stream_owner)),
        stream_(stream) {}
  ~AllocatedBuffer() override {
    if (const std::span<const StreamView> used_by = users(); used_by.empty())
      resource_->deallocate(data(), bytes(), stream_);
    else
      resource_->deallocate_after(data(), bytes(), stream_, used_by);
  }
  StreamView stream() const noexcept override { return stream_; }

 private:
  std::shared_ptr<MemoryResource> resource_;
  std::shared_ptr<detail::StreamState> stream_owner_;
  StreamView stream_;
};

class WrappedBuffer final : public Buffer {
 public:
  WrappedBuffer(void* data, std::size_t bytes, Device device, std::shared_ptr<void> owner)
      : Buffer(data, bytes, device, device.is_cuda() ? MemoryKind::device : MemoryKind::host),
        owner_(std::move(owner)) {}
  ~WrappedBuffer() override {
    if (!owner_) return;
    for (const StreamView user : users()) user.share()->retain(owner_);
  }

 private:
  std::shared_ptr<void> owner_;  // runs the caller's deleter
};

}  // namespace

struct Buffer::Users {
  std::mutex mutex;
  std::vector<StreamView> streams;
  std::vector<std::shared_ptr<detail::StreamState>> owners;  // of the streams
};

Buffer::~Buffer() { delete users_.load(std::memory_order_acquire); }

std::span<const StreamView> Buffer::users() const noexcept {
  const Users* users = users_.load(std::memory_order_acquire);
  return users ? std::span<const StreamView>(users->streams) : std::span<const StreamView>();
}

void Buffer::record_use(StreamView stream) {
  if (stream.device().is_cpu() || stream == this->stream()) return;
  Users* users = users_.load(std::memory_order_acquire);
  if (!users) {
    auto made = std::make_unique<Users>();
    if (users_.compare_exchange_strong(users, made.get(), std::memory_order_acq_rel,
                                       std::memory_order_acquire))
      users = made.release();
  }
  const std::lock_guard lock(users->mutex);
  if (std::find(users->streams.begin(), users->streams.end(), stream) != users->streams.end()) return;
  users->owners.reserve(users->owners.size() + 1);  // both or neither
  users->streams.push_back(stream);
  users->owners.push_back(stream.share());
}

std::shared_ptr<Buffer> Buffer::allocate(std::shared_ptr<MemoryResource> resource, std::size_t bytes,
                                         StreamView stream) {
  std::shared_ptr<detail::StreamState> stream_owner = stream.share();
  // The memory has an owner from the moment it exists: making the Buffer may itself fail.
  struct Release {
    MemoryResource* resource;
    std::size_t bytes;
    StreamView stream;
    void operator()(void* data) const noexcept { resource->deallocate(data, bytes, stream); }
  };
  std::unique_ptr<void, Release> memory(resource->allocate(bytes, stream),
                                        Release{resource.get(), bytes, stream});
  auto buffer = std::make_shared<AllocatedBuffer>(std::move(resource), memory.get(), bytes, stream,
                                                  std::move(stream_owner));
  static_cast<void>(memory.release());
  return buffer;
}

std::shared_ptr<Buffer> Buffer::wrap(void* data, std::size_t bytes, Device device,
                                     std::function<void(void*)> deleter) {
  // shared_ptr runs the deleter if its own control block cannot be allocated.
  std::shared_ptr<void> owner;
  if (deleter) owner = std::shared_ptr<void>(data, std::move(deleter));
  return std::make_shared<WrappedBuffer>(data, bytes, device, std::move(owner));
}

}  // namespace burin
