#pragma once
// Private: the places of a graph that hold an address which may change from replay to replay.

#include <burin/graph/recording.h>
#include <burin/runtime/cuda/graph_calls.h>
#include <burin/runtime/tensor.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace burin::detail {

/// One tensor of a graph whose memory the caller may exchange.
struct Binding {
  std::string name;
  TensorSpec spec;            // dense
  Tensor home{};              // where the graph was recorded to read or write it
  bool is_patchable = false;  // every node that uses it is a kernel of Burin's, found in `sites`
  struct Site {
    std::size_t kernel;  // index in GraphKernels
    std::size_t byte;    // in its arguments
    std::size_t delta;   // what is added to the tensor's address there
  };
  std::vector<Site> sites{};
  const void* address = nullptr;  // what the sites hold
  Tensor bound{};                 // given last, and held; undefined: none yet
};

/// Burin's own kernel nodes in one graph.
class GraphKernels {
 public:
  void add(cuda::KernelNode node) { nodes_.push_back({std::move(node), false}); }
  std::size_t size() const noexcept { return nodes_.size(); }
  const cuda::KernelNode& operator[](std::size_t i) const noexcept { return nodes_[i].node; }

  /// Where the arguments hold an address within [begin, begin + bytes).
  std::vector<Binding::Site> sites_of(const void* begin, std::size_t bytes) const;
  /// Makes the sites of the binding hold addresses from `address` on. Takes effect with flush().
  void point(Binding& binding, const void* address) noexcept;
  /// Tells the executable graph. If it throws, a later call tells the rest.
  void flush(void* exec);
  /// Tells the graph itself, for those that are made of it later.
  void flush_template();

 private:
  struct Entry {
    cuda::KernelNode node;
    bool is_dirty;
  };
  std::vector<Entry> nodes_;
  bool any_dirty_ = false;
};

/// Whether kernels that were recorded for memory at the start of an allocation can use this address: they
/// choose their accesses by an alignment of 16 bytes.
inline bool is_bindable(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

}  // namespace burin::detail
