#include <burin/io/host_tensor.h>
#include <burin/runtime/check.h>
#include <burin/runtime/memory/memory_resource.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace burin::io {

Tensor empty_host(const Shape& shape, DType dtype) {
  std::size_t bytes = 0;
  BURIN_CHECK(!__builtin_mul_overflow(static_cast<std::size_t>(shape.count()), item_bytes(dtype), &bytes),
              ShapeError, "a tensor of {} {} is too large", name(dtype), shape);
  return Tensor(Buffer::allocate(make_cpu_resource(), bytes, Stream(Device::cpu())), dtype, shape,
                contiguous_strides(shape));
}

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
  Tensor copy = empty_host(shape, dtype);
  if (!bytes.empty()) std::memcpy(copy.raw(), bytes.data(), bytes.size());
  return Tensor(copy.buffer(), dtype, shape, strides);
}

}  // namespace burin::io
