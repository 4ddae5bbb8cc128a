#include <burin/nn/sequential.h>

namespace burin::nn {

Sequential::Sequential(const Sequential& other) : Module(other) {
  for (const Slot& slot : other.slots_) slots_.push_back({slot.copy(*slot.module), slot.copy});
}

Sequential& Sequential::operator=(const Sequential& other) { return *this = Sequential(other); }

Tensor Sequential::forward(Context& ctx, const Tensor& x) const {
  Tensor h = x;
  for (const Slot& slot : slots_) h = (*slot.module)(ctx, h);
  return h;
}

void Sequential::list(Members& m) {
  for (std::size_t i = 0; i < slots_.size(); ++i) m.add(std::to_string(i), *slots_[i].module);
}

}  // namespace burin::nn
