#pragma once
// Private: formats with fmt, so no public header includes it.

#include <burin/runtime/device.h>
#include <burin/runtime/error.h>
#include <burin/runtime/shape.h>

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

/// Throws ErrorType with a formatted message unless the condition holds. The arguments are evaluated only on
/// failure.
#define BURIN_CHECK(condition, ErrorType, ...)   \
  do {                                           \
    if (!(condition)) [[unlikely]]               \
      throw ErrorType(fmt::format(__VA_ARGS__)); \
  } while (false)

namespace burin {
/// Throws DeviceError, which starts with `op`, unless the device is the CPU or a GPU that can be used here.
void require_device(std::string_view op, Device device);
}  // namespace burin

template <>
struct fmt::formatter<burin::Shape> : fmt::formatter<std::string> {
  template <class FormatContext>
  auto format(const burin::Shape& shape, FormatContext& context) const {
    return fmt::formatter<std::string>::format(burin::to_string(shape), context);
  }
};
