#pragma once
// Private: what device-independent code asks of CUDA, without a type of CUDA's. Devices exist (check.h's
// require_device). Calls throw CudaError or OutOfMemory, and leave the current device as it was and CUDA's
// last error clear.

#include <burin/runtime/device.h>
#include <burin/runtime/random.h>
#include <burin/runtime/stream.h>
#include <burin/runtime/strided.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace burin::cuda {

/// Devices there are, if one of them can be used.
CudaAvailability availability() noexcept;
/// Why an existing device cannot run this build's kernels; empty if it can.
std::string architecture_problem(int device);

/// Whether this build's kernels for the device know how to start early (launch.h); false if it does not
/// answer.
bool has_early_kernels(int device) noexcept;

std::string model_name(int device);
int multiprocessor_count(int device);  // streaming multiprocessors
void synchronize_device(int device);
/// Bytes; 0 where the device does not tell.
void memory_info(int device, std::size_t* free, std::size_t* total) noexcept;

/// Lets the calling thread allocate, wait for other streams and the like while it captures a stream, for a
/// scope. CUDA refuses that otherwise, and ends the capture. What is called must not touch the capture.
class BesideCapture {
 public:
  BesideCapture() noexcept;
  ~BesideCapture();
  BesideCapture(const BesideCapture&) = delete;
  BesideCapture& operator=(const BesideCapture&) = delete;

 private:
  int mode_;  // to restore
};

void* create_stream(int device, int priority);
void destroy_stream(void* stream) noexcept;
StreamPriorities stream_priorities(int device);
int stream_priority(int device, void* stream);
bool is_stream_idle(int device, void* stream);
void synchronize_stream(int device, void* stream);
inline constexpr std::uint64_t kInvalidCapture = UINT64_MAX;
/// Of the capture that records the stream now; 0: none, kInvalidCapture: one that was invalidated and has not
/// been ended.
std::uint64_t capture_id(StreamView stream);
void stream_wait_event(int device, void* stream, void* event);

void* create_event(int device, bool timing);
void destroy_event(void* event) noexcept;
void record_event(int device, void* event, void* stream);
bool is_event_done(int device, void* event);
void synchronize_event(int device, void* event);
double event_elapsed_ms(int device, void* first, void* later);

// Queued on the stream; addresses are the device's or, for copy_bytes, of any kind.
void copy_bytes(StreamView stream, void* dst, const void* src, std::size_t bytes);
void copy_strided(StreamView stream, DType dst_dtype, void* dst, DType src_dtype, const void* src,
                  const StridedLoop<2>& loop);  // operand 0 is dst
/// Keeps the stream busy for about so long, and nothing else on the device.
void delay(StreamView stream, unsigned microseconds);
void fill(StreamView stream, DType dtype, void* dst, std::int64_t count, double value);
void arange(StreamView stream, DType dtype, void* dst, std::int64_t count, double begin, double step);
void uniform(StreamView stream, DType dtype, void* dst, std::int64_t count, Philox random, float low,
             float high);
void normal(StreamView stream, DType dtype, void* dst, std::int64_t count, Philox random, float mean,
            float stddev);

// Draws that run many times begin `drawn` elements after the place that `state`, on the device, holds when
// they run.
void uniform(StreamView stream, DType dtype, void* dst, std::int64_t count, const Philox* state,
             std::uint64_t drawn, float low, float high);
void normal(StreamView stream, DType dtype, void* dst, std::int64_t count, const Philox* state,
            std::uint64_t drawn, float mean, float stddev);
void set_random_state(StreamView stream, void* slot, Philox value);
void advance_random_state(StreamView stream, void* slot, std::uint64_t count);

}  // namespace burin::cuda
