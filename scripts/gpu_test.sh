#!/usr/bin/env bash
# On a machine with a GPU: builds, runs every test on it, the operator suites under compute-sanitizer (memcheck and
# racecheck, with shorter sweeps), the digit runner on CPU and GPU, and the benchmarks; writes a results page and the logs.
# Installs nothing and needs no network.
#   scripts/gpu_test.sh [--out DIR] [--headers DIR] [--steps LIST] [--layers REGEX]
#     --out DIR      where the page and the logs go (default: build/gpu)
#     --headers DIR  a folder of header-only packages that the machine lacks (searched as if it were /usr/include)
#     --steps LIST   of build,test,sanitize,memory,threads,runner,bench,compare (default: all); memory is memcheck over the
#                    memory, stream and graph suites; threads builds these once more with ThreadSanitizer and AddressSanitizer, and
#                    runs them on the fake device
#     --layers REGEX which benchmarks of ResNet-50's layers (default: f32 and f16 at batch 1; '.' is all, some 8 minutes)
set -uo pipefail
cd "$(dirname "$0")/.."
out=$PWD/build/gpu
headers=
steps=build,test,sanitize,memory,threads,runner,bench,compare
layers='/(f32|f16)/.*/batch:1/'
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2 ;;
    --headers) headers=$(realpath "$2") ;;
    --steps) steps=$2 ;;
    --layers) layers=$2 ;;
    *) sed -n '2,11p' "$0" >&2; exit 2 ;;
  esac
  shift 2
done
mkdir -p "$out"
build=$PWD/build/release
status=0
wants() { [[ ,$steps, == *,$1,* ]]; }
step() {  # step NAME COMMAND...: runs it with its output in a log, and remembers failure
  local name=$1 start=$SECONDS
  shift
  "$@" >"$out/$name.log" 2>&1
  local rc=$?
  echo "$name: $([ $rc -eq 0 ] && echo ok || echo "FAILED ($rc)"), $((SECONDS - start)) s" | tee -a "$out/steps.txt"
  [ $rc -eq 0 ] || { status=1; grep -aE 'error|FAILED|Failure|what\(\)' "$out/$name.log" | head -n 30; }
  return $rc
}

wants build && : >"$out/steps.txt"
if wants build; then
  configure=(cmake --preset release -DBURIN_CUDA=ON)
  [ -n "$headers" ] && configure+=("-DCMAKE_PREFIX_PATH=$headers" "-DCMAKE_CXX_FLAGS=-isystem $headers/include")
  step configure "${configure[@]}" && step build cmake --build build/release -j "$(nproc)" || exit 1
fi

if wants test; then
  rm -rf "$out/xml"
  GTEST_OUTPUT=xml:$out/xml/ step test ctest --test-dir build/release -j 4 --output-on-failure -E '^install$'
  python3 scripts/count_tests.py "$out/xml" | tee "$out/counts.txt"
fi

# sanitize TOOL SUITE: one operator suite's GPU cases; prints a line of summary. racecheck leaves out the libraries' own
# kernels (it does not follow the barriers of their asynchronous copies) and the test of 4096 widths.
sanitize() {
  local log=$out/$1-$2.log skip='*C14*:*C15*:*Huge*'
  [ "$1" = racecheck ] && skip+=':*cublaslt*:*cudnn*:*SM4*'
  BURIN_TEST_SWEEP=20 timeout 280 compute-sanitizer --tool "$1" --error-exitcode 9 "$build/tests/$2" --gtest_brief=1 \
    --gtest_filter="*cuda*:*Cuda*:*cublaslt*:*cudnn*:-$skip" >"$log" 2>&1
  local rc=$?
  echo "$2: $(grep -aE 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -n 1 | sed 's/=* //') (exit $rc)"
  return $rc
}
# The memory suites, which have few kernels of their own, and make calls of CUDA fail on purpose.
sanitize_memory() {
  local log=$out/memcheck-$1.log
  BURIN_TEST_SWEEP=1000 timeout 280 compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 "$build/tests/$1" \
    --gtest_brief=1 --gtest_filter=-*Thousand*:*G1_*:*Huge* >"$log" 2>&1
  local rc=$?
  echo "$1: $(grep -a 'ERROR SUMMARY' "$log" | tail -n 1 | sed 's/=* //') (exit $rc)"
  return $rc
}
if wants sanitize; then
  export -f sanitize
  export out build
  for tool in memcheck racecheck; do
    step "$tool" xargs -P 8 -I{} bash -c "sanitize $tool {}_test" <<<"$(printf '%s\n' conv2d conv2d_cases gemm matmul linear \
      max_pool2d avg_pool2d softmax argmax activation binary batch_norm concat cast copy random)"
    sort "$out/$tool.log" | tee "$out/$tool.txt"
  done
fi
if wants memory; then
  export -f sanitize_memory
  export out build
  step memcheck-memory xargs -P 4 -I{} bash -c "sanitize_memory {}_test" <<<"$(printf '%s\n' memory_contract pool_cases \
    pool_capture pool_churn pool_property stream_order cuda_graph capture graph_order executor random_capture)"
  sort "$out/memcheck-memory.log" | tee "$out/memcheck-memory.txt"
fi

if wants threads; then
  export TSAN_OPTIONS=allocator_may_return_null=1 ASAN_OPTIONS=allocator_may_return_null=1  # impossible requests are tests
  suites=(adaptors fork memory_contract memory_faults pool_cases pool_capture pool_churn pool_property stream_order
    cuda_graph capture capture_cases capture_faults graph_order executor executor_limits timeline verify)
  for sanitizer in thread address,undefined; do
    name=${sanitizer%%,*}
    folder=$PWD/build/gpu-$name
    step "$name-configure" cmake -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBURIN_CUDA=ON -DBURIN_EXAMPLES=OFF \
      "-DBURIN_SANITIZE=$sanitizer" &&
      step "$name-build" cmake --build "$folder" -j "$(nproc)" --target "${suites[@]/%/_test}" &&
      BURIN_TEST_FAKE_CUDA=1 BURIN_TEST_SWEEP=20000 step "$name" xargs -P 8 -I{} bash -c \
        "setarch -R '$folder/tests/{}_test' --gtest_brief=1 >'$out/$name-{}.log' 2>&1; echo {}: exit \$?, \$(grep -aoE 'PASSED.*' '$out/$name-{}.log'); exit \$(grep -acE 'ThreadSanitizer|AddressSanitizer|FAILED' '$out/$name-{}.log')" \
        <<<"$(printf '%s\n' "${suites[@]}")"
    sort "$out/$name.log" | tee "$out/$name.txt"
  done
fi

if wants runner; then
  for precision in f32 tf32 f16 bf16; do
    step "runner-cuda-$precision" "$build/examples/cnn" --device cuda --precision "$precision" --json "$out/runner-cuda-$precision.json"
  done
  step runner-cpu-f32 "$build/examples/cnn" --device cpu --json "$out/runner-cpu-f32.json"
  grep -h accuracy: "$out"/runner-*.log
fi

if wants bench; then
  step bench-model "$build/bench/model_bench" --benchmark_repetitions=5 --benchmark_min_time=0.2 --benchmark_report_aggregates_only=true \
    --benchmark_out="$out/model.json" --benchmark_out_format=json
  step bench-graph "$build/bench/graph_bench" --benchmark_filter='^(empty|inputs)/' --benchmark_repetitions=3 --benchmark_min_time=0.1 \
    --benchmark_report_aggregates_only=true --benchmark_out="$out/graph.json" --benchmark_out_format=json
  step bench-layers "$build/bench/resnet50_layer_bench" --benchmark_filter="$layers" --benchmark_repetitions=3 --benchmark_min_time=0.02 \
    --benchmark_report_aggregates_only=true --benchmark_out="$out/layers.json" --benchmark_out_format=json
  step bench-memory "$build/bench/memory_bench" --benchmark_repetitions=3 --benchmark_min_time=0.05 --benchmark_report_aggregates_only=true \
    --benchmark_out="$out/memory.json" --benchmark_out_format=json
  step bench-memory-trace "$build/bench/memory_trace_bench" --svg "$out/memory_map.svg" bench/runtime/traces/inference.txt
fi

if wants compare; then
  step compare-pytorch python3 bench/compare_pytorch.py --burin-bench "$build/bench/graph_bench" --json "$out/compare_pytorch.json"
  step compare-pytorch-memory python3 bench/compare_pytorch_memory.py --memory-bench "$build/bench/memory_bench" \
    --trace-bench "$build/bench/memory_trace_bench" --json "$out/compare_memory.json"
fi

python3 scripts/results_page.py "$out" >"$out/results.md" && echo "page: $out/results.md"
exit "$status"
