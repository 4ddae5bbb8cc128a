#pragma once

#include <burin/runtime/export.h>
#include <burin/runtime/stream.h>

#include <cstddef>
#include <memory>
#include <string_view>

namespace burin {

class Context;

/// Names what is allocated on a context's stream while it lives, for snapshots and timelines of memory.
/// Scopes nest, joined by dots: "resnet.layer1.0.conv1". Modules name their own forward passes.
class BURIN_API NameScope {
 public:
  /// An empty name opens no scope.
  NameScope(const Context& ctx, std::string_view name);
  ~NameScope();
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;

 private:
  std::shared_ptr<detail::StreamState> stream_;
  std::size_t outer_length_ = 0;  // of the path outside this scope
};

}  // namespace burin
