// The CUDA runtime behind a table whose functions a test replaces: every failure path, on machines without a
// GPU.

#include <burin/runtime/cuda/cublaslt_api.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/cuda/cudnn_api.h>
#include <burin/runtime/cuda/device_guard.h>
#include <burin/runtime/cuda/dynamic_library.h>
#include <burin/runtime/cuda/launch.h>
#include <burin/runtime/event.h>
#include <support/test_support.h>

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace burin::cuda {
namespace {

using test::expect_error;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// What the fake functions return and record. One test at a time uses it.
struct Fake {
  int devices = 2;
  int current = 0;
  int driver = 13000;
  int capability_major[2] = {9, 9};
  cudaError_t count_code = cudaSuccess;
  cudaError_t code = cudaSuccess;  // of the function under test
  cudaError_t last_error = cudaSuccess;
  std::vector<std::string> calls;

  cudaError_t result(const char* call) {
    calls.emplace_back(call);
    if (code != cudaSuccess) last_error = code;
    return code;
  }
};
Fake* fake = nullptr;

CudaApi fake_table() {
  CudaApi table = api();  // names and texts of errors come from the real one
  table.cudaGetDeviceCount = [](int* count) {
    *count = fake->devices;
    if (fake->count_code != cudaSuccess) fake->last_error = fake->count_code;
    return fake->count_code;
  };
  table.cudaDriverGetVersion = [](int* version) {
    *version = fake->driver;
    return cudaSuccess;
  };
  table.cudaRuntimeGetVersion = [](int* version) {
    *version = 13000;
    return cudaSuccess;
  };
  table.cudaDeviceGetAttribute = [](int* value, cudaDeviceAttr attribute, int device) {
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? fake->capability_major[device] : 0;
    return cudaSuccess;
  };
  table.cudaGetDevice = [](int* device) {
    *device = fake->current;
    return cudaSuccess;
  };
  table.cudaSetDevice = [](int device) {
    fake->current = device;
    fake->calls.push_back("cudaSetDevice " + std::to_string(device));
    return cudaSuccess;
  };
  table.cudaGetLastError = [] { return std::exchange(fake->last_error, cudaSuccess); };
  table.cudaDeviceGetStreamPriorityRange = [](int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  };
  table.cudaStreamCreateWithPriority = [](cudaStream_t* stream, unsigned flags, int priority) {
    *stream = reinterpret_cast<cudaStream_t>(0x10);
    EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamNonBlocking));
    return fake->result(("cudaStreamCreateWithPriority " + std::to_string(priority)).c_str());
  };
  table.cudaStreamDestroy = [](cudaStream_t) { return fake->result("cudaStreamDestroy"); };
  table.cudaStreamQuery = [](cudaStream_t) { return fake->result("cudaStreamQuery"); };
  table.cudaStreamSynchronize = [](cudaStream_t) { return fake->result("cudaStreamSynchronize"); };
  table.cudaEventCreateWithFlags = [](cudaEvent_t*, unsigned) {
    return fake->result("cudaEventCreateWithFlags");
  };
  table.cudaMemGetInfo = [](std::size_t* free, std::size_t* total) {
    *free = 30;
    *total = 100;
    return cudaSuccess;
  };
  table.cudaMalloc = [](void** data, std::size_t) {
    *data = reinterpret_cast<void*>(0x100);
    return fake->result("cudaMalloc");
  };
  table.cudaFree = [](void*) { return fake->result("cudaFree"); };
  table.cudaHostAlloc = [](void**, std::size_t, unsigned) { return fake->result("cudaHostAlloc"); };
  table.cudaLaunchKernelExC = [](const cudaLaunchConfig_t* config, const void*, void**) {
    const bool early = config->numAttrs == 1 &&
                       config->attrs[0].id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                       config->attrs[0].val.programmaticStreamSerializationAllowed == 1;
    return fake->result(early ? "cudaLaunchKernelExC early" : "cudaLaunchKernelExC");
  };
  table.cudaFuncSetAttribute = [](const void*, cudaFuncAttribute, int value) {
    fake->calls.push_back("cudaFuncSetAttribute " + std::to_string(value));
    return cudaSuccess;
  };
  return table;
}

class CudaTables : public ::testing::Test {
 protected:
  CudaTables() : table_(fake_table()), scope_((fake = &fake_, table_)) {}
  ~CudaTables() override { fake = nullptr; }

  Fake fake_;
  CudaApi table_;
  ScopedCudaApi scope_;
};

TEST_F(CudaTables, StreamsHaveAClampedPriorityAndAreDestroyed) {
  { const Stream stream(Device::cuda(0), -100); }
  { const Stream stream(Device::cuda(0), 100); }
  EXPECT_THAT(fake_.calls, ElementsAre("cudaStreamCreateWithPriority -5", "cudaStreamDestroy",
                                       "cudaStreamCreateWithPriority 0", "cudaStreamDestroy"));
}

TEST_F(CudaTables, AFailedCallNamesItselfAndClearsTheLastError) {
  fake_.code = cudaErrorInvalidValue;
  try {
    const Stream stream(Device::cuda(0));
    FAIL() << "no exception";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.code(), cudaErrorInvalidValue);
    EXPECT_THAT(error.what(),
                HasSubstr("stream: cudaStreamCreateWithPriority failed: cudaErrorInvalidValue ("));
  }
  EXPECT_EQ(fake_.last_error, cudaSuccess);
  fake_.code = cudaSuccess;
  EXPECT_NO_THROW(Stream(Device::cuda(0)));  // not an error that loses the device
}

TEST_F(CudaTables, AnUnfinishedQueryIsNoError) {
  const Stream stream(Device::cuda(0));
  fake_.code = cudaErrorNotReady;
  EXPECT_FALSE(stream.view().is_idle());
  EXPECT_EQ(fake_.last_error, cudaSuccess);
  fake_.code = cudaSuccess;
  EXPECT_TRUE(stream.view().is_idle());
}

TEST_F(CudaTables, AnUnrecoverableErrorIsRepeatedByEveryLaterCall) {
  const Stream stream(Device::cuda(0));
  fake_.code = cudaErrorIllegalAddress;
  expect_error<CudaError>([&] { stream.synchronize(); },
                          "stream.synchronize: cudaStreamSynchronize failed: cudaErrorIllegalAddress");
  fake_.code = cudaErrorLaunchFailure;  // a later cause does not replace the first
  EXPECT_THROW(stream.synchronize(), CudaError);
  fake_.code = cudaSuccess;
  try {
    const Event event(Device::cuda(0));
    FAIL() << "no exception";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.code(), cudaErrorIllegalAddress);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("event: CUDA cannot be used since it failed earlier"),
                                    HasSubstr("stream.synchronize: cudaStreamSynchronize")));
  }
}

TEST_F(CudaTables, K1_OutOfMemoryHasFiguresAndClearsTheLastError) {
  const Stream stream(Device::cuda(1));
  const std::shared_ptr<MemoryResource> memory = make_cuda_resource(1);
  fake_.code = cudaErrorMemoryAllocation;
  try {
    memory->allocate(70, stream);
    FAIL() << "no exception";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.figures().requested, 70u);
    EXPECT_EQ(error.figures().free, 30u);
    EXPECT_EQ(error.figures().total, 100u);
    EXPECT_THAT(error.what(), HasSubstr("70 bytes could not be allocated on cuda:1"));
  }
  EXPECT_EQ(fake_.last_error, cudaSuccess);
  EXPECT_THROW(Stream(Device::cuda(0)), OutOfMemory);  // so is a stream for which there is no memory
  EXPECT_THROW(make_pinned_resource()->allocate(1 << 20, stream), OutOfMemory);
  fake_.code = cudaSuccess;
  void* data = memory->allocate(70, stream);
  memory->deallocate(data, 70, stream);
  EXPECT_EQ(fake_.current, 0) << "the caller's device is restored";
}

TEST_F(CudaTables, K10_DestructionToleratesAnUnloadedDriver) {
  {
    const Stream stream(Device::cuda(1));
    const std::shared_ptr<Buffer> buffer = Buffer::allocate(make_cuda_resource(1), 70, stream);
    fake_.code = cudaErrorCudartUnloading;
  }
  EXPECT_THAT(fake_.calls, ::testing::Contains("cudaFree"));
}

TEST_F(CudaTables, AvailabilitySaysPreciselyWhyNot) {
  const auto reason = [&](cudaError_t code, int driver) {
    fake_.count_code = code;
    fake_.driver = driver;
    fake_.devices = 0;
    const CudaAvailability result = availability();
    EXPECT_EQ(result.count, 0);
    EXPECT_EQ(fake_.last_error, cudaSuccess);
    return result.reason;
  };
  EXPECT_EQ(reason(cudaErrorInsufficientDriver, 0), "no NVIDIA driver is installed");
  EXPECT_EQ(reason(cudaErrorInsufficientDriver, 12040),
            "the NVIDIA driver is too old: it supports CUDA 12.4, and this Burin needs 13.0");
  EXPECT_THAT(reason(cudaErrorNoDevice, 13000), HasSubstr("finds no device"));
  EXPECT_THAT(reason(cudaErrorInitializationError, 13000), HasSubstr("cudaErrorInitializationError"));
}

TEST_F(CudaTables, DevicesOlderThanTheBuildAreRefused) {
  const int lowest = lowest_architecture();
  const std::string built = fmt::format("{}.{}", lowest / 100, lowest % 100 / 10);
  const std::string problem =
      "cuda:1 has compute capability 2.0, and this Burin was built for " + built + " and later";
  fake_.capability_major[1] = 2;
  EXPECT_EQ(availability().count, 2) << "cuda:0 can be used";
  EXPECT_NO_THROW(Stream(Device::cuda(0)));
  expect_error<DeviceError>([] { Stream(Device::cuda(1)); }, "stream: " + problem);
  expect_error<DeviceError>([] { make_cuda_resource(1); }, "cuda_resource: " + problem);
  fake_.capability_major[0] = 2;
  EXPECT_EQ(availability().count, 0);
  EXPECT_EQ(availability().reason, problem);
}

TEST_F(CudaTables, DeviceGuardSwitchesOnlyWhenItMust) {
  { const DeviceGuard guard(0, "test"); }
  EXPECT_TRUE(fake_.calls.empty());
  { const DeviceGuard guard(1, "test"); }
  EXPECT_THAT(fake_.calls, ElementsAre("cudaSetDevice 1", "cudaSetDevice 0"));
}

TEST_F(CudaTables, LaunchChecksItsShape) {
  const Stream stream(Device::cuda(0));
  fake_.calls.clear();
  void* arguments[1] = {};
  const auto run = [&](dim3 grid, dim3 block, std::size_t shared_bytes = 0) {
    launch_untyped("relu", nullptr, {grid, block, shared_bytes}, stream, arguments);
  };
  run(dim3(0), dim3(256));
  run(dim3(1, 0), dim3(256));
  EXPECT_TRUE(fake_.calls.empty());
  expect_error<UnsupportedError>([&] { run(dim3(1, 65536), dim3(1)); }, "relu: a grid of 1 x 65536 x 1");
  expect_error<UnsupportedError>([&] { run(dim3(1), dim3(1025)); }, "relu: a block of 1025 x 1 x 1");
  run(dim3(2), dim3(256), 48 * 1024);
  run(dim3(2), dim3(256), 48 * 1024 + 16);
  EXPECT_THAT(fake_.calls,
              ElementsAre("cudaLaunchKernelExC", "cudaFuncSetAttribute 49168", "cudaLaunchKernelExC"));
  fake_.code = cudaErrorLaunchOutOfResources;
  expect_error<CudaError>([&] { run(dim3(1), dim3(256)); }, "relu: cudaLaunchKernelExC failed");
  EXPECT_EQ(fake_.last_error, cudaSuccess);
}

TEST_F(CudaTables, KernelsStartEarlyWhereTheBuildAndTheDeviceKnowHow) {
  void* arguments[1] = {};
  const auto launched_on = [&](int capability_major, bool starts_early) {
    fake_.capability_major[0] = capability_major;
    const Stream stream(Device::cuda(0));
    fake_.calls.clear();
    launch_untyped("relu", nullptr, {.grid = dim3(1), .block = dim3(1), .starts_early = starts_early}, stream,
                   arguments);
    return fake_.calls.at(0);
  };
  for (const int major : {lowest_architecture() / 100 + 1, 12}) {
    const bool knows = architecture_for(100 * major + 99) >= 900;
    EXPECT_EQ(launched_on(major, true), knows ? "cudaLaunchKernelExC early" : "cudaLaunchKernelExC") << major;
    EXPECT_EQ(launched_on(major, false), "cudaLaunchKernelExC");
  }
}

TEST(Architectures, TheHighestThatADeviceRuns) {
  const int lowest = lowest_architecture();
  EXPECT_EQ(architecture_for(lowest - 1), 0);
  EXPECT_EQ(architecture_for(lowest), lowest);
  EXPECT_GE(architecture_for(100'000), lowest);
}

TEST(Launch, CountsBlocks) {
  EXPECT_EQ(blocks_for("test", 0, 256), 0u);
  EXPECT_EQ(blocks_for("test", 1, 256), 1u);
  EXPECT_EQ(blocks_for("test", 257, 256), 2u);
  expect_error<UnsupportedError>([] { blocks_for("test", std::int64_t{1} << 40, 256); }, "test: ");
  EXPECT_EQ(grid_stride_shape(0).grid.x, 0u);
  EXPECT_EQ(grid_stride_shape(257).grid.x, 2u);
  EXPECT_LE(grid_stride_shape(INT64_MAX).grid.x, 1u << 16);
}

TEST(DynamicLibraryTest, NamesWhatIsMissing) {
  try {
    const DynamicLibrary library("cuFoo", "libburin_no_such_library.so.9");
    FAIL() << "no exception";
  } catch (const LibraryError& error) {
    EXPECT_EQ(error.code(), -1);
    EXPECT_THAT(error.what(),
                HasSubstr("cuFoo: libburin_no_such_library.so.9 could not be opened: libburin_no"));
  }
  const DynamicLibrary math("maths", "libm.so.6");
  double (*cosine)(double) = nullptr;
  math.load(cosine, "cos");
  EXPECT_EQ(cosine(0.0), 1.0);
  expect_error<LibraryError>([&] { math.load(cosine, "burin_no_such_function"); },
                             "maths: libm.so.6 has no function burin_no_such_function");
}

TEST(LibraryTables, OpenOrSayWhatIsMissing) {
  try {
    EXPECT_GE(cudnn_api().cudnnGetVersion(), 90000u);
  } catch (const LibraryError& error) {
    EXPECT_EQ(error.code(), -1);
    EXPECT_THAT(error.what(), HasSubstr("cuDNN: libcudnn.so.9"));
  }
  try {
    EXPECT_GE(cublaslt_api().cublasLtGetVersion(), 130000u);
    expect_error<LibraryError>(
        [] { check_cublaslt(CUBLAS_STATUS_INVALID_VALUE, "cublasLtMatmul", "matmul"); },
        "matmul: cublasLtMatmul failed: CUBLAS_STATUS_INVALID_VALUE");
  } catch (const LibraryError& error) {
    EXPECT_EQ(error.code(), -1);
    EXPECT_THAT(error.what(), HasSubstr("cuBLASLt: libcublasLt.so.13"));
  }
}

}  // namespace
}  // namespace burin::cuda
