// K11: a process that forks after it used CUDA.

#include <burin/runtime/event.h>
#include <support/cuda_fixture.h>

#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace burin::test {
namespace {

/// Runs `body` in a forked child; what it returned, or how the child ended.
std::string in_child(const std::function<std::string()>& body) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a hang ends by a signal
    std::string answer;
    try {
      answer = body();
    } catch (const std::exception& error) {
      answer = std::string("threw ") + error.what();
    }
    const bool told = write(pipe_ends[1], answer.data(), answer.size()) == ssize_t(answer.size());
    _exit(told ? 0 : 1);
  }
  close(pipe_ends[1]);
  std::string answer;
  char text[1024];
  for (ssize_t n; (n = read(pipe_ends[0], text, sizeof text)) > 0;) answer.append(text, std::size_t(n));
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) answer += " (status " + std::to_string(status) + ")";
  return answer;
}

/// "ok", or what is wrong with how `call` fails.
template <class Exception, class Call>
std::string refused(const char* what, Call&& call) {
  try {
    call();
  } catch (const Exception& error) {
    const std::string text = error.what();
    return text.find("CUDA was used before fork()") != std::string::npos ? "ok" : text;
  }
  return std::string(what) + " did not fail";
}

class Fork : public OnCuda {};

TEST_F(Fork, K11_TheChildIsToldAndTheParentGoesOn) {
  auto ctx = std::make_optional<Context>(make_context());
  auto x = std::make_optional<Tensor>(full(*ctx, {1000}, 3, DType::u8));
  auto event = std::make_optional<Event>(Device::cuda(0));
  event->record(ctx->stream());

  const std::string answer = in_child([&]() -> std::string {
    const std::string answers[] = {
        refused<CudaError>("synchronize", [&] { ctx->synchronize(); }),
        refused<CudaError>("is_idle", [&] { static_cast<void>(ctx->stream().is_idle()); }),
        refused<CudaError>("is_done", [&] { static_cast<void>(event->is_done()); }),
        refused<CudaError>("full", [&] { full(*ctx, {10}, 0, DType::u8); }),
        refused<CudaError>("to_vector", [&] { to_vector<std::uint8_t>(*ctx, *x); }),
        refused<DeviceError>("context", [] { Context context(Device::cuda(0)); }),
        refused<DeviceError>("stream", [] { Stream stream(Device::cuda(0)); }),
        refused<DeviceError>("pinned", [&] { empty_pinned(*ctx, {3}); }),
    };
    for (const std::string& one : answers)
      if (one != "ok") return one;
    if (cuda_availability().count != 0) return "availability counts devices";
    ContextOptions options;
    options.threads = 1;
    Context cpu(Device::cpu(), std::move(options));
    if (to_vector<float>(cpu, full(cpu, {3}, 7)) != std::vector<float>(3, 7.0f)) return "the CPU is wrong";
    const std::uint64_t calls = fake() ? fake()->calls() : 0;
    x.reset();
    event.reset();
    ctx.reset();
    return fake() && fake()->calls() != calls ? "destruction called the driver" : "ok";
  });
  EXPECT_EQ(answer, "ok");
  EXPECT_EQ(to_vector<std::uint8_t>(*ctx, *x), std::vector<std::uint8_t>(1000, 3));
  EXPECT_TRUE(event->is_done());
}

}  // namespace
}  // namespace burin::test
