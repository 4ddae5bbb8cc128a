#include <burin/runtime/buffer.h>

#include <utility>

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
  ~AllocatedBuffer() override { resource_->deallocate(data(), bytes(), stream_); }
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

 private:
  std::shared_ptr<void> owner_;  // runs the caller's deleter
};

}  // namespace

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
