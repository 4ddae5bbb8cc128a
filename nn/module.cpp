#include <burin/nn/module.h>
#include <burin/runtime/check.h>
#include <burin/runtime/name_scope.h>
#include <burin/runtime/random.h>

#include <cmath>
#include <set>

namespace burin::nn {
namespace {

/// "2 missing (a, b)"
std::string listed(const std::vector<std::string>& names, std::string_view what) {
  return fmt::format("{} {} ({})", names.size(), what, fmt::join(names, ", "));
}

std::vector<std::pair<std::string, Tensor>> tensors_of(const Members& members, bool buffers) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& [name, parameter] : members.parameters())
    if (parameter->is_buffer() == buffers) tensors.emplace_back(name, parameter->tensor());
  return tensors;
}

}  // namespace

const Tensor& Parameter::value(std::string_view name) const {
  BURIN_CHECK(!present_ || tensor_.defined(), Error,
              "{} {} has no value: load_state_dict or init must come first", name, shape_);
  return tensor_;
}

void Parameter::set(Tensor tensor) {
  BURIN_CHECK(present_ && tensor.defined() && tensor.shape() == shape_, ShapeError,
              "parameter: {} cannot be the value of {}",
              tensor.defined() ? to_string(tensor.shape()) : "nothing",
              present_ ? to_string(shape_) : "an absent parameter");
  tensor_ = std::move(tensor);
}

Members& Members::add(std::string_view name, Parameter& parameter) {
  if (parameter.present()) parameters_.emplace_back(prefix_ + std::string(name), &parameter);
  return *this;
}

Members& Members::add(std::string_view name, Module& module) {
  if (naming_) module.member_name_ = name;
  const std::size_t outer = prefix_.size();
  prefix_ += name;
  modules_.emplace_back(prefix_, &module);
  prefix_ += '.';
  module.list(*this);
  prefix_.resize(outer);
  return *this;
}

Members Module::members() const {
  Members members;
  // One list() serves both the const members, which only read, and those that change the parameters.
  const_cast<Module*>(this)->list(members);
  return members;
}

Members Module::members() {
  Members members(true);
  list(members);
  return members;
}

Tensor Module::operator()(Context& ctx, const Tensor& x) const {
  const NameScope scope(ctx, member_name_);
  return forward(ctx, x);
}

std::vector<std::pair<std::string, Tensor>> Module::named_parameters() const {
  return tensors_of(members(), false);
}

std::vector<std::pair<std::string, Tensor>> Module::named_buffers() const {
  return tensors_of(members(), true);
}

std::vector<const Parameter*> Module::parameters() const {
  std::vector<const Parameter*> all;
  for (const auto& [name, parameter] : members().parameters()) all.push_back(parameter);
  return all;
}

std::vector<std::pair<std::string, const Module*>> Module::named_modules() const {
  const Members all = members();
  return {all.modules().begin(), all.modules().end()};
}

StateDict Module::state_dict() const {
  StateDict state;
  for (const auto& [name, parameter] : members().parameters())
    if (parameter->tensor().defined()) state.emplace(name, parameter->tensor());
  return state;
}

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& [name, parameter] : members().parameters())
    if (!parameter->is_buffer()) count += parameter->shape().count();
  return count;
}

void Module::load_state_dict(Context& ctx, const StateDict& state, bool strict) {
  StateDictError::Names names;
  std::vector<std::string> mismatches;  // with their shapes
  std::set<std::string> known;
  std::vector<std::pair<Parameter*, const Tensor*>> pairs;
  for (const auto& [name, parameter] : members().parameters()) {
    known.insert(name);
    const auto found = state.find(name);
    if (found == state.end()) {
      names.missing.push_back(name);
    } else if (const Tensor& given = found->second;
               !given.defined() || given.shape() != parameter->shape() || !is_floating(given.dtype())) {
      names.mismatched.push_back(name);
      mismatches.push_back(fmt::format(
          "{}: {} given, {} wanted", name,
          given.defined() ? fmt::format("{} {}", burin::name(given.dtype()), given.shape()) : "nothing",
          parameter->shape()));
    } else {
      pairs.emplace_back(parameter, &given);
    }
  }
  for (const auto& [name, tensor] : state)
    if (!known.contains(name) && !name.ends_with("num_batches_tracked")) names.unexpected.push_back(name);

  std::vector<std::string> problems;
  if (strict && !names.missing.empty()) problems.push_back(listed(names.missing, "missing"));
  if (strict && !names.unexpected.empty()) problems.push_back(listed(names.unexpected, "unexpected"));
  if (!mismatches.empty()) problems.push_back(listed(mismatches, "that do not fit"));
  if (!problems.empty())
    throw StateDictError(fmt::format("load_state_dict: {}", fmt::join(problems, "; ")), std::move(names));

  std::vector<Tensor> values;
  for (const auto& [parameter, given] : pairs) values.push_back(burin::to(ctx, *given, ctx.device()));
  for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i].first->set(std::move(values[i]));
}

void Module::init(Context& ctx, std::uint64_t seed) {
  Philox random{.seed = seed};
  replace_all([&](const Parameter& parameter) {
    const Shape& shape = parameter.shape();
    if (parameter.init() != Init::he_uniform || shape.count() == 0)
      return full(ctx, shape, parameter.init() == Init::ones ? 1 : 0);
    const std::int64_t outputs = shape.rank() > 0 ? shape[0] : 1;
    const double fan_in = static_cast<double>(shape.count()) / static_cast<double>(outputs);
    const auto bound = static_cast<float>(std::sqrt(6.0 / fan_in));
    Tensor value = uniform(ctx, shape, random, -bound, bound);
    random.offset += static_cast<std::uint64_t>(shape.count());
    return value;
  });
}

void Module::to(Context& ctx, DType dtype) {
  replace_all([&](const Parameter& parameter) {
    return parameter.tensor().defined() ? burin::to(ctx, parameter.tensor(), dtype) : Tensor();
  });
}

void Module::to(Context& ctx, Device device) {
  replace_all([&](const Parameter& parameter) {
    return parameter.tensor().defined() ? burin::to(ctx, parameter.tensor(), device) : Tensor();
  });
}

void Module::to(Context& ctx, Layout layout) {
  replace_all([&](const Parameter& parameter) {
    const Tensor& tensor = parameter.tensor();
    return tensor.defined() && tensor.rank() == 4 ? burin::to(ctx, tensor, layout) : Tensor();
  });
}

/// All or nothing; an undefined replacement keeps the value.
void Module::replace_all(const std::function<Tensor(const Parameter&)>& replacement) {
  const Members all = members();
  std::vector<Tensor> values;
  for (const auto& [name, parameter] : all.parameters()) values.push_back(replacement(*parameter));
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i].defined()) all.parameters()[i].second->set(std::move(values[i]));
}

}  // namespace burin::nn
