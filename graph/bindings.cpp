#include <burin/graph/bindings.h>

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

void GraphKernels::point(Binding& binding, const void* address) {
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
  for (Entry& entry : nodes_) cuda::update_template_node(entry.node);
}

void GraphKernels::flush(void* exec) {
  if (!any_dirty_) return;
  for (Entry& entry : nodes_) {
    if (!entry.is_dirty) continue;
    cuda::update_kernel_node(exec, entry.node);
    entry.is_dirty = false;
  }
  any_dirty_ = false;
}

}  // namespace burin::detail
