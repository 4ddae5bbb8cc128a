#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/context.h>
#include <burin/runtime/cpu/thread_pool.h>
#include <burin/runtime/cuda/libraries.h>
#include <burin/runtime/memory/caching_pool.h>
#include <burin/runtime/plan_cache.h>

#include <cstdio>
#include <optional>
#include <utility>

namespace burin {
namespace {

void require_processor() {
#if defined(__AVX2__) && defined(__FMA__)
  BURIN_CHECK(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), DeviceError,
              "context: this Burin was built for processors with AVX2 and FMA, and this one has not both "
              "(build with -DBURIN_CPU_ARCH=x86-64)");
#endif
#if defined(__AVX512F__)
  BURIN_CHECK(__builtin_cpu_supports("avx512f"), DeviceError,
              "context: this Burin was built for processors with AVX-512, and this one does not have it "
              "(build with -DBURIN_CPU_ARCH=x86-64-v3)");
#endif
}

std::shared_ptr<MemoryResource> default_memory(Device device) {
  if (device.is_cuda()) return std::make_shared<CachingPool>(device);
  return make_cpu_resource();
}

}  // namespace

struct Context::State {
  Device device;
  ContextOptions options;
  Backend preferred = Backend::automatic;
  PlanCache plans;
  std::optional<Stream> host_stream;             // made when first asked for
  std::unique_ptr<detail::Libraries> libraries;  // made when first asked for

  State(Device device_in, ContextOptions options_in)
      : device(device_in), options(std::move(options_in)), plans(options.plan_capacity) {}
};

Context::Context(Device device, ContextOptions options) {
  require_processor();
  require_device("context", device);
  if (!options.stream) options.stream.emplace(device);
  if (!options.memory) options.memory = default_memory(device);
  BURIN_CHECK(options.stream->view().device() == device, DeviceError,
              "context: the stream is of {}, the context of {}", name(options.stream->view().device()),
              name(device));
  BURIN_CHECK(options.memory->device() == device, DeviceError,
              "context: the memory is of {}, the context of {}", name(options.memory->device()),
              name(device));
  BURIN_CHECK(!options.pinned || options.pinned->kind() == MemoryKind::pinned, DeviceError,
              "context: the memory given as pinned is not page-locked host memory");
  BURIN_CHECK(options.threads >= 0, ShapeError, "context: threads ({}) must not be negative",
              options.threads);
  state_ = std::make_unique<State>(device, std::move(options));
}

Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

Device Context::device() const noexcept { return state_->device; }
StreamView Context::stream() const noexcept { return state_->options.stream->view(); }
const std::shared_ptr<MemoryResource>& Context::memory() const noexcept { return state_->options.memory; }
const std::shared_ptr<MemoryResource>& Context::pinned() {
  if (!state_->options.pinned) state_->options.pinned = make_pinned_pool();
  return state_->options.pinned;
}

StreamView Context::host_stream() {
  if (state_->device.is_cpu()) return stream();
  if (!state_->host_stream) state_->host_stream.emplace(Device::cpu());
  return *state_->host_stream;
}

const Precision& Context::precision() const noexcept { return state_->options.precision; }
void Context::set_precision(Precision precision) noexcept { state_->options.precision = precision; }
bool Context::autotune() const noexcept { return state_->options.autotune; }
void Context::set_autotune(bool on) noexcept { state_->options.autotune = on; }
Backend Context::preferred() const noexcept { return state_->preferred; }

void Context::prefer(Backend backend) {
  const bool of_device =
      backend == Backend::automatic || (backend == Backend::cpu) == state_->device.is_cpu();
  BURIN_CHECK(of_device, UnsupportedError, "context: backend {} does not run on {}", name(backend),
              name(state_->device));
  state_->preferred = backend;
}

ThreadPool& Context::threads() {
  if (!state_->options.pool) state_->options.pool = std::make_shared<ThreadPool>(state_->options.threads);
  return *state_->options.pool;
}

void Context::warn(std::string_view message) const {
  if (state_->options.warn) return state_->options.warn(message);
  fmt::print(stderr, "burin: {}\n", message);
}

PlanCache& Context::plans() { return state_->plans; }

int Context::library_handles() const noexcept { return state_->libraries ? state_->libraries->handles() : 0; }

std::shared_ptr<MemoryResource> Context::exchange_memory(std::shared_ptr<MemoryResource> memory) noexcept {
  return std::exchange(state_->options.memory, std::move(memory));
}

detail::Libraries& Context::libraries() {
  if (!state_->libraries) state_->libraries = std::make_unique<detail::Libraries>(state_->device, stream());
  return *state_->libraries;
}

}  // namespace burin
