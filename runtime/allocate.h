#pragma once
// Private: where every new tensor's memory is asked for.

#include <burin/runtime/memory/memory_resource.h>
#include <burin/runtime/tensor.h>

#include <memory>
#include <string_view>

namespace burin {

/// An uninitialised tensor of this dtype, shape and strides, which are dense, on the resource's device.
/// Throws ShapeError, which starts with `op`, if its bytes cannot be counted, and OutOfMemory.
Tensor allocate(std::string_view op, std::shared_ptr<MemoryResource> resource, StreamView stream,
                const TensorSpec& spec);
/// The same in pageable host memory.
Tensor allocate_host(std::string_view op, const TensorSpec& spec);

}  // namespace burin
