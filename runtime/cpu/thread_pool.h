#pragma once

#include <burin/runtime/export.h>

#include <cstdint>
#include <memory>
#include <type_traits>

namespace burin {

/// A fixed set of threads for loops over independent tasks. The calling thread works too. Thread-safe: loops
/// of two callers run one after the other. A loop inside a task runs on that task's thread alone. Two threads
/// must not enter two pools crosswise, each with a loop of the other pool inside its own: they would wait for
/// each other.
class BURIN_API ThreadPool {
 public:
  /// `threads` counts the caller: 1 starts none. 0: one per core that this process may use. Idle threads spin
  /// for a few tens of microseconds, then sleep. Throws Error if the system refuses to start so many.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const noexcept;

  /// Calls task(i) once for each i in [0, tasks), in no order, and returns when all have returned. If calls
  /// throw, the first exception is rethrown here after the rest have finished; tasks not yet begun are
  /// skipped.
  template <class Task>
  void for_each(std::int64_t tasks, Task&& task) {
    using Callable = std::remove_reference_t<Task>;
    run(
        tasks, [](void* callable, std::int64_t i) { (*static_cast<Callable*>(callable))(i); },
        const_cast<void*>(static_cast<const void*>(&task)));
  }

  /// Splits [0, count) into about equal ranges of at least `grain` (>= 1) and calls body(begin, end) for
  /// each.
  template <class Body>
  void for_ranges(std::int64_t count, std::int64_t grain, Body&& body) {
    const std::int64_t most = (count + grain - 1) / grain;
    const std::int64_t tasks = most < size() ? most : size();
    if (tasks <= 1) {
      if (count > 0) body(std::int64_t{0}, count);
      return;
    }
    for_each(tasks, [&](std::int64_t i) { body(count * i / tasks, count * (i + 1) / tasks); });
  }

 private:
  void run(std::int64_t tasks, void (*invoke)(void*, std::int64_t), void* callable);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace burin
