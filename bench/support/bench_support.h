#pragma once
// What every benchmark shares: the two ways to time, skipping, and main().

#include <burin/burin.h>

#include <string>

#include <benchmark/benchmark.h>

namespace burin::bench {

/// Host to host: each iteration calls and waits, as a program does that needs the answer.
template <class Call>
void time_to_answer(benchmark::State& state, Context& ctx, Call&& call) {
  for (int i = 0; i < 3; ++i) call();  // plans, memory
  ctx.synchronize();
  for (auto _ : state) {
    benchmark::DoNotOptimize(call());
    ctx.synchronize();
  }
}

/// Time on the device, by events around a run of calls that keeps the queue full, so that launching costs
/// nothing.
template <class Call>
void time_on_device(benchmark::State& state, Context& ctx, Call&& call) {
  constexpr int kCalls = 20;
  for (int i = 0; i < 3; ++i) call();
  ctx.synchronize();
  Event begin(ctx.device());
  Event end(ctx.device());
  for (auto _ : state) {
    begin.record(ctx.stream());
    for (int i = 0; i < kCalls; ++i) benchmark::DoNotOptimize(call());
    end.record(ctx.stream());
    state.SetIterationTime(begin.elapsed_ms(end) * 1e-3 / kCalls);
  }
}

/// Runs `body`, or marks the benchmark skipped with the reason: no such device, or a backend or a graph that
/// cannot serve the case.
template <class Body>
void run_or_skip(benchmark::State& state, Body&& body) {
  try {
    body();
  } catch (const DeviceError& error) {
    state.SkipWithError(error.what());
  } catch (const UnsupportedError& error) {
    state.SkipWithError(error.what());
  } catch (const LibraryError& error) {
    state.SkipWithError(error.what());
  } catch (const CaptureError& error) {
    state.SkipWithError(error.what());
  }
}

/// Runs what is registered as the command line says; the exit status of main().
inline int run_registered(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace burin::bench
