#pragma once

#include <burin/runtime/device.h>
#include <burin/runtime/export.h>
#include <burin/runtime/memory/memory_resource.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace burin {

/// What a CachingPool did and holds.
struct PoolStats {
  struct Figure {
    std::size_t current = 0;
    std::size_t peak = 0;   // since the pool was made, or since reset_peaks()
    std::size_t total = 0;  // of all that was ever added
  };
  struct SizeClass {
    std::size_t largest_bytes = 0;  // blocks above the class before, up to this; a power of two
    std::size_t live = 0;           // blocks in use
    std::size_t total = 0;          // allocations ever
  };
  Figure allocated_bytes;               // of blocks in use, as rounded to their size class
  Figure reserved_bytes;                // held from the driver
  Figure blocks;                        // in use
  std::size_t requested_bytes = 0;      // of blocks in use, as asked for
  std::size_t largest_free_block = 0;   // bytes that one allocation could have without growing
  std::uint64_t hits = 0;               // allocations served by a block of the size and stream
  std::uint64_t splits = 0;             // allocations cut from other free memory of the stream
  std::uint64_t grows = 0;              // requests to the driver that were granted
  std::uint64_t stream_waits = 0;       // waits queued so that a stream could reuse another's memory
  std::uint64_t trims = 0;              // times memory went back to the driver
  std::uint64_t out_of_memory = 0;      // requests refused
  std::uint64_t invalid_frees = 0;      // pointers that were not allocated here; they are left alone
  std::vector<SizeClass> size_classes;  // those ever used, smallest first
};

/// Every segment and block of a CachingPool at one moment.
struct PoolSnapshot {
  enum class State : std::uint8_t {
    live,     // in use
    free,     // may be allocated
    pending,  // free, once work of other streams has finished
  };
  struct Block {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    std::size_t requested_bytes = 0;  // 0 unless live
    State state = State::free;
    std::uint64_t stream = 0;  // id of the stream it belongs to; 0: any
    std::string scope;         // the NameScope that allocated it; kept when it is freed
  };
  struct Segment {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;         // from the driver: the sum of its blocks
    std::uint64_t graph_pool = 0;  // id of the GraphPool it belongs to; 0: of eager work
    std::vector<Block> blocks;     // in order of address; gaps are addresses without memory
  };
  Device device;
  MemoryKind kind = MemoryKind::device;
  std::vector<Segment> segments;
  PoolStats stats;
};

/// One entry of a CachingPool's timeline.
struct PoolEvent {
  enum class Kind : std::uint8_t { allocate, deallocate, grow, trim, out_of_memory };
  Kind kind = Kind::allocate;
  std::uint64_t time_ns = 0;  // since the pool was made
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  std::uint64_t stream = 0;  // id
  std::string scope;
  std::size_t allocated_bytes = 0;  // after it
  std::size_t reserved_bytes = 0;   // after it
};

}  // namespace burin
