#pragma once

#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

#include <cstdint>
#include <string_view>

namespace burin::nn {

/// How Module::init fills a parameter. he_uniform: +-sqrt(6 / fan_in) (He et al. 2015), where fan_in is the
/// product of all extents but the first.
enum class Init : std::uint8_t { he_uniform, zeros, ones };

/// A tensor of a module: its shape is known from the start, its value once it was loaded or initialised. A
/// default-made Parameter is absent (a convolution without bias): it is in no list and has no value, which
/// operators take as "none".
///
/// Values are replaced, never written in place, so that copies of a module share memory and still are
/// independent.
class BURIN_API Parameter {
 public:
  Parameter() = default;
  explicit Parameter(const Shape& shape, Init init = Init::he_uniform, bool is_buffer = false)
      : shape_(shape), init_(init), present_(true), is_buffer_(is_buffer) {}

  bool present() const noexcept { return present_; }
  const Shape& shape() const noexcept { return shape_; }
  Init init() const noexcept { return init_; }
  /// Kept but not learned, as the running mean of a batch norm.
  bool is_buffer() const noexcept { return is_buffer_; }

  /// Undefined as long as there is no value.
  const Tensor& tensor() const noexcept { return tensor_; }
  /// The tensor to compute with: undefined if absent. Throws Error that names `name` if the value is missing.
  const Tensor& value(std::string_view name) const;
  /// Throws ShapeError if the tensor has another shape.
  void set(Tensor tensor);

 private:
  Shape shape_;
  Init init_ = Init::he_uniform;
  bool present_ = false;
  bool is_buffer_ = false;
  Tensor tensor_;
};

}  // namespace burin::nn
