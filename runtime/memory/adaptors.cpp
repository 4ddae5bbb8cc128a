#include <burin/runtime/check.h>
#include <burin/runtime/memory/adaptors.h>

#include <thread>
#include <utility>

namespace burin {
namespace {

/// Call n's number in [0, 1): the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
double fraction(std::uint64_t seed, std::uint64_t n) {
  std::uint64_t z = seed + n * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

}  // namespace

ResourceAdaptor::ResourceAdaptor(const char* name, std::shared_ptr<MemoryResource> upstream)
    : upstream_(std::move(upstream)) {
  BURIN_CHECK(upstream_, Error, "{}: the upstream resource must not be null", name);
}

void ResourceAdaptor::deallocate(void* data, std::size_t bytes, StreamView stream) noexcept {
  upstream_->deallocate(data, bytes, stream);
}

void ResourceAdaptor::deallocate_after(void* data, std::size_t bytes, StreamView stream,
                                       std::span<const StreamView> users) noexcept {
  upstream_->deallocate_after(data, bytes, stream, users);
}

CountingResource::CountingResource(std::shared_ptr<MemoryResource> upstream)
    : ResourceAdaptor("counting_resource", std::move(upstream)) {}

void* CountingResource::allocate(std::size_t bytes, StreamView stream) {
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  try {
    data = upstream().allocate(bytes, stream);
  } catch (...) {
    ++failures_;
    throw;
  }
  ++live_blocks_;
  ++allocations_;
  total_bytes_ += bytes;
  const std::size_t live = live_bytes_ += bytes;
  std::size_t peak = peak_bytes_;
  while (live > peak && !peak_bytes_.compare_exchange_weak(peak, live)) {
  }
  return data;
}

// Before the upstream has it: another thread may be given the memory at once, and it must not count twice.
void CountingResource::forget(std::size_t bytes) noexcept {
  --live_blocks_;
  live_bytes_ -= bytes;
}

void CountingResource::deallocate(void* data, std::size_t bytes, StreamView stream) noexcept {
  if (!data) return;
  forget(bytes);
  upstream().deallocate(data, bytes, stream);
}

void CountingResource::deallocate_after(void* data, std::size_t bytes, StreamView stream,
                                        std::span<const StreamView> users) noexcept {
  if (!data) return;
  forget(bytes);
  upstream().deallocate_after(data, bytes, stream, users);
}

CountingResource::Counts CountingResource::counts() const noexcept {
  return {.live_blocks = live_blocks_,
          .live_bytes = live_bytes_,
          .peak_bytes = peak_bytes_,
          .allocations = allocations_,
          .total_bytes = total_bytes_,
          .failures = failures_};
}

LimitingResource::LimitingResource(std::shared_ptr<MemoryResource> upstream, std::size_t limit_bytes)
    : ResourceAdaptor("limiting_resource", std::move(upstream)), limit_bytes_(limit_bytes) {}

void* LimitingResource::allocate(std::size_t bytes, StreamView stream) {
  if (bytes == 0) return nullptr;
  std::size_t live = live_bytes_;
  do {
    if (bytes > limit_bytes_ - live)
      throw OutOfMemory(fmt::format("{} bytes are more than the limit of {} bytes leaves: {} are live", bytes,
                                    limit_bytes_, live),
                        {.requested = bytes,
                         .allocated = live,
                         .reserved = live,
                         .free = limit_bytes_ - live,
                         .total = limit_bytes_});
  } while (!live_bytes_.compare_exchange_weak(live, live + bytes));
  try {
    return upstream().allocate(bytes, stream);
  } catch (...) {
    live_bytes_ -= bytes;
    throw;
  }
}

void LimitingResource::deallocate(void* data, std::size_t bytes, StreamView stream) noexcept {
  if (!data) return;
  upstream().deallocate(data, bytes, stream);
  live_bytes_ -= bytes;
}

void LimitingResource::deallocate_after(void* data, std::size_t bytes, StreamView stream,
                                        std::span<const StreamView> users) noexcept {
  if (!data) return;
  upstream().deallocate_after(data, bytes, stream, users);
  live_bytes_ -= bytes;
}

FailingResource::FailingResource(std::shared_ptr<MemoryResource> upstream, FailingOptions options)
    : ResourceAdaptor("failing_resource", std::move(upstream)) {
  arm(options);
}

void FailingResource::arm(FailingOptions options) {
  BURIN_CHECK(options.probability >= 0 && options.probability <= 1, Error,
              "failing_resource: the probability ({}) must be in [0, 1]", options.probability);
  const std::lock_guard lock(mutex_);
  options_ = options;
  calls_ = 0;
  fired_ = false;
}

void FailingResource::disarm() noexcept {
  const std::lock_guard lock(mutex_);
  options_ = {};
}

bool FailingResource::fired() const noexcept {
  const std::lock_guard lock(mutex_);
  return fired_;
}

void* FailingResource::allocate(std::size_t bytes, StreamView stream) {
  if (bytes == 0) return nullptr;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t call = ++calls_;
    if (call == options_.nth || (options_.every_nth > 0 && call % options_.every_nth == 0) ||
        fraction(options_.seed, call) < options_.probability) {
      fired_ = true;
      throw OutOfMemory(fmt::format("allocation {}, of {} bytes, was made to fail", call, bytes),
                        {.requested = bytes});
    }
  }
  return upstream().allocate(bytes, stream);
}

DelayingResource::DelayingResource(std::shared_ptr<MemoryResource> upstream,
                                   std::chrono::microseconds shortest, std::chrono::microseconds longest,
                                   std::uint64_t seed)
    : ResourceAdaptor("delaying_resource", std::move(upstream)),
      shortest_(shortest),
      longest_(longest),
      seed_(seed) {
  BURIN_CHECK(shortest.count() >= 0 && shortest <= longest, Error,
              "delaying_resource: the times ({} to {} us) must not be negative, nor the longest below the "
              "shortest",
              shortest.count(), longest.count());
}

void DelayingResource::sleep() noexcept {
  const double span = static_cast<double>((longest_ - shortest_).count() + 1);
  const auto extra = static_cast<std::int64_t>(fraction(seed_, ++calls_) * span);
  std::this_thread::sleep_for(shortest_ + std::chrono::microseconds(extra));
}

void* DelayingResource::allocate(std::size_t bytes, StreamView stream) {
  if (bytes == 0) return nullptr;
  sleep();
  return upstream().allocate(bytes, stream);
}

void DelayingResource::deallocate(void* data, std::size_t bytes, StreamView stream) noexcept {
  if (!data) return;
  sleep();
  upstream().deallocate(data, bytes, stream);
}

void DelayingResource::deallocate_after(void* data, std::size_t bytes, StreamView stream,
                                        std::span<const StreamView> users) noexcept {
  if (!data) return;
  sleep();
  upstream().deallocate_after(data, bytes, stream, users);
}

CallbackResource::CallbackResource(Device device, MemoryKind kind, AllocatorCallbacks callbacks)
    : device_(device), kind_(kind), callbacks_(std::move(callbacks)) {
  require_device("callback_resource", device);
  BURIN_CHECK(
      (kind == MemoryKind::device) == device.is_cuda(), Error,
      "callback_resource: device memory must be of a GPU, and other kinds of the CPU; the device is {}",
      name(device));
  BURIN_CHECK(callbacks_.allocate && callbacks_.deallocate, Error,
              "callback_resource: both callbacks must be given");
}

void* CallbackResource::allocate(std::size_t bytes, StreamView stream) {
  if (bytes == 0) return nullptr;
  void* data = callbacks_.allocate(bytes, kAlignment, stream.native_handle());
  if (!data)
    throw OutOfMemory(fmt::format("{} bytes could not be allocated by the program's callback", bytes),
                      {.requested = bytes});
  if (reinterpret_cast<std::uintptr_t>(data) % kAlignment != 0) {
    deallocate(data, bytes, stream);
    throw Error(fmt::format("callback_resource: the address ({}) must be a multiple of {}", fmt::ptr(data),
                            kAlignment));
  }
  return data;
}

void CallbackResource::deallocate(void* data, std::size_t bytes, StreamView stream) noexcept {
  if (!data) return;
  try {
    callbacks_.deallocate(data, bytes, stream.native_handle());
  } catch (...) {  // there is nobody to tell
  }
}

}  // namespace burin
