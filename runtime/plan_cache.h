#pragma once
// Private to Burin's operators.

#include <burin/runtime/tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>

namespace burin {

/// What a plan depends on, as bytes: the operator's name, its parameters and the specs of its tensors.
class PlanKey {
 public:
  explicit PlanKey(std::string_view op) {
    bytes_.reserve(512);  // most keys, in one allocation
    bytes_ += op;
  }

  template <class... Parts>
  PlanKey& add(const Parts&... parts) {
    (append(parts), ...);
    return *this;
  }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  template <class T>
  void append(const T& value) {
    static_assert(std::is_floating_point_v<T> || std::has_unique_object_representations_v<T>,
                  "T has padding");
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void append(const IntList& list) {
    append(list.size());
    bytes_.append(reinterpret_cast<const char*>(list.begin()),
                  static_cast<std::size_t>(list.size()) * sizeof(std::int64_t));
  }
  void append(const TensorSpec& spec) {
    append(spec.dtype);
    append(spec.shape.extents());
    append(spec.strides);
    append(spec.device.type);
    append(spec.device.index);
  }

  std::string bytes_;
};

/// Plans by key, the least recently used dropped first. Belongs to one context, so it needs no lock.
class PlanCache {
 public:
  explicit PlanCache(std::size_t capacity) : capacity_(capacity) {}

  /// The plan of this key, made by make() (which returns a Plan or throws) if it is not there. Keys of one
  /// operator name must always ask for the same Plan type. The plan stays valid for the holder of the pointer
  /// if it is dropped.
  template <class Plan, class Make>
  std::shared_ptr<const Plan> find_or_make(const PlanKey& key, Make&& make) {
    if (std::shared_ptr<const void> found = find(key.bytes()))
      return std::static_pointer_cast<const Plan>(found);
    auto plan = std::make_shared<const Plan>(make());
    ++made_;
    insert(key.bytes(), plan);
    return plan;
  }

  std::size_t size() const noexcept { return entries_.size(); }
  /// Plans made so far, those that were dropped included.
  std::uint64_t made() const noexcept { return made_; }
  void clear() noexcept;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const void> plan;
  };
  std::shared_ptr<const void> find(const std::string& key);
  void insert(const std::string& key, std::shared_ptr<const void> plan);

  std::size_t capacity_;
  std::uint64_t made_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> index_;
};

}  // namespace burin
