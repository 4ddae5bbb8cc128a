#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/device.h>

#include <charconv>
#include <fstream>

namespace burin {

Device Device::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "cuda") return cuda(0);
  constexpr std::string_view kPrefix = "cuda:";
  if (text.starts_with(kPrefix)) {
    const char* end = text.data() + text.size();
    int index = -1;
    const auto [rest, error] = std::from_chars(text.data() + kPrefix.size(), end, index);
    if (error == std::errc() && rest == end && index >= 0) return cuda(index);
  }
  throw DeviceError(fmt::format("'{}' is not a device: expected cpu, cuda or cuda:N", text));
}

std::string name(Device device) { return device.is_cpu() ? "cpu" : fmt::format("cuda:{}", device.index); }

CudaAvailability cuda_availability() {
  if constexpr (kHasCuda) return cuda::availability();
  return {0, "this Burin was built without CUDA"};
}

void require_device(std::string_view op, Device device) {
  if (device.is_cpu()) return;
  const CudaAvailability cuda = cuda_availability();
  BURIN_CHECK(cuda.count > 0, DeviceError, "{}: {} cannot be used: {}", op, name(device), cuda.reason);
  BURIN_CHECK(device.index >= 0 && device.index < cuda.count, DeviceError,
              "{}: {} does not exist; this machine has {} CUDA device(s)", op, name(device), cuda.count);
  if constexpr (kHasCuda) {
    const std::string problem = cuda::architecture_problem(device.index);
    BURIN_CHECK(problem.empty(), DeviceError, "{}: {}", op, problem);
  }
}

std::string description(Device device) {
  if constexpr (kHasCuda)
    if (device.is_cuda()) return cuda::model_name(device.index);
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "CPU";
}

void synchronize(Device device) {
  require_device("synchronize", device);
  if constexpr (kHasCuda)
    if (device.is_cuda()) cuda::synchronize_device(device.index);
}

}  // namespace burin
