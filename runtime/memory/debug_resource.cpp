#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/event.h>
#include <burin/runtime/memory/debug_resource.h>
#include <burin/runtime/stream_state.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace burin {
namespace {

constexpr unsigned char kNew = 0xFF;
constexpr unsigned char kFreed = 0xDD;
constexpr unsigned char kRedZone = 0xBD;

bool is_capturing(StreamView stream) { return detail::capture_of(stream) != 0; }

/// As StreamView::synchronize, but frees nothing that the stream retains: that could be from here.
void wait_for(StreamView stream) {
  if constexpr (kHasCuda)
    if (stream.device().is_cuda()) cuda::synchronize_stream(stream.device().index, stream.native_handle());
}

std::size_t rounded_red_zone(std::size_t bytes) {
  constexpr std::size_t kAlignment = MemoryResource::kAlignment;
  BURIN_CHECK(bytes <= std::numeric_limits<std::size_t>::max() / 4, Error,
              "debug_resource: red zones of {} bytes are too large", bytes);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

DebugResource::DebugResource(std::shared_ptr<MemoryResource> upstream, DebugOptions options)
    : ResourceAdaptor("debug_resource", std::move(upstream)),
      poison_(options.poison),
      red_zone_bytes_(rounded_red_zone(options.red_zone_bytes)) {}

void DebugResource::fill(void* data, unsigned char value, std::size_t bytes, StreamView stream) const {
  if (kind() != MemoryKind::device)
    std::memset(data, value, bytes);
  else if constexpr (kHasCuda)
    cuda::fill(stream, DType::u8, data, static_cast<std::int64_t>(bytes), value);
}

void* DebugResource::allocate(std::size_t bytes, StreamView stream) {
  if (bytes == 0) return nullptr;
  void* outer_data = nullptr;
  try {
    if (bytes > std::numeric_limits<std::size_t>::max() - 2 * red_zone_bytes_)
      throw OutOfMemory("no address space is that large", {.requested = bytes});
    outer_data = upstream().allocate(outer_bytes(bytes), stream);
  } catch (const OutOfMemory& error) {
    OutOfMemory::Figures figures = error.figures();
    figures.requested = bytes;
    throw OutOfMemory(
        fmt::format("{} bytes with red zones of {} bytes: {}", bytes, red_zone_bytes_, error.what()),
        figures);
  }
  void* data = static_cast<unsigned char*>(outer_data) + red_zone_bytes_;
  try {
    set_up(data, bytes, stream);
  } catch (...) {
    upstream().deallocate(outer_data, outer_bytes(bytes), stream);
    throw;
  }
  return data;
}

void DebugResource::set_up(void* data, std::size_t bytes, StreamView stream) {
  const bool capturing = is_capturing(stream);
  const bool by_host = kind() != MemoryKind::device;
  if (by_host && !capturing) wait_for(stream);
  if (poison_ && !(by_host && capturing)) fill(data, kNew, bytes, stream);
  Block block{bytes, red_zone_bytes_ > 0 && !capturing, stream, stream.share()};
  if (block.has_red_zones) {
    fill(outer(data), kRedZone, red_zone_bytes_, stream);
    fill(static_cast<unsigned char*>(data) + bytes, kRedZone, red_zone_bytes_, stream);
  }
  const std::lock_guard lock(mutex_);
  live_.insert_or_assign(data, std::move(block));
}

bool DebugResource::take(void* data, std::size_t bytes, Block& block) noexcept {
  if (!data) return false;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = live_.find(data); found != live_.end()) {
      block = std::move(found->second);
      live_.erase(found);
    }
  }
  if (block.bytes == 0)
    record({Violation::Kind::invalid_free, data, bytes, 0, bytes});
  else if (block.bytes != bytes)
    record({Violation::Kind::wrong_bytes, data, block.bytes, 0, bytes});
  return block.bytes > 0;
}

void DebugResource::retire(void* data, const Block& block, StreamView stream,
                           std::span<const StreamView> users) noexcept {
  try {
    if (is_capturing(stream) || std::any_of(users.begin(), users.end(), is_capturing)) return;
    for (const StreamView user : users) {
      Event used(user.device(), {.timing = false});
      used.record(user);
      stream.wait(used);
    }
    if (block.has_red_zones)
      if (const std::optional<Violation> broken = find_broken(data, block, stream)) record(*broken);
    if (!poison_) return;
    if (kind() != MemoryKind::device) wait_for(stream);
    fill(data, kFreed, block.bytes, stream);
  } catch (...) {  // the device is lost, or there is no memory to look with: the block is only freed
  }
}

void DebugResource::deallocate(void* data, std::size_t bytes, StreamView stream) noexcept {
  Block block;
  if (!take(data, bytes, block)) return;
  retire(data, block, stream, {});
  upstream().deallocate(outer(data), outer_bytes(block.bytes), stream);
}

void DebugResource::deallocate_after(void* data, std::size_t bytes, StreamView stream,
                                     std::span<const StreamView> users) noexcept {
  Block block;
  if (!take(data, bytes, block)) return;
  retire(data, block, stream, users);
  upstream().deallocate_after(outer(data), outer_bytes(block.bytes), stream, users);
}

std::optional<DebugResource::Violation> DebugResource::find_broken(void* data, const Block& block,
                                                                   StreamView stream) const {
  const auto* before = static_cast<const unsigned char*>(outer(data));
  const auto* after = static_cast<const unsigned char*>(data) + block.bytes;
  std::vector<unsigned char> copies;
  if (kind() == MemoryKind::device) {
    copies.resize(2 * red_zone_bytes_);
    if constexpr (kHasCuda) {
      cuda::copy_bytes(stream, copies.data(), before, red_zone_bytes_);
      cuda::copy_bytes(stream, copies.data() + red_zone_bytes_, after, red_zone_bytes_);
    }
    before = copies.data();
    after = before + red_zone_bytes_;
  }
  wait_for(stream);
  for (std::size_t i = 0; i < red_zone_bytes_; ++i) {
    const auto distance = static_cast<std::int64_t>(i);
    if (before[red_zone_bytes_ - 1 - i] != kRedZone)
      return Violation{Violation::Kind::written_before, data, block.bytes, -1 - distance};
    if (after[i] != kRedZone)
      return Violation{Violation::Kind::written_after, data, block.bytes,
                       static_cast<std::int64_t>(block.bytes) + distance};
  }
  return std::nullopt;
}

void DebugResource::record(const Violation& violation) noexcept {
  const std::lock_guard lock(mutex_);
  if (violations_.size() == kMostViolations) return;
  try {
    violations_.push_back(violation);
  } catch (...) {  // no memory for it
  }
}

std::vector<DebugResource::Violation> DebugResource::violations() const {
  const std::lock_guard lock(mutex_);
  return violations_;
}

void DebugResource::check() const {
  synchronize(device());
  const std::lock_guard lock(mutex_);
  if (!violations_.empty()) throw Error(to_string(violations_.front()));
  for (const auto& [data, block] : live_)
    if (block.has_red_zones)
      if (const std::optional<Violation> broken = find_broken(data, block, block.stream))
        throw Error(to_string(*broken));
}

std::string to_string(const DebugResource::Violation& violation) {
  using Kind = DebugResource::Violation::Kind;
  std::string text = fmt::format("block {} of {} bytes: ", fmt::ptr(violation.data), violation.bytes);
  switch (violation.kind) {
    case Kind::written_before:
      return text + fmt::format("written before its start, at offset {}", violation.offset);
    case Kind::written_after:
      return text + fmt::format("written after its end, at offset {}", violation.offset);
    case Kind::invalid_free: return text + "freed, but not live: never allocated here, or freed already";
    case Kind::wrong_bytes: return text + fmt::format("freed as one of {} bytes", violation.given);
  }
  return text;
}

}  // namespace burin
