#pragma once

#include <burin/nn/parameter.h>
#include <burin/runtime/context.h>
#include <burin/runtime/copy.h>
#include <burin/runtime/error.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace burin::nn {

class Module;

/// Tensors by dotted name: "layer1.0.conv1.weight".
using StateDict = std::map<std::string, Tensor>;

/// The parameters and modules below one module, in order, by dotted name. Pointers hold until the module is
/// moved.
class BURIN_API Members {
 public:
  /// With `naming`, each module that is added learns the name it has in its parent.
  explicit Members(bool naming = false) : naming_(naming) {}

  /// Nothing is added for an absent parameter.
  Members& add(std::string_view name, Parameter& parameter);
  Members& add(std::string_view name, Module& module);

  using Parameters = std::vector<std::pair<std::string, Parameter*>>;
  using Modules = std::vector<std::pair<std::string, Module*>>;
  const Parameters& parameters() const& { return parameters_; }
  const Modules& modules() const& { return modules_; }
  Parameters parameters() && { return std::move(parameters_); }  // of a temporary: a loop may run over it
  Modules modules() && { return std::move(modules_); }

 private:
  bool naming_;
  std::string prefix_;
  Parameters parameters_;
  Modules modules_;
};

/// A state dict that does not fit a module. The message lists every name.
class BURIN_API StateDictError : public Error {
 public:
  struct Names {
    std::vector<std::string> missing;     // in the module, not in the state dict
    std::vector<std::string> unexpected;  // in the state dict, not in the module
    std::vector<std::string> mismatched;  // in both, but of another shape or not floating
  };
  StateDictError(const std::string& what, Names names) : Error(what), names_(std::move(names)) {}
  const Names& names() const noexcept { return names_; }

 private:
  Names names_;
};

/// Parameters and a forward pass over them. Modules are values: copied, moved and held as members. One says
/// what it consists of in a single place, list(), in PyTorch's names:
///
///     class Net final : public nn::Module {
///      public:
///       Tensor forward(Context& ctx, const Tensor& x) const override {
///         return fc(ctx, relu(ctx, conv(ctx, x)).flatten(1));
///       }
///       void list(nn::Members& m) override { m.add("conv", conv).add("fc", fc); }
///       nn::Conv2d conv{1, 8, 3};
///       nn::Linear fc{8 * 26 * 26, 10};
///     };
///
/// A module whose parameters have their values is not changed by forward(), so threads may share it, each
/// with a context of its own.
class BURIN_API Module {
 public:
  virtual ~Module() = default;

  /// Throws what the operators throw, and Error for a parameter without a value.
  virtual Tensor forward(Context& ctx, const Tensor& x) const = 0;
  /// forward() within a NameScope of the module's member_name().
  Tensor operator()(Context& ctx, const Tensor& x) const;
  virtual void list(Members&) {}
  /// The name this module has in its parent ("conv1"), by which memory snapshots tell whose forward pass it
  /// was. Learnt when the parent is loaded, initialised, moved or converted, so that a forward pass of a
  /// shared module writes nothing; empty before, and for a module that is no member. Copies keep it.
  const std::string& member_name() const noexcept { return member_name_; }

  /// By dotted name, in order of declaration; undefined tensors where there is no value yet.
  std::vector<std::pair<std::string, Tensor>> named_parameters() const;
  std::vector<std::pair<std::string, Tensor>> named_buffers() const;
  /// The parameters and buffers themselves, in order of declaration; they stay where they are until the
  /// module is moved or assigned to.
  std::vector<const Parameter*> parameters() const;
  /// Every module below this one.
  std::vector<std::pair<std::string, const Module*>> named_modules() const;
  /// Parameters and buffers that have a value.
  StateDict state_dict() const;
  /// Elements of all parameters, buffers not counted.
  std::int64_t parameter_count() const;

  /// Takes every parameter and buffer from `state`, moved to the context's device, in the dtype it has there.
  /// Throws StateDictError, and changes nothing, unless names and shapes fit; `strict = false` lets missing
  /// and unexpected names pass. PyTorch's num_batches_tracked is never unexpected.
  void load_state_dict(Context& ctx, const StateDict& state, bool strict = true);
  /// The same from an opened file, such as io::Safetensors.
  template <class File>
  requires requires(const File& file) {
    { file.all() } -> std::convertible_to<StateDict>;
  }
  void load_state_dict(Context& ctx, const File& file, bool strict = true) {
    load_state_dict(ctx, file.all(), strict);
  }

  /// Gives every parameter a value on the context's device, f32, as its Init says; the same numbers on every
  /// device.
  void init(Context& ctx, std::uint64_t seed);

  /// Converts or moves every parameter and buffer that has a value. Layout: of those of rank 4.
  void to(Context& ctx, DType dtype);
  void to(Context& ctx, Device device);
  void to(Context& ctx, Layout layout);

 protected:
  Module() = default;
  Module(const Module&) = default;
  Module(Module&&) = default;
  Module& operator=(const Module&) = default;
  Module& operator=(Module&&) = default;

 private:
  friend class Members;
  Members members() const;
  Members members();  // which learn their names
  void replace_all(const std::function<Tensor(const Parameter&)>& replacement);

  std::string member_name_;
};

}  // namespace burin::nn
