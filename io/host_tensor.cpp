#include <burin/io/host_tensor.h>
#include <burin/runtime/allocate.h>
#include <burin/runtime/check.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace burin::io {

Tensor view_host(const std::string& path, std::int64_t offset, std::span<std::byte> bytes,
                 std::shared_ptr<const void> owner, const Shape& shape, const Strides& strides, DType dtype) {
  if (dtype == DType::boolean) {
    const auto bad = std::ranges::find_if(bytes, [](std::byte b) { return b > std::byte{1}; });
    if (bad != bytes.end())
      throw FileError(path, offset + (bad - bytes.begin()), "bool",
                      fmt::format("{} is neither 0 nor 1", std::to_integer<int>(*bad)));
  }
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % item_bytes(dtype) == 0)
    return Tensor::from_blob(bytes.data(), shape, strides, dtype, Device::cpu(),
                             [owner = std::move(owner)](void*) {});
  const TensorSpec spec{dtype, shape, strides, Device::cpu()};
  Tensor copy = allocate_host("load", spec);
  if (!bytes.empty()) std::memcpy(copy.raw(), bytes.data(), bytes.size());
  return copy;
}

}  // namespace burin::io
