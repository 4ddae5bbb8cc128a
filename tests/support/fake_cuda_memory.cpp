// Memory of the fake device: what cudaMalloc and cudaHostAlloc give, and what an address is.

#include <support/fake_cuda_state.h>

#include <algorithm>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

namespace burin::test {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kCounted = 512;  // what the device counts in
constexpr std::size_t kArenaBytes = std::size_t{16} << 30;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

cudaError_t allocate_checked(FakeState& state, FakeMemory kind, int device, void** data, std::size_t bytes) {
  if (!data) return cudaErrorInvalidValue;
  if (const cudaError_t code = state.unsafe_call(); code != cudaSuccess) return code;
  return state.allocate(kind, device, data, bytes);
}

}  // namespace

FakeState::FakeState(const FakeCudaOptions& options_in)
    : options(options_in),
      random(options_in.seed),
      used_bytes(static_cast<std::size_t>(options_in.devices)),
      arena_bytes(static_cast<std::size_t>(options_in.devices) * 4 * options_in.total_bytes + kArenaBytes) {
  for (int device = 0; device < options.devices; ++device) {
    auto stream = std::make_shared<FakeStream>();
    stream->device = device;
    stream->legacy = true;
    legacy.push_back(std::move(stream));
  }
  physical_file = memfd_create("fake_cuda", 0);
  void* space = mmap(nullptr, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED || physical_file < 0) throw std::bad_alloc();
  arena = reinterpret_cast<std::uintptr_t>(space);
  free_addresses[arena] = arena_bytes;
}

FakeState::~FakeState() {
  for (const std::shared_ptr<FakeStream>& stream : busy) stream->queue.clear();  // they refer to each other
  munmap(at(arena), arena_bytes);
  for (const auto& [address, reservation] : reservations) munmap(at(address), reservation.bytes);
  close(physical_file);
}

FakeMemory FakeState::kind_of(const void* data) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (const auto next = ranges.upper_bound(address); next != ranges.begin()) {
    const FakeRange& range = std::prev(next)->second;
    if (address < range.end) return range.kind;
  }
  if (address - arena < arena_bytes) return FakeMemory::invalid;
  if (const auto next = reservations.upper_bound(address); next != reservations.begin()) {
    const auto& [begin, reservation] = *std::prev(next);
    if (address - begin < reservation.bytes) return FakeMemory::invalid;
  }
  return FakeMemory::pageable;
}

std::string FakeState::complaint(const void* data, std::size_t bytes, std::uint64_t queued_at) const {
  const FakeMemory kind = kind_of(data);
  if (kind == FakeMemory::pageable || bytes == 0) return {};
  if (kind == FakeMemory::invalid) return fmt::format("{} is freed, unmapped or was never allocated", data);
  auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t end = address + bytes;
  auto range = std::prev(ranges.upper_bound(address));
  while (true) {
    if (range->second.birth > queued_at)
      return fmt::format("{} was freed or unmapped, and given out again, after the call", at(address));
    if (!range->second.accessible) return fmt::format("{} is mapped, but access is not set", at(address));
    address = range->second.end;
    if (address >= end) return {};
    const bool mapped = range->second.physical != nullptr;
    if (++range == ranges.end() || range->first != address || !mapped || !range->second.physical)
      return fmt::format("{} bytes at {} end outside their allocation", bytes, data);
  }
}

std::uintptr_t FakeState::take_addresses(std::size_t bytes) {
  const auto found = std::find_if(free_addresses.begin(), free_addresses.end(),
                                  [&](const auto& entry) { return entry.second >= bytes; });
  if (found == free_addresses.end()) return 0;
  const auto [address, held] = *found;
  free_addresses.erase(found);
  if (held > bytes) free_addresses[address + bytes] = held - bytes;
  return address;
}

void FakeState::give_addresses(std::uintptr_t address, std::size_t bytes) {
  auto next = free_addresses.upper_bound(address);
  if (next != free_addresses.end() && next->first == address + bytes) {
    bytes += next->second;
    next = free_addresses.erase(next);
  }
  if (next != free_addresses.begin() && std::prev(next)->first + std::prev(next)->second == address)
    std::prev(next)->second += bytes;
  else
    free_addresses[address] = bytes;
}

cudaError_t FakeState::allocate(FakeMemory kind, int device, void** data, std::size_t bytes) {
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  std::size_t& used =
      kind == FakeMemory::pinned ? pinned_bytes : used_bytes[static_cast<std::size_t>(device)];
  if (bytes > arena_bytes) return cudaErrorMemoryAllocation;
  const std::size_t counted = round_up(bytes, kCounted);
  if (kind == FakeMemory::device && counted > options.total_bytes - used) return cudaErrorMemoryAllocation;
  const std::size_t pages = round_up(bytes, kPage);
  const std::uintptr_t address = take_addresses(pages);
  if (address == 0) return cudaErrorMemoryAllocation;
  if (mprotect(at(address), pages, PROT_READ | PROT_WRITE) != 0) {
    give_addresses(address, pages);
    return cudaErrorMemoryAllocation;
  }
  used += counted;
  ranges[address] = {.end = address + bytes,
                     .counted_bytes = counted,
                     .kind = kind,
                     .device = device,
                     .accessible = true,
                     .birth = ++serial,
                     .physical = nullptr};
  *data = at(address);
  return cudaSuccess;
}

cudaError_t FakeState::release(FakeMemory kind, void* data, const char* function) {
  if (!data) return cudaSuccess;
  const auto found = ranges.find(reinterpret_cast<std::uintptr_t>(data));
  if (found == ranges.end() || found->second.kind != kind || found->second.physical) {
    violation(fmt::format("{}: {} was freed before or not allocated so", function, data));
    return cudaErrorInvalidValue;
  }
  for (int device = 0; device < options.devices; ++device)
    if (kind == FakeMemory::pinned || device == found->second.device) run_all(device);
  const std::size_t pages = round_up(found->second.end - found->first, kPage);
  madvise(data, pages, MADV_DONTNEED);
  mprotect(data, pages, PROT_NONE);
  give_addresses(found->first, pages);
  (kind == FakeMemory::pinned ? pinned_bytes : used_bytes[static_cast<std::size_t>(found->second.device)]) -=
      found->second.counted_bytes;
  ranges.erase(found);
  return lost;
}

void add_fake_memory(cuda::CudaApi& table) {
  table.cudaMemGetInfo = [](std::size_t* free, std::size_t* total) {
    return fake_call("cudaMemGetInfo", [&](FakeState& state, FakeThread& thread) {
      *total = state.options.total_bytes;
      *free = *total - state.used_bytes[static_cast<std::size_t>(thread.device)];
      return cudaSuccess;
    });
  };
  table.cudaMalloc = [](void** data, std::size_t bytes) {
    return fake_call("cudaMalloc", [&](FakeState& state, FakeThread& thread) {
      return allocate_checked(state, FakeMemory::device, thread.device, data, bytes);
    });
  };
  table.cudaHostAlloc = [](void** data, std::size_t bytes, unsigned) {
    return fake_call("cudaHostAlloc", [&](FakeState& state, FakeThread& thread) {
      return allocate_checked(state, FakeMemory::pinned, thread.device, data, bytes);
    });
  };
  table.cudaFree = [](void* data) {
    return fake_call(
        "cudaFree",
        [&](FakeState& state, FakeThread&) {
          const cudaError_t code = state.unsafe_call();
          return code == cudaSuccess ? state.release(FakeMemory::device, data, "cudaFree") : code;
        },
        FakeCall::release);
  };
  table.cudaFreeHost = [](void* data) {
    return fake_call(
        "cudaFreeHost",
        [&](FakeState& state, FakeThread&) {
          const cudaError_t code = state.unsafe_call();
          return code == cudaSuccess ? state.release(FakeMemory::pinned, data, "cudaFreeHost") : code;
        },
        FakeCall::release);
  };
}

}  // namespace burin::test
