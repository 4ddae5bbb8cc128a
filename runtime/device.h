#pragma once

#include <burin/runtime/export.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace burin {

enum class DeviceType : std::uint8_t { cpu, cuda };

/// A place where tensors live and operators run: `Device::cpu()` or `Device::cuda(index)`.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  static constexpr Device cpu() { return {DeviceType::cpu, 0}; }
  static constexpr Device cuda(int index = 0) { return {DeviceType::cuda, index}; }
  /// Reads "cpu", "cuda" or "cuda:N"; throws DeviceError for anything else.
  BURIN_API static Device parse(std::string_view text);

  constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  constexpr bool is_cuda() const { return type == DeviceType::cuda; }
  constexpr bool operator==(const Device&) const = default;
};

/// "cpu", "cuda:0".
BURIN_API std::string name(Device device);

/// What a machine offers for CUDA. `count` is 0 where CUDA cannot be used, and `reason` then says why: this
/// Burin was built without CUDA, no NVIDIA driver is installed, every GPU is older than what this Burin was
/// built for, CUDA was used before fork(), ...
struct CudaAvailability {
  int count = 0;
  std::string reason;
};
BURIN_API CudaAvailability cuda_availability();

/// A line for people: the processor's or GPU's model name.
BURIN_API std::string description(Device device);

/// Waits until all work queued on the device has finished. Returns at once on the CPU. Throws CudaError,
/// and DeviceError if the device cannot be used.
BURIN_API void synchronize(Device device);

}  // namespace burin
