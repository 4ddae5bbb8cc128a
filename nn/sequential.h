#pragma once

#include <burin/nn/module.h>
#include <burin/runtime/export.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace burin::nn {

/// Modules one after the other, named "0", "1", ...:
///
///     nn::Sequential net(nn::Conv2d(1, 8, 3), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),
///                        nn::Linear(1352, 10));
///
/// A value as every module: a copy has modules of its own, which share the parameters' memory.
class BURIN_API Sequential final : public Module {
 public:
  Sequential() = default;
  template <std::derived_from<Module>... Modules>
  requires(sizeof...(Modules) != 1 ||
           !(std::same_as<Modules, Sequential> && ...)) explicit Sequential(Modules... modules) {
    (add(std::move(modules)), ...);
  }
  Sequential(const Sequential& other);
  Sequential& operator=(const Sequential& other);
  Sequential(Sequential&&) noexcept = default;
  Sequential& operator=(Sequential&&) noexcept = default;

  template <std::derived_from<Module> M>
  Sequential& add(M module) {
    slots_.push_back(
        {std::make_unique<M>(std::move(module)), [](const Module& from) -> std::unique_ptr<Module> {
           return std::make_unique<M>(static_cast<const M&>(from));
         }});
    return *this;
  }

  std::size_t size() const noexcept { return slots_.size(); }
  Module& operator[](std::size_t i) { return *slots_[i].module; }
  const Module& operator[](std::size_t i) const { return *slots_[i].module; }

  Tensor forward(Context& ctx, const Tensor& x) const override;
  void list(Members& m) override;

 private:
  struct Slot {
    std::unique_ptr<Module> module;
    std::unique_ptr<Module> (*copy)(const Module&);
  };
  std::vector<Slot> slots_;
};

}  // namespace burin::nn
