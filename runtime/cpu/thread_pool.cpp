#include <burin/runtime/check.h>
#include <burin/runtime/cpu/thread_pool.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <sched.h>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace burin {
namespace {

constexpr auto kSpin = std::chrono::microseconds(50);  // about what a sleep and a wake-up cost

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  const unsigned count = std::thread::hardware_concurrency();
  return count == 0 ? 1 : static_cast<int>(count);
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Polls ready() for a while; true if it came true.
template <class Ready>
bool spin_until(Ready&& ready) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

/// The pools whose tasks this thread is in, innermost first, so that a loop inside a task does not wait for
/// itself.
struct Running {
  const void* pool;
  const Running* outer;
};
thread_local const Running* running = nullptr;

bool is_running_in(const void* pool) {
  for (const Running* at = running; at; at = at->outer)
    if (at->pool == pool) return true;
  return false;
}

}  // namespace

struct ThreadPool::State {
  struct Loop {
    std::int64_t tasks = 0;
    void (*invoke)(void*, std::int64_t) = nullptr;
    void* callable = nullptr;
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error;  // written by the one that set `failed`
  };

  int size = 1;
  std::mutex callers;  // one loop at a time
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable finished;
  std::atomic<std::uint64_t> generation{0};  // counts loops
  std::atomic<int> busy{0};                  // workers that have not yet left the current loop
  std::atomic<bool> stopping{false};
  Loop loop;
  std::vector<std::thread> workers;

  void work() {
    const Running here{this, running};
    running = &here;
    for (std::int64_t i; !loop.failed.load(std::memory_order_relaxed) &&
                         (i = loop.next.fetch_add(1, std::memory_order_relaxed)) < loop.tasks;) {
      try {
        loop.invoke(loop.callable, i);
      } catch (...) {
        if (!loop.failed.exchange(true)) loop.error = std::current_exception();
      }
    }
    running = here.outer;
  }

  void serve() {
    std::uint64_t seen = 0;
    while (true) {
      const auto called = [&] {
        return generation.load(std::memory_order_acquire) != seen || stopping.load();
      };
      if (!spin_until(called)) {
        std::unique_lock lock(mutex);
        wake.wait(lock, called);
      }
      if (stopping.load()) return;
      seen = generation.load(std::memory_order_acquire);
      work();
      if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        const std::lock_guard lock(mutex);
        finished.notify_one();
      }
    }
  }

  void stop() noexcept {
    {
      const std::lock_guard lock(mutex);
      stopping.store(true);
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  state_->size = threads > 0 ? threads : usable_cores();
  try {
    for (int i = 1; i < state_->size; ++i)
      state_->workers.emplace_back([state = state_.get()] { state->serve(); });
  } catch (const std::system_error& error) {
    state_->stop();
    throw Error(fmt::format("thread pool: {} threads cannot be started: {}", state_->size, error.what()));
  } catch (...) {
    state_->stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->stop(); }

int ThreadPool::size() const noexcept { return state_->size; }

void ThreadPool::run(std::int64_t tasks, void (*invoke)(void*, std::int64_t), void* callable) {
  State& s = *state_;
  if (tasks <= 1 || s.size == 1 || is_running_in(&s)) {
    for (std::int64_t i = 0; i < tasks; ++i) invoke(callable, i);
    return;
  }
  const std::lock_guard one_caller(s.callers);
  s.loop.tasks = tasks;
  s.loop.invoke = invoke;
  s.loop.callable = callable;
  s.loop.next.store(0, std::memory_order_relaxed);
  s.loop.failed.store(false, std::memory_order_relaxed);
  s.loop.error = nullptr;
  s.busy.store(s.size - 1, std::memory_order_relaxed);
  {
    const std::lock_guard lock(s.mutex);
    s.generation.fetch_add(1, std::memory_order_release);
  }
  s.wake.notify_all();
  s.work();
  const auto done = [&] { return s.busy.load(std::memory_order_acquire) == 0; };
  if (!spin_until(done)) {
    std::unique_lock lock(s.mutex);
    s.finished.wait(lock, done);
  }
  if (s.loop.failed.load()) std::rethrow_exception(std::exchange(s.loop.error, nullptr));
}

}  // namespace burin
