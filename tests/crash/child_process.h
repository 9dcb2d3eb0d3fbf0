// The child of a crash test, and what its parent asks of it.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "crash/crash_work.h"
#include "quarry/base/process.h"

namespace quarry::crash {

inline constexpr double kPatienceSeconds = 5;  // for a child to come by its kill point

inline uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// A child, until it is dead.
class ChildProcess {
 public:
  explicit ChildProcess(Orders orders) {
    EXPECT_EQ(pipe(pipe_.data()), 0);
    orders.tell = pipe_[1];
    setenv(kOrdersVariable, orders.ToText().c_str(), 1);
    process_ = fork();
    if (process_ == 0) {
      close(pipe_[0]);
      execl("/proc/self/exe", "crash_test", nullptr);
      _exit(127);
    }
    unsetenv(kOrdersVariable);
    close(pipe_[1]);
  }
  ~ChildProcess() { close(pipe_[0]); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Hears it until its time has come, and kills it; true when it died by itself. One that is to die at a kill point is
  // waited for; most of the others die soon after their first message, however slow the machine is, some earlier, some a
  // good deal later.
  template <typename Take>
  bool ListenAndKill(bool at_point, bool at_operation, Rng& rng, const Take& take) const {
    const double start = MonotonicSeconds();
    bool dead = false;
    const auto hear = [&](double deadline) {
      if (const std::optional<Message> message = Hear(deadline, dead)) take(*message);
    };
    if (at_point) {
      while (!dead && MonotonicSeconds() < start + kPatienceSeconds) hear(start + kPatienceSeconds);
    } else {
      const uint64_t kind = rng.Below(8);
      const double wait = 1e-6 * static_cast<double>(rng.Below(kind == 0 ? 300'000 : 40'000));
      if (kind != 1) hear(start + kPatienceSeconds);
      const double end = MonotonicSeconds() + (at_operation ? 0.1 : wait);
      while (!dead && MonotonicSeconds() < end) hear(end);
    }
    const bool by_itself = dead;
    Kill();
    while (!dead) hear(MonotonicSeconds() + kPatienceSeconds);
    return by_itself;
  }

 private:
  // Its next message before `deadline`, in seconds of the clock; nothing when it has not come. `dead` when
  // none will.
  std::optional<Message> Hear(double deadline, bool& dead) const {
    pollfd heard{.fd = pipe_[0], .events = POLLIN, .revents = 0};
    const double seconds = std::max(0.0, deadline - MonotonicSeconds());
    if (poll(&heard, 1, static_cast<int>(seconds * 1000 + 0.999)) <= 0) return {};
    Message message;
    dead = read(pipe_[0], &message, sizeof(message)) != sizeof(message);
    return dead ? std::nullopt : std::optional(message);
  }
  void Kill() const {
    kill(process_, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(process_, &status, 0), process_);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << "the child ended by itself: " << status;
  }

  std::array<int, 2> pipe_{};
  pid_t process_ = -1;
};

}  // namespace quarry::crash
