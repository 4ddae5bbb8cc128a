// Virtual memory of the fake device: address ranges are reserved without access, and memory is a piece of a
// file that is mapped there, so that it keeps its content from one mapping to the next.

#include <support/fake_cuda_state.h>

#include <algorithm>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

namespace burin::test {
namespace {

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

bool is_of_device(const FakeState& state, const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id >= 0 &&
         location.id < state.options.devices;
}

bool is_multiple(const FakeState& state, std::size_t value) { return value % state.options.granularity == 0; }

cudaError_t reserve(FakeState& state, CUdeviceptr* out, std::size_t bytes, std::size_t alignment) {
  alignment = std::max(alignment, state.options.granularity);
  if (!out || bytes == 0 || !is_multiple(state, bytes) || (alignment & (alignment - 1)) != 0)
    return cudaErrorInvalidValue;
  for (auto& [address, reservation] : state.reservations) {
    if (reservation.live || reservation.bytes != bytes || address % alignment != 0) continue;
    reservation.live = true;
    *out = address;
    return cudaSuccess;
  }
  void* space =
      mmap(nullptr, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return cudaErrorMemoryAllocation;
  const auto begin = reinterpret_cast<std::uintptr_t>(space);
  const std::uintptr_t aligned = (begin + alignment - 1) / alignment * alignment;
  if (aligned > begin) munmap(space, aligned - begin);
  if (begin + alignment > aligned) munmap(at(aligned + bytes), begin + alignment - aligned);
  state.reservations[aligned] = {.bytes = bytes, .live = true};
  *out = aligned;
  return cudaSuccess;
}

/// The mapped ranges that make up [begin, begin + bytes) exactly; empty if they do not.
std::vector<std::uintptr_t> mappings(const FakeState& state, std::uintptr_t begin, std::size_t bytes) {
  std::vector<std::uintptr_t> found;
  std::uintptr_t address = begin;
  while (address < begin + bytes) {
    const auto range = state.ranges.find(address);
    if (range == state.ranges.end() || !range->second.physical) return {};
    found.push_back(address);
    address = range->second.end;
  }
  return address == begin + bytes ? found : std::vector<std::uintptr_t>{};
}

bool is_partly_mapped(const FakeState& state, std::uintptr_t begin, std::size_t bytes) {
  const auto next = state.ranges.lower_bound(begin + bytes);
  return next != state.ranges.begin() && std::prev(next)->second.end > begin;
}

cudaError_t free_reservation(FakeState& state, std::uintptr_t address, std::size_t bytes) {
  const auto found = state.reservations.find(address);
  if (found == state.reservations.end() || !found->second.live || found->second.bytes != bytes ||
      is_partly_mapped(state, address, bytes)) {
    state.violation(fmt::format("cuMemAddressFree: {} bytes at {} are no reservation, or still mapped", bytes,
                                at(address)));
    return cudaErrorInvalidValue;
  }
  found->second.live = false;  // the addresses stay out of use, so that work that uses them is noticed
  return cudaSuccess;
}

cudaError_t create(FakeState& state, CUmemGenericAllocationHandle* out, std::size_t bytes,
                   const CUmemAllocationProp* properties) {
  if (!out || !properties || bytes == 0 || !is_multiple(state, bytes) ||
      properties->type != CU_MEM_ALLOCATION_TYPE_PINNED || !is_of_device(state, properties->location))
    return cudaErrorInvalidValue;
  const int device = properties->location.id;
  std::size_t& used = state.used_bytes[static_cast<std::size_t>(device)];
  if (bytes > state.options.total_bytes - used) return cudaErrorMemoryAllocation;
  if (ftruncate(state.physical_file, static_cast<off_t>(state.physical_end + bytes)) != 0)
    return cudaErrorMemoryAllocation;
  used += bytes;
  auto physical = std::make_shared<FakePhysical>();
  physical->bytes = bytes;
  physical->offset = state.physical_end;
  physical->device = device;
  state.physical_end += bytes;
  *out = state.next_handle += 0x10;
  state.physical[*out] = std::move(physical);
  return cudaSuccess;
}

void give_back_unused(FakeState& state, const FakePhysical& physical) {
  if (!physical.released || physical.mappings > 0) return;
  state.used_bytes[static_cast<std::size_t>(physical.device)] -= physical.bytes;
  static_cast<void>(fallocate(state.physical_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              static_cast<off_t>(physical.offset), static_cast<off_t>(physical.bytes)));
}

cudaError_t release(FakeState& state, CUmemGenericAllocationHandle handle) {
  const auto found = state.physical.find(handle);
  if (found == state.physical.end()) {
    state.violation(fmt::format("cuMemRelease: handle {} was released or never made", handle));
    return cudaErrorInvalidValue;
  }
  found->second->released = true;
  give_back_unused(state, *found->second);
  state.physical.erase(found);
  return cudaSuccess;
}

cudaError_t map(FakeState& state, std::uintptr_t address, std::size_t bytes, std::size_t offset,
                CUmemGenericAllocationHandle handle) {
  const auto physical = state.physical.find(handle);
  auto reservation = state.reservations.upper_bound(address);
  if (physical == state.physical.end() || reservation == state.reservations.begin() || bytes == 0 ||
      !is_multiple(state, address) || !is_multiple(state, bytes))
    return cudaErrorInvalidValue;
  if (offset != 0 || bytes != physical->second->bytes) return cudaErrorNotSupported;
  --reservation;
  if (!reservation->second.live || address + bytes > reservation->first + reservation->second.bytes ||
      is_partly_mapped(state, address, bytes))
    return cudaErrorInvalidValue;
  if (mmap(at(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, state.physical_file,
           static_cast<off_t>(physical->second->offset)) == MAP_FAILED)
    return cudaErrorMemoryAllocation;
  ++physical->second->mappings;
  state.ranges[address] = {.end = address + bytes,
                           .counted_bytes = 0,  // counted by its handle
                           .kind = FakeMemory::device,
                           .device = physical->second->device,
                           .accessible = false,
                           .birth = ++state.serial,
                           .physical = physical->second};
  return cudaSuccess;
}

cudaError_t unmap(FakeState& state, std::uintptr_t begin, std::size_t bytes) {
  const std::vector<std::uintptr_t> found = mappings(state, begin, bytes);
  if (found.empty()) {
    state.violation(fmt::format("cuMemUnmap: {} bytes at {} are not whole mappings", bytes, at(begin)));
    return cudaErrorInvalidValue;
  }
  mmap(at(begin), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  for (const std::uintptr_t address : found) {
    const std::shared_ptr<FakePhysical> physical = state.ranges[address].physical;
    state.ranges.erase(address);
    --physical->mappings;
    give_back_unused(state, *physical);
  }
  return cudaSuccess;
}

cudaError_t set_access(FakeState& state, std::uintptr_t begin, std::size_t bytes,
                       const CUmemAccessDesc* descriptions, std::size_t count) {
  const std::vector<std::uintptr_t> found = mappings(state, begin, bytes);
  if (found.empty() || !descriptions || count == 0) return cudaErrorInvalidValue;
  for (std::size_t i = 0; i < count; ++i)
    if (!is_of_device(state, descriptions[i].location) ||
        descriptions[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return cudaErrorInvalidValue;
  if (mprotect(at(begin), bytes, PROT_READ | PROT_WRITE) != 0) return cudaErrorMemoryAllocation;
  for (const std::uintptr_t address : found) state.ranges[address].accessible = true;
  return cudaSuccess;
}

template <class Body>
cudaError_t virtual_call(const char* function, Body&& body, FakeCall kind = FakeCall::action) {
  return fake_call(
      function,
      [&](FakeState& state, FakeThread&) {
        return state.options.virtual_memory ? body(state) : cudaErrorNotSupported;
      },
      kind);
}

}  // namespace

void add_fake_virtual_memory(cuda::CudaApi& table) {
  table.cuMemGetAllocationGranularity = [](std::size_t* bytes, const CUmemAllocationProp* properties,
                                           CUmemAllocationGranularity_flags) {
    return virtual_call("cuMemGetAllocationGranularity", [&](FakeState& state) {
      if (!bytes || !properties || !is_of_device(state, properties->location)) return cudaErrorInvalidValue;
      *bytes = state.options.granularity;
      return cudaSuccess;
    });
  };
  table.cuMemAddressReserve = [](CUdeviceptr* out, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                                 unsigned long long) {
    return virtual_call("cuMemAddressReserve",
                        [&](FakeState& state) { return reserve(state, out, bytes, alignment); });
  };
  table.cuMemAddressFree = [](CUdeviceptr address, std::size_t bytes) {
    return virtual_call(
        "cuMemAddressFree", [&](FakeState& state) { return free_reservation(state, address, bytes); },
        FakeCall::release);
  };
  table.cuMemCreate = [](CUmemGenericAllocationHandle* out, std::size_t bytes,
                         const CUmemAllocationProp* properties, unsigned long long) {
    return virtual_call("cuMemCreate",
                        [&](FakeState& state) { return create(state, out, bytes, properties); });
  };
  table.cuMemRelease = [](CUmemGenericAllocationHandle handle) {
    return virtual_call(
        "cuMemRelease", [&](FakeState& state) { return release(state, handle); }, FakeCall::release);
  };
  table.cuMemMap = [](CUdeviceptr address, std::size_t bytes, std::size_t offset,
                      CUmemGenericAllocationHandle handle, unsigned long long) {
    return virtual_call("cuMemMap",
                        [&](FakeState& state) { return map(state, address, bytes, offset, handle); });
  };
  table.cuMemUnmap = [](CUdeviceptr address, std::size_t bytes) {
    return virtual_call(
        "cuMemUnmap", [&](FakeState& state) { return unmap(state, address, bytes); }, FakeCall::release);
  };
  table.cuMemSetAccess = [](CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* descriptions,
                            std::size_t count) {
    return virtual_call("cuMemSetAccess", [&](FakeState& state) {
      return set_access(state, address, bytes, descriptions, count);
    });
  };
}

}  // namespace burin::test
