#include <burin/graph/graph_state.h>
#include <burin/graph/rebind.h>
#include <burin/runtime/config.h>

#include <cstring>

namespace burin::detail {

std::vector<Binding::Site> GraphKernels::sites_of(const void* begin, std::size_t bytes) const {
  constexpr std::size_t kWord = sizeof(std::uintptr_t);
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  std::vector<Binding::Site> sites;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const cuda::KernelNode& node = nodes_[i].node;
    for (const cuda::KernelNode::Argument& argument : node.arguments) {
      // An address is an aligned word of its own, also within a struct.
      if (argument.offset % kWord != 0) continue;
      for (std::size_t at = 0; at + kWord <= argument.bytes; at += kWord) {
        std::uintptr_t word = 0;
        std::memcpy(&word, &node.bytes[argument.offset + at], kWord);
        if (word >= first && word - first < bytes) sites.push_back({i, argument.offset + at, word - first});
      }
    }
  }
  return sites;
}

void GraphKernels::point(Binding& binding, const void* address) noexcept {
  for (const Binding::Site& site : binding.sites) {
    const std::uintptr_t word = reinterpret_cast<std::uintptr_t>(address) + site.delta;
    Entry& entry = nodes_[site.kernel];
    std::memcpy(&entry.node.bytes[site.byte], &word, sizeof word);
    entry.is_dirty = true;
    any_dirty_ = true;
  }
  binding.address = address;
}

void GraphKernels::flush_template() {
  if constexpr (kHasCuda)
    for (Entry& entry : nodes_) cuda::update_template_node(entry.node);
}

void GraphKernels::flush(void* exec) {
  if (!any_dirty_) return;
  for (Entry& entry : nodes_) {
    if (!entry.is_dirty) continue;
    if constexpr (kHasCuda) cuda::update_kernel_node(exec, entry.node);
    entry.is_dirty = false;
  }
  any_dirty_ = false;
}

bool can_rebind_output(const CudaGraph& graph, std::size_t index) {
  const Binding& output = captured_in(const_cast<CudaGraph&>(graph), "rebind_output").outputs.at(index);
  return output.is_patchable && !output.sites.empty();
}

bool rebind_output(CudaGraph& graph, std::size_t index, const Tensor& fresh) {
  Captured& captured = captured_in(graph, "rebind_output");
  Binding& output = captured.outputs.at(index);
  if (!can_rebind_output(graph, index) || !is_bindable(fresh.raw()) || fresh.spec() != output.spec)
    return false;
  for (const std::shared_ptr<StreamState>& user : captured.used) fresh.record_use(StreamView(user.get()));
  captured.kernels.point(output, fresh.raw());
  output.home = fresh;
  captured.output_tensors.at(index) = fresh;
  return true;
}

}  // namespace burin::detail
