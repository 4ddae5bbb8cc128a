#pragma once
// Private.

#include <utility>

namespace burin {

/// Owns a handle of a C library. `Raw` is pointer-like: Raw{} means none. `Destroy` is a function object that
/// gives a handle back; it must not throw, and must accept that the library or the driver is already gone.
template <class Raw, class Destroy>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  explicit UniqueHandle(Raw raw) noexcept : raw_(raw) {}
  UniqueHandle(UniqueHandle&& other) noexcept : raw_(other.release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    UniqueHandle(std::move(other)).swap(*this);
    return *this;
  }
  ~UniqueHandle() {
    if (raw_ != Raw{}) Destroy{}(raw_);
  }

  Raw get() const noexcept { return raw_; }
  explicit operator bool() const noexcept { return raw_ != Raw{}; }
  Raw release() noexcept { return std::exchange(raw_, Raw{}); }
  void swap(UniqueHandle& other) noexcept { std::swap(raw_, other.raw_); }

 private:
  Raw raw_{};
};

}  // namespace burin
