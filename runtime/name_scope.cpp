#include <burin/runtime/context.h>
#include <burin/runtime/name_scope.h>
#include <burin/runtime/stream_state.h>

namespace burin {

NameScope::NameScope(const Context& ctx, std::string_view name) {
  if (name.empty()) return;
  stream_ = ctx.stream().share();
  const auto outer = stream_->push_scope(name);
  outer_length_ = outer.length;
  outer_hash_ = outer.hash;
}

NameScope::~NameScope() {
  if (stream_) stream_->pop_scope({outer_length_, outer_hash_});
}

}  // namespace burin
