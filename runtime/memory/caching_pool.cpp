#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/memory/caching_pool.h>
#include <burin/runtime/memory/pool.h>

#include <utility>

namespace burin {
namespace {

std::unique_ptr<detail::SegmentSource> source_of(Device device) {
  require_device("caching_pool", device);
  if constexpr (kHasCuda) {
    if (device.is_cuda()) {
      if (auto source = detail::make_virtual_memory_source(device.index)) return source;
      return detail::make_resource_source(make_cuda_resource(device.index));
    }
  }
  return detail::make_resource_source(make_cpu_resource());
}

std::unique_ptr<detail::SegmentSource> source_of(std::shared_ptr<MemoryResource> upstream) {
  BURIN_CHECK(upstream, Error, "caching_pool: the upstream resource is null");
  return detail::make_resource_source(std::move(upstream));
}

}  // namespace

CachingPool::CachingPool(Device device, CachingPoolOptions options)
    : pool_(std::make_shared<detail::Pool>(source_of(device), options)) {}

CachingPool::CachingPool(std::shared_ptr<MemoryResource> upstream, CachingPoolOptions options)
    : pool_(std::make_shared<detail::Pool>(source_of(std::move(upstream)), options)) {}

CachingPool::~CachingPool() = default;

void* CachingPool::allocate(std::size_t bytes, StreamView stream) { return pool_->allocate(bytes, stream); }

void CachingPool::deallocate(void* data, std::size_t, StreamView stream) noexcept {
  pool_->deallocate(data, stream);
}

void CachingPool::deallocate_after(void* data, std::size_t bytes, StreamView stream,
                                   std::span<const StreamView> users) noexcept {
  if (!pool_->deallocate_after(data, stream, users))
    MemoryResource::deallocate_after(data, bytes, stream, users);
}

Device CachingPool::device() const noexcept { return pool_->source().device(); }
MemoryKind CachingPool::kind() const noexcept { return pool_->source().kind(); }
PoolStats CachingPool::stats() const { return pool_->stats(); }
void CachingPool::reset_peaks() { pool_->reset_peaks(); }
PoolSnapshot CachingPool::snapshot() const { return pool_->snapshot(); }
std::vector<PoolEvent> CachingPool::timeline() const { return pool_->timeline(); }
std::size_t CachingPool::trim(std::size_t to_bytes) { return pool_->trim(to_bytes); }
std::size_t CachingPool::reserved_bytes() const noexcept { return pool_->reserved_bytes(); }
std::size_t CachingPool::limit_bytes() const noexcept { return pool_->limit_bytes(); }
void CachingPool::set_limit_bytes(std::size_t bytes) noexcept { pool_->set_limit_bytes(bytes); }
GraphPool CachingPool::make_graph_pool() const { return GraphPool(pool_->make_arena()); }
bool CachingPool::made(const GraphPool& pool) const noexcept { return pool && pool.arena()->pool == pool_; }

std::shared_ptr<CachingPool> make_pinned_pool(CachingPoolOptions options) {
  return std::make_shared<CachingPool>(make_pinned_resource(), options);
}

}  // namespace burin
