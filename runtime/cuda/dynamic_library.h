#pragma once
// Private: a shared library opened at run time.

#include <burin/runtime/cuda/unique_handle.h>

#include <string>

namespace burin {

/// Closed on destruction, unless keep_open() was called.
class DynamicLibrary {
 public:
  /// Opens `file` where the dynamic linker finds it, else in the folder of the CUDA toolkit that Burin was
  /// built with, else in /usr/local/cuda/lib64. Throws LibraryError with `label` ("cuDNN"), the file and the
  /// linker's text.
  DynamicLibrary(std::string label, std::string file);

  /// Sets `function` to the library's function of that name; throws LibraryError if there is none.
  template <class Function>
  void load(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(symbol(name));
  }
  /// Leaves the library open until the process ends, so that its functions stay valid in every destructor.
  void keep_open() noexcept { handle_.release(); }

 private:
  struct Close {
    void operator()(void* handle) const noexcept;
  };
  void* symbol(const char* name) const;

  std::string label_;
  std::string file_;
  UniqueHandle<void*, Close> handle_;
};

}  // namespace burin
