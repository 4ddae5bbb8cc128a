#include <burin/runtime/context.h>
#include <burin/runtime/name_scope.h>
#include <burin/runtime/stream_state.h>

namespace burin {

NameScope::NameScope(const Context& ctx, std::string_view name) {
  if (name.empty()) return;
  stream_ = ctx.stream().share();
  outer_length_ = stream_->push_scope(name);
}

NameScope::~NameScope() {
  if (stream_) stream_->pop_scope(outer_length_);
}

}  // namespace burin
