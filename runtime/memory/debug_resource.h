#pragma once

#include <burin/runtime/export.h>
#include <burin/runtime/memory/adaptors.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace burin {

struct DebugOptions {
  bool poison = true;                // fill new and freed memory
  std::size_t red_zone_bytes = 256;  // on either side of a block; rounded up to a multiple of kAlignment
};

/// Finds uses of memory that nobody wrote, that is freed already, or that lies beside a block.
///
/// - Poison: new memory is filled with 0xFF bytes (NaN in every floating type), freed memory with 0xDD, in
///   the order of the stream.
/// - Red zones: bytes before and after each block that must keep their value. They are looked at when the
///   block is freed, which waits for the stream, and by check().
///
/// Memory that the CPU reaches is filled by the caller, who waits for a CUDA stream first. While a stream is
/// being captured nothing is waited for: what is allocated on it gets its poison at each replay and no red
/// zone is looked at, and what is freed on it is left as it is.
class BURIN_API DebugResource final : public ResourceAdaptor {
 public:
  struct Violation {
    enum class Kind : std::uint8_t {
      written_before,  // the block
      written_after,   // the block
      invalid_free,    // of what was not allocated here, or is freed already; it was left alone
      wrong_bytes,     // given to deallocate; it was freed with those it was allocated with
    };
    Kind kind = Kind::written_before;
    void* data = nullptr;     // the block
    std::size_t bytes = 0;    // as allocated; as given for invalid_free
    std::int64_t offset = 0;  // from `data`, of the overwritten byte nearest to the block
    std::size_t given = 0;    // bytes that deallocate was called with, for the last two
  };
  static constexpr std::size_t kMostViolations = 1000;  // that are kept, the first

  /// Throws Error if `upstream` is null or red zones cannot be that large.
  explicit DebugResource(std::shared_ptr<MemoryResource> upstream, DebugOptions options = {});

  void* allocate(std::size_t bytes, StreamView stream) override;
  void deallocate(void* data, std::size_t bytes, StreamView stream) noexcept override;
  void deallocate_after(void* data, std::size_t bytes, StreamView stream,
                        std::span<const StreamView> users) noexcept override;

  /// What was found when blocks were freed.
  std::vector<Violation> violations() const;
  /// Waits for the device, looks at every live block, and throws Error with the first of violations() or, if
  /// there are none, the first found now. Throws CudaError if the device is lost. Not while a capture is
  /// under way.
  void check() const;

 private:
  struct Block {
    std::size_t bytes = 0;
    bool has_red_zones = false;
    StreamView stream;
    std::shared_ptr<detail::StreamState> stream_owner;  // for check()
  };
  /// Fills a new block and its red zones, and notes it as live.
  void set_up(void* data, std::size_t bytes, StreamView stream);
  /// No longer live; false if it was not.
  bool take(void* data, std::size_t bytes, Block& block) noexcept;
  /// Looks at the red zones of a block that is no longer live, and poisons it.
  void retire(void* data, const Block& block, StreamView stream, std::span<const StreamView> users) noexcept;
  std::optional<Violation> find_broken(void* data, const Block& block, StreamView stream) const;
  void record(const Violation& violation) noexcept;
  void fill(void* data, unsigned char value, std::size_t bytes, StreamView stream) const;
  void* outer(void* data) const noexcept { return static_cast<unsigned char*>(data) - red_zone_bytes_; }
  std::size_t outer_bytes(std::size_t bytes) const noexcept { return bytes + 2 * red_zone_bytes_; }

  const bool poison_;
  const std::size_t red_zone_bytes_;
  mutable std::mutex mutex_;  // guards what follows
  std::unordered_map<void*, Block> live_;
  std::vector<Violation> violations_;
};

/// "block 0x7f1200000100 of 100 bytes: written after its end, at offset 103".
BURIN_API std::string to_string(const DebugResource::Violation& violation);

}  // namespace burin
