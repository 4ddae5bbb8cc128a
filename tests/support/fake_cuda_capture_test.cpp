// What CUDA refuses while a stream is captured: the same table of calls on the fake device and, where there
// is one, on a real GPU.

#include <support/fake_cuda.h>
#include <support/test_support.h>

#include <array>
#include <optional>
#include <thread>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

using cuda::api;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kBytes = 64;
constexpr std::array kModes{cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                            cudaStreamCaptureModeRelaxed};

cudaError_t fill(void* dst, int value, cudaStream_t stream) {
  return api().cudaMemsetAsync(dst, value, kBytes, stream);
}

/// Streams, events and memory made before a capture begins.
class Material {
 public:
  explicit Material(unsigned stream_flags = cudaStreamNonBlocking) {
    for (cudaStream_t* out : {&stream, &other})
      EXPECT_EQ(api().cudaStreamCreateWithPriority(out, stream_flags, 0), cudaSuccess);
    for (cudaEvent_t* out : {&event, &later, &outside})
      EXPECT_EQ(api().cudaEventCreateWithFlags(out, cudaEventDefault), cudaSuccess);
    EXPECT_EQ(api().cudaMalloc(&data, kBytes), cudaSuccess);
    EXPECT_EQ(api().cudaMalloc(&spare, kBytes), cudaSuccess);
    EXPECT_EQ(api().cudaHostAlloc(&pinned, kBytes, cudaHostAllocPortable), cudaSuccess);
    EXPECT_EQ(api().cudaEventRecord(outside, other), cudaSuccess);
    EXPECT_EQ(api().cudaDeviceSynchronize(), cudaSuccess);
  }
  ~Material() {
    for (cudaStream_t made : {stream, other}) api().cudaStreamDestroy(made);
    for (cudaEvent_t made : {event, later, outside}) api().cudaEventDestroy(made);
    api().cudaFree(data);
    api().cudaFree(spare);
    api().cudaFreeHost(pinned);
    api().cudaGetLastError();
  }
  Material(const Material&) = delete;
  Material& operator=(const Material&) = delete;

  cudaError_t begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    return api().cudaStreamBeginCapture(stream, mode);
  }
  /// The code with which the capture ends. Its graph is destroyed.
  cudaError_t end() { return end(stream); }
  cudaError_t end(cudaStream_t of) {
    cudaGraph_t graph = nullptr;
    const cudaError_t code = api().cudaStreamEndCapture(of, &graph);
    EXPECT_EQ(code == cudaSuccess, graph != nullptr);
    if (!graph) return code;
    EXPECT_EQ(api().cudaGraphDestroy(graph), cudaSuccess);
    return code;
  }
  cudaError_t fork() {
    EXPECT_EQ(api().cudaEventRecord(event, stream), cudaSuccess);
    return api().cudaStreamWaitEvent(other, event, 0);
  }
  cudaStreamCaptureStatus status(cudaStream_t of) {
    cudaStreamCaptureStatus now{};
    EXPECT_EQ(api().cudaStreamGetCaptureInfo(of, &now, nullptr, nullptr, nullptr, nullptr, nullptr),
              cudaSuccess);
    return now;
  }

  cudaStream_t stream = nullptr;
  cudaStream_t other = nullptr;
  cudaEvent_t event = nullptr;
  cudaEvent_t later = nullptr;
  cudaEvent_t outside = nullptr;  // recorded on `other`, and done
  void* data = nullptr;
  void* spare = nullptr;
  void* pinned = nullptr;
};

class Capture : public ::testing::TestWithParam<bool> {  // whether on the fake device
 protected:
  void SetUp() override {
    if (GetParam())
      fake_.emplace();
    else if (!cuda_availability().reason.empty())
      GTEST_SKIP() << cuda_availability().reason;
  }
  void TearDown() override {
    if (!fake_) return;
    EXPECT_THAT(fake_->violations(), IsEmpty());
    EXPECT_EQ(fake_->live(), FakeCuda::Live{});
  }
  std::optional<FakeCuda> fake_;
};
INSTANTIATE_TEST_SUITE_P(Devices, Capture, ::testing::Bool(),
                         [](const auto& at) { return at.param ? "fake" : "real"; });

template <class Call>
cudaError_t on_another_thread(Call call) {
  cudaError_t code = cudaSuccess;
  std::thread([&] { code = call(); }).join();
  return code;
}

struct Refusal {
  const char* name;
  std::function<cudaError_t(Material&)> call;
  std::array<cudaError_t, kModes.size()> codes;  // in global, thread-local and relaxed mode
  bool keeps_capture = false;                    // although refused
};
constexpr std::array<cudaError_t, 3> always(cudaError_t code) { return {code, code, code}; }
constexpr std::array kUnlessRelaxed{cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureUnsupported,
                                    cudaSuccess};
constexpr std::array kIfGlobal{cudaErrorStreamCaptureUnsupported, cudaSuccess, cudaSuccess};

cudaError_t take_and_free() {
  void* data = nullptr;
  const cudaError_t code = api().cudaMalloc(&data, kBytes);
  if (code == cudaSuccess) api().cudaFree(data);
  return code;
}

std::vector<Refusal> refusals() {
  const auto unsupported = always(cudaErrorStreamCaptureUnsupported);
  return {
      {"cudaStreamSynchronize", [](Material& s) { return api().cudaStreamSynchronize(s.stream); },
       unsupported},
      {"cudaStreamQuery", [](Material& s) { return api().cudaStreamQuery(s.stream); }, unsupported},
      {"cudaDeviceSynchronize", [](Material&) { return api().cudaDeviceSynchronize(); }, unsupported},
      {"cudaDeviceSynchronize on another thread",
       [](Material&) { return on_another_thread([] { return api().cudaDeviceSynchronize(); }); },
       unsupported},
      {"cudaEventQuery of a captured event",
       [](Material& s) {
         api().cudaEventRecord(s.event, s.stream);
         return api().cudaEventQuery(s.event);
       },
       always(cudaErrorCapturedEvent)},
      {"cudaEventSynchronize of a captured event",
       [](Material& s) {
         api().cudaEventRecord(s.event, s.stream);
         return api().cudaEventSynchronize(s.event);
       },
       always(cudaErrorCapturedEvent)},
      {"cudaEventElapsedTime of captured events",
       [](Material& s) {
         float ms = 0;
         api().cudaEventRecord(s.event, s.stream);
         api().cudaEventRecord(s.later, s.stream);
         return api().cudaEventElapsedTime(&ms, s.event, s.later);
       },
       always(cudaErrorCapturedEvent), true},
      {"cudaEventQuery", [](Material& s) { return api().cudaEventQuery(s.outside); }, kUnlessRelaxed},
      {"cudaEventSynchronize", [](Material& s) { return api().cudaEventSynchronize(s.outside); },
       kUnlessRelaxed},
      {"cudaEventQuery on another thread",
       [](Material& s) { return on_another_thread([&] { return api().cudaEventQuery(s.outside); }); },
       kIfGlobal},
      {"cudaStreamSynchronize of another stream",
       [](Material& s) { return api().cudaStreamSynchronize(s.other); }, kUnlessRelaxed},
      {"cudaStreamQuery of another stream", [](Material& s) { return api().cudaStreamQuery(s.other); },
       kUnlessRelaxed},
      {"cudaMalloc", [](Material&) { return take_and_free(); }, kUnlessRelaxed},
      {"cudaMalloc on another thread", [](Material&) { return on_another_thread(take_and_free); }, kIfGlobal},
      {"cudaFree", [](Material& s) { return api().cudaFree(std::exchange(s.spare, nullptr)); },
       kUnlessRelaxed},
      {"cudaStreamWaitEvent on an event outside",
       [](Material& s) { return api().cudaStreamWaitEvent(s.stream, s.outside, 0); },
       always(cudaErrorStreamCaptureIsolation)},
      {"cudaStreamWaitEvent of the legacy stream",
       [](Material& s) {
         api().cudaEventRecord(s.event, s.stream);
         return api().cudaStreamWaitEvent(nullptr, s.event, 0);
       },
       always(cudaErrorStreamCaptureImplicit)},
      {"cudaStreamBeginCapture", [](Material& s) { return s.begin(); }, always(cudaErrorIllegalState), true},
      {"cudaStreamEndCapture of a stream that joined",
       [](Material& s) {
         s.fork();
         return s.end(s.other);
       },
       always(cudaErrorStreamCaptureUnmatched)},
      {"cudaStreamEndCapture of another stream", [](Material& s) { return s.end(s.other); },
       always(cudaErrorIllegalState), true},
  };
}

TEST_P(Capture, RefusesEachCallAndIsInvalidatedByIt) {
  for (const Refusal& refusal : refusals()) {
    for (std::size_t mode = 0; mode < kModes.size(); ++mode) {
      SCOPED_TRACE(std::string(refusal.name) + ", mode " + std::to_string(mode));
      Material used;
      void* const spare = used.spare;
      ASSERT_EQ(used.begin(kModes[mode]), cudaSuccess);
      const cudaError_t code = refusal.call(used);
      EXPECT_EQ(code, refusal.codes[mode]);
      const bool valid = code == cudaSuccess || refusal.keeps_capture;
      EXPECT_EQ(used.status(used.stream),
                valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated);
      EXPECT_EQ(fill(used.data, 1, used.stream), valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
      EXPECT_EQ(used.end(), valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
      EXPECT_EQ(used.status(used.stream), cudaStreamCaptureStatusNone);
      EXPECT_EQ(fill(used.data, 1, used.stream), cudaSuccess);
      EXPECT_EQ(api().cudaStreamSynchronize(used.stream), cudaSuccess);
      if (code != cudaSuccess) used.spare = spare;  // a refused cudaFree freed nothing
    }
  }
}

TEST_P(Capture, AllowsTheRest) {
  for (const cudaStreamCaptureMode mode : kModes) {
    Material used;
    ASSERT_EQ(used.begin(mode), cudaSuccess);
    std::size_t free = 0;
    std::size_t total = 0;
    cudaEvent_t made = nullptr;
    std::array<std::byte, kBytes> pageable{};
    EXPECT_EQ(api().cudaMemGetInfo(&free, &total), cudaSuccess);
    EXPECT_EQ(api().cudaEventCreateWithFlags(&made, cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(api().cudaStreamWaitEvent(used.stream, made, 0), cudaSuccess);  // never recorded
    EXPECT_EQ(api().cudaEventDestroy(made), cudaSuccess);
    EXPECT_EQ(fill(used.data, 1, nullptr), cudaSuccess);  // the legacy stream, beside non-blocking ones
    EXPECT_EQ(api().cudaMemcpyAsync(used.data, pageable.data(), kBytes, cudaMemcpyDefault, used.stream),
              cudaSuccess);
    EXPECT_EQ(api().cudaMemcpyAsync(pageable.data(), used.data, kBytes, cudaMemcpyDefault, used.stream),
              cudaSuccess);
    EXPECT_EQ(used.end(), cudaSuccess);
  }
}

TEST_P(Capture, AnotherThreadMayNotEndItUnlessRelaxed) {
  for (const cudaStreamCaptureMode mode : kModes) {
    Material used;
    ASSERT_EQ(used.begin(mode), cudaSuccess);
    EXPECT_EQ(on_another_thread([&] { return used.end(); }),
              mode == cudaStreamCaptureModeRelaxed ? cudaSuccess : cudaErrorStreamCaptureWrongThread);
    EXPECT_EQ(used.end(), cudaErrorIllegalState);  // it is over
  }
}

TEST_P(Capture, ForkedWorkMustBeJoined) {
  Material used;
  ASSERT_EQ(used.begin(), cudaSuccess);
  EXPECT_EQ(used.fork(), cudaSuccess);
  EXPECT_EQ(used.status(used.other), cudaStreamCaptureStatusActive);
  EXPECT_EQ(used.end(), cudaSuccess);  // nothing was forked yet
  EXPECT_EQ(used.status(used.other), cudaStreamCaptureStatusNone);

  ASSERT_EQ(used.begin(), cudaSuccess);
  EXPECT_EQ(used.fork(), cudaSuccess);
  EXPECT_EQ(fill(used.data, 1, used.other), cudaSuccess);
  EXPECT_EQ(used.end(), cudaErrorStreamCaptureUnjoined);

  ASSERT_EQ(used.begin(), cudaSuccess);
  EXPECT_EQ(used.fork(), cudaSuccess);
  EXPECT_EQ(fill(used.data, 1, used.other), cudaSuccess);
  EXPECT_EQ(api().cudaEventRecord(used.later, used.other), cudaSuccess);
  EXPECT_EQ(api().cudaStreamWaitEvent(used.stream, used.later, 0), cudaSuccess);
  EXPECT_EQ(used.end(), cudaSuccess);
}

TEST_P(Capture, TwoCapturesCannotMerge) {
  Material used;
  ASSERT_EQ(used.begin(), cudaSuccess);
  ASSERT_EQ(api().cudaStreamBeginCapture(used.other, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(api().cudaEventRecord(used.event, used.other), cudaSuccess);
  EXPECT_EQ(api().cudaStreamWaitEvent(used.stream, used.event, 0), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(used.end(used.other), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(used.end(), cudaErrorStreamCaptureInvalidated);
}

TEST_P(Capture, AnEventOfAPastCaptureIsOfNoUseUntilItIsRecordedAgain) {
  Material used;
  ASSERT_EQ(used.begin(), cudaSuccess);
  EXPECT_EQ(api().cudaEventRecord(used.event, used.stream), cudaSuccess);
  EXPECT_EQ(used.end(), cudaSuccess);
  EXPECT_EQ(api().cudaEventQuery(used.event), cudaErrorInvalidValue);
  EXPECT_EQ(api().cudaEventSynchronize(used.event), cudaErrorInvalidValue);
  EXPECT_EQ(api().cudaStreamWaitEvent(used.other, used.event, 0), cudaErrorInvalidValue);
  EXPECT_EQ(api().cudaEventRecord(used.event, used.stream), cudaSuccess);
  EXPECT_EQ(api().cudaEventSynchronize(used.event), cudaSuccess);
}

TEST_P(Capture, TheLegacyStreamCannotBeCapturedOrUsedBesideABlockingOne) {
  Material used(cudaStreamDefault);
  EXPECT_EQ(api().cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed),
            cudaErrorStreamCaptureUnsupported);
  ASSERT_EQ(used.begin(), cudaSuccess);
  cudaStreamCaptureStatus status{};
  EXPECT_EQ(api().cudaStreamGetCaptureInfo(nullptr, &status, nullptr, nullptr, nullptr, nullptr, nullptr),
            cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(used.status(used.stream), cudaStreamCaptureStatusActive);
  EXPECT_EQ(fill(used.data, 1, nullptr), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(used.end(), cudaErrorStreamCaptureInvalidated);
}

TEST_P(Capture, ARelaxedThreadMayMakeUnsafeCalls) {
  Material used;
  ASSERT_EQ(used.begin(cudaStreamCaptureModeGlobal), cudaSuccess);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  EXPECT_EQ(api().cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(take_and_free(), cudaSuccess);
  EXPECT_EQ(api().cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(used.end(), cudaSuccess);
}

TEST_P(Capture, HasAnIdOfItsOwn) {
  Material used;
  unsigned long long before = 0;
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(used.begin(), cudaSuccess);
    EXPECT_EQ(used.fork(), cudaSuccess);
    unsigned long long id = 0;
    unsigned long long joined = 0;
    cudaStreamCaptureStatus status{};
    api().cudaStreamGetCaptureInfo(used.stream, &status, &id, nullptr, nullptr, nullptr, nullptr);
    api().cudaStreamGetCaptureInfo(used.other, &status, &joined, nullptr, nullptr, nullptr, nullptr);
    EXPECT_EQ(id, joined);
    EXPECT_NE(id, before);
    before = id;
    EXPECT_EQ(used.end(), cudaSuccess);
  }
}

}  // namespace
}  // namespace burin::test
