#include <burin/runtime/check.h>
#include <burin/runtime/cuda/dynamic_library.h>

#include <dlfcn.h>

namespace burin {
namespace {

std::string linker_text() {
  const char* text = dlerror();
  return text ? text : "no reason is given";
}

}  // namespace

void DynamicLibrary::Close::operator()(void* handle) const noexcept { dlclose(handle); }

DynamicLibrary::DynamicLibrary(std::string label, std::string file)
    : label_(std::move(label)), file_(std::move(file)) {
  std::string reason;
  for (const char* folder : {"", BURIN_CUDA_LIBRARY_DIR "/", "/usr/local/cuda/lib64/"}) {
    const std::string path = folder + file_;
    handle_ = UniqueHandle<void*, Close>(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (handle_) return;
    const std::string text = linker_text();
    if (reason.empty()) reason = text;
  }
  throw LibraryError(fmt::format("{}: {} could not be opened: {}", label_, file_, reason), -1);
}

void* DynamicLibrary::symbol(const char* name) const {
  void* address = dlsym(handle_.get(), name);
  if (!address)
    throw LibraryError(fmt::format("{}: {} has no function {}: {}", label_, file_, name, linker_text()), -1);
  return address;
}

}  // namespace burin
