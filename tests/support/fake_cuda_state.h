#pragma once
// Private to the fake device: what it is made of. All of it is guarded by FakeState::mutex.

#include <support/fake_cuda.h>

#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_map>
#include <variant>

namespace burin::test {

struct FakeStream;
struct FakeCapture;
struct FakeEvent;
struct FakeGraph;

/// A launch of a kernel that set_kernel made known.
struct FakeKernelCall {
  const void* address = nullptr;
  cudaLaunchConfig_t config = {};
  std::vector<std::vector<std::byte>> arguments;
  std::vector<void*> pointers;  // to them
};

/// What a queue or a node of a graph holds.
struct FakeWork {
  enum class Kind : std::uint8_t { copy, fill, kernel, record, graph };
  Kind kind = Kind::kernel;
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;
  std::size_t bytes = 0;
  int value = 0;                       // of fill
  std::vector<std::byte> staged = {};  // what src held at the call, if it was pageable
  std::function<void()> body = {};     // of kernel
  std::vector<FakeAccess> accesses = {};
  std::shared_ptr<FakeKernelCall> call = {};  // of a registered kernel
  std::weak_ptr<FakeEvent> event = {};        // of record: an external event
  std::shared_ptr<const FakeGraph> child = {};
};

struct FakeNode {
  std::shared_ptr<const FakeWork> work;
  std::vector<FakeNode*> dependencies;
  std::uint64_t serial = 0;  // FakeState::serial when the work was given
  std::uint64_t id = 0;
  std::uint64_t origin = 0;    // in a copy: id of the node that it was copied from
  bool may_stay_open = false;  // its capture may end without a join
};
struct FakeGraph {
  std::deque<FakeNode> nodes;  // in an order that respects dependencies
};

/// A point in a stream's queue: reached once `sequence` operations have run.
struct FakePosition {
  std::shared_ptr<FakeStream> stream;
  std::uint64_t sequence = 0;
  bool reached() const;
};
struct FakeRecord {
  FakePosition position;
  double time_ms = 0;
};
struct FakeQueuedWork {
  std::shared_ptr<const FakeWork> work;
  std::uint64_t serial = 0;  // FakeState::serial at the call
};

/// A launch of a graph: child graphs are part of it, and its nodes are taken one at a time.
struct FakeGraphRun {
  struct Step {
    FakeQueuedWork queued;               // none where child graphs end
    std::vector<std::size_t> followers;  // steps that depend on this one
    std::size_t waits = 0;               // for so many that have not run
    std::shared_ptr<FakeRecord> record;  // of an external event
  };
  std::vector<Step> steps;
  std::vector<std::size_t> ready;
};
using FakeOperation =
    std::variant<FakePosition, std::shared_ptr<FakeRecord>, FakeQueuedWork, std::shared_ptr<FakeGraphRun>>;

struct FakeExec {
  std::shared_ptr<FakeGraph> graph;  // a copy
  FakePosition last;                 // the end of the last launch, if there was one
};

struct FakeStream {
  int device = 0;
  int priority = 0;
  bool blocking = false;  // ordered with the legacy stream
  bool legacy = false;
  std::deque<FakeOperation> queue;
  std::uint64_t queued = 0;
  std::uint64_t finished = 0;
  std::size_t busy_index = 0;                // in FakeState::busy while the queue is not empty
  std::shared_ptr<FakeCapture> capture;      // that it takes part in
  std::vector<FakeNode*> tips;               // what its next node depends on
  std::vector<cudaGraphNode_t> tip_handles;  // what cudaStreamGetCaptureInfo has lent
  std::shared_ptr<FakeStream> runner;  // of a position within a graph: the stream that it was launched on
};
inline bool FakePosition::reached() const { return stream->finished >= sequence; }

struct FakeEvent : std::enable_shared_from_this<FakeEvent> {
  int device = 0;
  bool timing = true;
  std::shared_ptr<FakeRecord> record;    // the last, if outside a capture
  std::shared_ptr<FakeCapture> capture;  // of the last record, if in a capture
  std::vector<FakeNode*> tips;
};

struct FakeCapture {
  unsigned long long id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  FakeStream* origin = nullptr;
  bool invalid = false;
  bool ended = false;
  std::shared_ptr<FakeGraph> graph;
  std::vector<FakeStream*> streams;
};

enum class FakeMemory : std::uint8_t { device, pinned, pageable, invalid };

struct FakePhysical {
  std::size_t bytes = 0;
  std::size_t offset = 0;  // in FakeState::physical_file
  int device = 0;
  int mappings = 0;
  bool released = false;
};
struct FakeRange {
  std::uintptr_t end = 0;
  std::size_t counted_bytes = 0;
  FakeMemory kind = FakeMemory::device;
  int device = 0;
  bool accessible = true;
  std::uint64_t birth = 0;                 // FakeState::serial when it was made
  std::shared_ptr<FakePhysical> physical;  // if mapped by cuMemMap
};

struct FakeReservation {
  std::size_t bytes = 0;
  bool live = false;
};

struct FakeThread {
  int device = 0;
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
};

struct FakeState {
  explicit FakeState(const FakeCudaOptions& options);
  ~FakeState();

  // Calls (fake_cuda.cpp).
  FakeThread& thread() { return threads[std::this_thread::get_id()]; }
  /// The code that a call gets before it does anything.
  cudaError_t refusal(std::string_view function);
  void violation(std::string text);

  // Queues (fake_cuda_streams.cpp).
  std::shared_ptr<FakeStream> find_stream(cudaStream_t stream, const char* function);
  FakeEvent* find_event(cudaEvent_t event, const char* function);
  void push(const std::shared_ptr<FakeStream>& stream, FakeOperation operation);
  FakePosition end_of(const std::shared_ptr<FakeStream>& stream) const { return {stream, stream->queued}; }
  void run_until(const FakePosition& position);
  void run_some();
  void run_all(int device);
  bool chance(unsigned one_in) { return random() % one_in == 0; }

  // Work (fake_cuda_work.cpp).
  void run(const FakeQueuedWork& queued);
  /// Why the stream takes no work now.
  cudaError_t refuse_work(const FakeStream& stream);
  /// Queues work, or captures it.
  cudaError_t submit(const std::shared_ptr<FakeStream>& stream, FakeWork work);
  /// The work of a registered kernel, with copies of its arguments.
  cudaError_t make_kernel_work(const void* address, const cudaLaunchConfig_t& config, void** arguments,
                               FakeWork& work) const;

  // Memory (fake_cuda_memory.cpp).
  FakeMemory kind_of(const void* data) const;
  /// What is wrong with using this memory for work that was queued at `at`; empty if nothing.
  std::string complaint(const void* data, std::size_t bytes, std::uint64_t at) const;
  cudaError_t allocate(FakeMemory kind, int device, void** data, std::size_t bytes);
  cudaError_t release(FakeMemory kind, void* data, const char* function);
  std::uintptr_t take_addresses(std::size_t bytes);  // 0 if there are none
  void give_addresses(std::uintptr_t address, std::size_t bytes);

  // Captures (fake_cuda_capture.cpp).
  /// For calls that CUDA calls unsafe while a capture is under way: the refusal, which invalidates the
  /// captures in question.
  cudaError_t unsafe_call();
  static void invalidate(FakeCapture& capture) { capture.invalid = true; }
  /// For a call that uses the legacy stream.
  cudaError_t implicit_use(const FakeStream& stream, bool invalidates);
  void end_capture(FakeCapture& capture);
  void capture_node(FakeStream& stream, FakeWork work);

  // Graphs (fake_cuda_graph.cpp and fake_cuda_graph_exec.cpp).
  FakeNode& add_node(FakeGraph& graph, FakeWork work, std::vector<FakeNode*> dependencies);
  std::shared_ptr<FakeGraph> copy_graph(const FakeGraph& graph);
  std::shared_ptr<FakeGraph> find_graph(cudaGraph_t graph, const char* function);
  FakeNode* find_node(cudaGraphNode_t node, const char* function);
  cudaError_t set_kernel(FakeNode& node, const cudaKernelNodeParams& given);
  /// Runs one node. Whether there are more.
  bool run_node(FakeGraphRun& graph);

  static FakeState*& in_force();

  const FakeCudaOptions options;
  mutable std::mutex mutex;
  std::mt19937_64 random;
  std::unordered_map<std::thread::id, FakeThread> threads;
  std::vector<std::string> violations;

  std::unordered_map<std::string_view, std::uint64_t> call_counts;  // keys are literals
  std::uint64_t calls = 0;
  std::uint64_t fail_countdown = 0;
  cudaError_t fail_code = cudaSuccess;
  bool fail_later = false;
  std::string fail_function;
  bool failed = false;
  bool unloaded = false;
  cudaError_t lost = cudaSuccess;  // what every call returns once work went wrong

  std::uintptr_t next_handle = 0x1000;
  std::vector<std::uintptr_t> free_handles;
  std::unordered_map<std::uintptr_t, std::shared_ptr<FakeStream>> streams;
  std::unordered_map<std::uintptr_t, std::shared_ptr<FakeEvent>> events;
  std::vector<std::shared_ptr<FakeStream>> legacy;  // of each device
  std::size_t blocking_streams = 0;
  std::vector<std::shared_ptr<FakeStream>> busy;  // those with something queued
  std::size_t pending = 0;
  double clock_ms = 0;

  struct KernelEntry {
    std::vector<std::size_t> argument_bytes;
    FakeCuda::Kernel body;
  };
  std::unordered_map<const void*, KernelEntry> kernels;

  std::uint64_t serial = 0;
  std::uint64_t running_serial = 0;                        // of the work that runs
  std::map<std::uintptr_t, FakeRange> ranges;              // by first address: what exists
  std::map<std::uintptr_t, FakeReservation> reservations;  // of cuMemAddressReserve
  std::vector<std::size_t> used_bytes;                     // of each device
  std::size_t pinned_bytes = 0;
  std::uintptr_t arena = 0;  // addresses of cudaMalloc and cudaHostAlloc
  std::size_t arena_bytes = 0;
  std::map<std::uintptr_t, std::size_t> free_addresses;  // of the arena
  int physical_file = -1;
  std::size_t physical_end = 0;
  std::unordered_map<CUmemGenericAllocationHandle, std::shared_ptr<FakePhysical>> physical;

  unsigned long long next_capture = 1;
  std::vector<std::shared_ptr<FakeCapture>> captures;  // that have not ended
  std::unordered_map<cudaGraph_t, std::shared_ptr<FakeGraph>> graphs;
  std::unordered_map<std::uintptr_t, FakeExec> execs;
  std::uint64_t next_node = 1;

  std::uintptr_t new_handle();
  void recycle(std::uintptr_t handle);
};

enum class FakeCall : std::uint8_t { action, release };

/// One call of a function of the table: counted, failed if that was asked for, and its error remembered.
template <class Body>
cudaError_t fake_call(const char* function, Body&& body, FakeCall kind = FakeCall::action) {
  FakeState& state = *FakeState::in_force();
  const std::lock_guard lock(state.mutex);
  FakeThread& thread = state.thread();
  cudaError_t code = state.refusal(function);
  if (code == cudaSuccess)
    code = body(state, thread);
  else if (kind == FakeCall::release && !state.unloaded)
    static_cast<void>(body(state, thread));
  if (code != cudaSuccess) thread.last_error = code;
  return code;
}

void add_fake_streams(cuda::CudaApi& table);
void add_fake_events(cuda::CudaApi& table);
void add_fake_work(cuda::CudaApi& table);
void add_fake_memory(cuda::CudaApi& table);
void add_fake_virtual_memory(cuda::CudaApi& table);
void add_fake_capture(cuda::CudaApi& table);
void add_fake_graph(cuda::CudaApi& table);
void add_fake_graph_exec(cuda::CudaApi& table);

inline cudaGraph_t handle_of(const FakeGraph* graph) {
  return reinterpret_cast<cudaGraph_t>(const_cast<FakeGraph*>(graph));
}
inline cudaGraphNode_t handle_of(const FakeNode* node) {
  return reinterpret_cast<cudaGraphNode_t>(const_cast<FakeNode*>(node));
}

}  // namespace burin::test
