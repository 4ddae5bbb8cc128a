#include <burin/runtime/check.h>
#include <burin/runtime/dispatch.h>

namespace burin {

void throw_dtype_not_supported(std::string_view op, DType dtype) {
  throw DTypeError(fmt::format("{}: {} is not supported", op, name(dtype)));
}

}  // namespace burin
