#include <burin/graph/capture_memory.h>

#include <algorithm>
#include <utility>

namespace burin::detail {

CaptureMemory::CaptureMemory(std::shared_ptr<MemoryResource> upstream, StreamView stream)
    : ResourceAdaptor("CaptureMemory", std::move(upstream)), stream_(stream) {}

void* CaptureMemory::allocate(std::size_t bytes, StreamView stream) {
  if (bytes == 0) return nullptr;
  if (stream != stream_) return ResourceAdaptor::upstream().allocate(bytes, stream);
  {
    const std::lock_guard lock(mutex_);
    const auto served = served_.find(requests_.size());
    if (served != served_.end() && served->second->bytes() == bytes) {
      requests_.push_back({served->second->data(), bytes});
      return served->second->data();
    }
    requests_.reserve(requests_.size() + 1);
    live_.reserve(live_.size() + 1);
  }
  void* data = ResourceAdaptor::upstream().allocate(bytes, stream);
  try {
    const std::lock_guard lock(mutex_);
    live_.emplace(data, bytes);
    requests_.push_back({data, bytes});
    peak_bytes_ = std::max(peak_bytes_, live_bytes_ += bytes);
  } catch (...) {
    forget(data);
    ResourceAdaptor::deallocate(data, bytes, stream);
    throw;
  }
  return data;
}

void CaptureMemory::deallocate(void* data, std::size_t bytes, StreamView stream) noexcept {
  if (is_served(data)) return;
  forget(data);
  ResourceAdaptor::deallocate(data, bytes, stream);
}

void CaptureMemory::deallocate_after(void* data, std::size_t bytes, StreamView stream,
                                     std::span<const StreamView> users) noexcept {
  if (is_served(data)) return;
  forget(data);
  ResourceAdaptor::deallocate_after(data, bytes, stream, users);
}

void CaptureMemory::restart(std::map<std::size_t, std::shared_ptr<Buffer>> served) {
  const std::lock_guard lock(mutex_);
  requests_.clear();
  served_ = std::move(served);
  live_.clear();
  live_bytes_ = 0;
  peak_bytes_ = 0;
}

std::vector<CaptureMemory::Request> CaptureMemory::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::size_t CaptureMemory::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_bytes_;
}

void CaptureMemory::forget(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto live = live_.find(data);
  if (live == live_.end()) return;
  live_bytes_ -= live->second;
  live_.erase(live);
}

bool CaptureMemory::is_served(const void* data) const noexcept {
  const std::lock_guard lock(mutex_);
  return std::any_of(served_.begin(), served_.end(),
                     [&](const auto& served) { return served.second->data() == data; });
}

}  // namespace burin::detail
