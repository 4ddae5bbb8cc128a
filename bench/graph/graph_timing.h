#pragma once
// The three ways in which graphs are timed.

#include <support/bench_support.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace burin::bench {

enum class Wait {
  call,   // each call is waited for: latency
  queue,  // one wait behind a hundred calls: throughput
  host,   // until a call returns, with nothing queued before it: what it costs the calling thread
};
inline constexpr Wait kWaits[] = {Wait::call, Wait::queue, Wait::host};

inline const char* name(Wait wait) {
  return wait == Wait::call ? "call" : wait == Wait::queue ? "queue" : "host";
}

/// Registers for time_calls().
inline void register_timed(const std::string& name, Wait wait, std::function<void(benchmark::State&)> body) {
  auto* registered = benchmark::RegisterBenchmark(name.c_str(), std::move(body));
  registered->Unit(benchmark::kMicrosecond);
  if (wait == Wait::queue)
    registered->UseRealTime();
  else
    registered->UseManualTime();
}

/// Times `call`; `wait_for_it` waits for all that was queued. For single calls the counters p50_us and p99_us
/// tell more than the mean.
template <class Call, class WaitForIt>
void time_calls(benchmark::State& state, Wait wait, Call&& call, WaitForIt&& wait_for_it) {
  using Clock = std::chrono::steady_clock;
  constexpr int kQueued = 100;
  for (int i = 0; i < 5; ++i) call();  // plans, memory, captures
  wait_for_it();
  if (wait == Wait::queue) {
    while (state.KeepRunningBatch(kQueued)) {
      for (int i = 0; i < kQueued; ++i) call();
      wait_for_it();
    }
    return;
  }
  std::vector<double> us;
  for (auto _ : state) {
    const auto begin = Clock::now();
    call();
    if (wait == Wait::call) wait_for_it();
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    if (wait == Wait::host) wait_for_it();
    state.SetIterationTime(seconds.count());
    us.push_back(seconds.count() * 1e6);
  }
  if (us.empty()) return;
  std::sort(us.begin(), us.end());
  state.counters["p50_us"] = us[us.size() / 2];
  state.counters["p99_us"] = us[us.size() * 99 / 100];
}

}  // namespace burin::bench
