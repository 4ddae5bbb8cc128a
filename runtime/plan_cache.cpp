#include <burin/runtime/plan_cache.h>

#include <utility>

namespace burin {

std::shared_ptr<const void> PlanCache::find(const std::string& key) {
  const auto found = index_.find(key);
  if (found == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->plan;
}

void PlanCache::insert(const std::string& key, std::shared_ptr<const void> plan) {
  if (capacity_ == 0) return;
  while (entries_.size() >= capacity_) {
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
  entries_.push_front({key, std::move(plan)});
  try {
    index_.emplace(entries_.front().key, entries_.begin());
  } catch (...) {
    entries_.pop_front();
    throw;
  }
}

void PlanCache::clear() noexcept {
  index_.clear();
  entries_.clear();
}

}  // namespace burin
