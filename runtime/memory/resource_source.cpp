#include <burin/runtime/memory/segment_source.h>
#include <burin/runtime/stream.h>

#include <cstdint>
#include <utility>

namespace burin::detail {
namespace {

/// A segment is one block of the upstream resource, and all of it is there from the start.
class ResourceSource final : public SegmentSource {
 public:
  explicit ResourceSource(std::shared_ptr<MemoryResource> upstream)
      : upstream_(std::move(upstream)), stream_(upstream_->device()) {}

  Device device() const noexcept override { return upstream_->device(); }
  MemoryKind kind() const noexcept override { return upstream_->kind(); }
  std::size_t granule() const noexcept override { return std::size_t{2} << 20; }
  std::size_t largest_mapping() const noexcept override { return SIZE_MAX; }
  std::size_t segment_bytes(std::size_t bytes) const noexcept override { return bytes; }

  char* reserve(std::size_t bytes) override {
    char* address = static_cast<char*>(upstream_->allocate(bytes, stream_));
    try {
      stream_.synchronize();  // from here on every stream may use it
    } catch (...) {
      release(address, bytes);
      throw;
    }
    return address;
  }
  void release(char* address, std::size_t bytes) noexcept override {
    upstream_->deallocate(address, bytes, stream_);
  }
  std::uint64_t map(char*, std::size_t) override { return 0; }
  void unmap(char*, std::size_t, std::uint64_t) noexcept override {}

 private:
  std::shared_ptr<MemoryResource> upstream_;
  Stream stream_;
};

}  // namespace

std::unique_ptr<SegmentSource> make_resource_source(std::shared_ptr<MemoryResource> upstream) {
  return std::make_unique<ResourceSource>(std::move(upstream));
}

}  // namespace burin::detail
