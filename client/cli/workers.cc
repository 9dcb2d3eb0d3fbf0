#include "workers.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cli.h"
#include "quarry/base/process.h"

extern char** environ;

namespace quarry::cli {
namespace {

constexpr int kStatusFd = 3;             // in a worker
constexpr size_t kSentenceBytes = 4096;  // fits into a pipe: a worker never waits to tell
// From the first failure, or Ctrl-C: workers end by themselves, together; those that do not are asked, then
// killed. They have nothing to save.
constexpr double kAskSeconds = 2;
constexpr double kKillSeconds = 5;

constexpr std::string_view kOwnVariables[] = {
    "RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "MASTER_ADDR=", "MASTER_PORT="};

// What names a file that one process writes.
constexpr std::string_view kOwnOptions[] = {"--trace", "--save-config"};

// The arguments of this process, as they were given, without those.
Result<std::vector<std::string>> OwnArguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  if (all.empty()) return ErrnoStatus(ENOENT, "read", "/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (size_t at = 0; at < all.size(); at += arguments.back().size() + 1) arguments.emplace_back(&all[at]);
  for (const std::string_view own : kOwnOptions) {
    const auto found = std::ranges::find(arguments, own);
    if (found != arguments.end()) arguments.erase(found, found + 2);
    std::erase_if(arguments,
                  [&](const std::string& argument) { return argument.starts_with(fmt::format("{}=", own)); });
  }
  return arguments;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(uint32_t rank, uint32_t count, const WorkerFolder& folder) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; variable++) {
    const std::string_view text(*variable);
    if (std::ranges::none_of(kOwnVariables, [&](auto own) { return text.starts_with(own); })) {
      variables.emplace_back(text);
    }
  }
  variables.push_back(fmt::format("RANK={}", rank));
  variables.push_back(fmt::format("LOCAL_RANK={}", rank));
  variables.push_back(fmt::format("WORLD_SIZE={}", count));
  variables.push_back(fmt::format("MASTER_ADDR={}/rendezvous", folder.path()));
  return variables;
}

struct Worker {
  uint32_t rank = 0;
  pid_t process = -1;    // -1: has been waited for
  int process_fd = -1;   // a pidfd: readable when the process has ended
  int status_pipe = -1;  // -1: has told all
  std::string told;      // a code's number, then the message
};

// How a worker ended; nothing while it has not, or did well.
struct Outcome {
  std::optional<Status> failure;
  bool crashed = false;  // without a word: what others tell then follows from it
};

Status StatusOf(const std::string& told) { return {static_cast<Code>(told[0]), told.substr(1)}; }

Outcome OutcomeOf(const Worker& worker, int exit) {
  if (!worker.told.empty()) return {StatusOf(worker.told), false};
  if (WIFEXITED(exit) && WEXITSTATUS(exit) == 0) return {};
  const std::string how = WIFSIGNALED(exit) ? fmt::format("was ended by signal {} ({})", WTERMSIG(exit),
                                                          strsignal(WTERMSIG(exit)))
                                            : fmt::format("ended with exit code {}", WEXITSTATUS(exit));
  return {MakeStatus(Code::kInternal, "trainer {} (process {}) {}", worker.rank, worker.process, how), true};
}

class Workers {
 public:
  ~Workers() {
    for (Worker& worker : workers_) {
      if (worker.process > 0) kill(worker.process, SIGKILL);
    }
    for (Worker& worker : workers_) {
      if (worker.process > 0) waitpid(worker.process, nullptr, 0);
      if (worker.process_fd >= 0) close(worker.process_fd);
      if (worker.status_pipe >= 0) close(worker.status_pipe);
    }
  }

  Status Start(uint32_t rank, std::vector<std::string> arguments, std::vector<std::string> environment) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return ErrnoStatus(errno, "make", "a pipe");
    workers_.push_back({.rank = rank, .status_pipe = ends[0]});
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // In the child the descriptor loses close-on-exec, also where the two numbers are equal.
    posix_spawn_file_actions_adddup2(&actions, ends[1], kStatusFd);
    if (rank > 0) posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    const int error = posix_spawn(&workers_.back().process, "/proc/self/exe", &actions, nullptr,
                                  Pointers(arguments).data(), Pointers(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error != 0) {
      workers_.back().process = -1;
      return ErrnoStatus(error, "start", "/proc/self/exe");
    }
    workers_.back().process_fd = static_cast<int>(syscall(SYS_pidfd_open, workers_.back().process, 0));
    return workers_.back().process_fd >= 0 ? Status::Ok()
                                           : ErrnoStatus(errno, "watch", "a trainer's process");
  }

  // Until the last has ended.
  Status Wait() {
    while (std::ranges::any_of(workers_, [](const Worker& worker) { return worker.process > 0; })) {
      WaitForNext();
      if (Interrupted() || failure_) End();
    }
    if (failure_) return *failure_;
    return Interrupted() ? Status(Code::kCancelled, "interrupted") : Status::Ok();
  }

 private:
  // Until one has ended, Ctrl-C, or the time for End's next step.
  void WaitForNext() {
    std::vector<pollfd> ends;
    for (const Worker& worker : workers_) {
      ends.push_back({.fd = worker.process_fd, .events = POLLIN, .revents = 0});
    }
    WaitForInterrupt(MillisecondsToNextStep(), ends);
    for (size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].revents != 0) Hear(workers_[i]);
    }
  }
  int MillisecondsToNextStep() const {
    if (ending_since_ == 0 || killed_) return -1;
    const double seconds = (asked_ ? kKillSeconds : kAskSeconds) - (MonotonicSeconds() - ending_since_);
    return static_cast<int>(std::ceil(std::max(seconds, 0.0) * 1000));
  }

  // What the worker has told, and how it ended.
  void Hear(Worker& worker) {
    int exit = 0;
    if (waitpid(worker.process, &exit, 0) != worker.process) return;
    close(std::exchange(worker.process_fd, -1));
    std::array<char, kSentenceBytes> bytes{};
    const ssize_t count = read(worker.status_pipe, bytes.data(), bytes.size());
    if (count > 0) worker.told.assign(bytes.data(), static_cast<size_t>(count));
    close(std::exchange(worker.status_pipe, -1));
    const Outcome outcome = OutcomeOf(worker, exit);
    worker.process = -1;
    // Those that were ended here, or lost one of theirs, are not why.
    if (!outcome.failure || (asked_ && outcome.crashed) || (failure_ && (crashed_ || !outcome.crashed)))
      return;
    failure_ = outcome.failure;
    crashed_ = outcome.crashed;
  }

  void End() {
    if (ending_since_ == 0) ending_since_ = MonotonicSeconds();
    const double seconds = MonotonicSeconds() - ending_since_;
    if (!asked_ && seconds >= kAskSeconds) {
      asked_ = true;
      Signal(SIGTERM);
    }
    if (!killed_ && seconds >= kKillSeconds) {
      killed_ = true;
      Signal(SIGKILL);
    }
  }

  void Signal(int signal) const {
    for (const Worker& worker : workers_) {
      if (worker.process > 0) kill(worker.process, signal);
    }
  }

  std::vector<Worker> workers_;
  std::optional<Status> failure_;
  bool crashed_ = false;  // the failure is one
  double ending_since_ = 0;
  bool asked_ = false;
  bool killed_ = false;
};

}  // namespace

void WorkerFlags::AddTo(CLI::App* verb) {
  constexpr const char* kGroup = "Several trainers";
  verb->add_option(
          "--workers", count,
          "processes that train one model together, each on a share of the batches; a step is one of "
          "that many batches")
      ->type_name("N")
      ->check(CLI::Range(1, 64))
      ->group(kGroup);
  constexpr const char* kHidden = "";
  for (CLI::Option* const option :
       {verb->add_option("--worker-address", address), verb->add_option("--worker-memory", memory_bytes),
        verb->add_option("--worker-status", status_fd)}) {
    option->group(kHidden)->configurable(false);  // so that a worker runs with what its starter does
  }
}

Result<std::unique_ptr<WorkerFolder>> WorkerFolder::Make() {
  std::error_code error;
  std::string path = std::filesystem::temp_directory_path(error).string() + "/quarry-train-XXXXXX";
  if (error || mkdtemp(path.data()) == nullptr) return ErrnoStatus(errno, "make the folder", path);
  return std::unique_ptr<WorkerFolder>(new WorkerFolder(std::move(path)));
}

WorkerFolder::~WorkerFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

Status RunWorkers(uint32_t count, const std::string& address, uint64_t memory_bytes,
                  const WorkerFolder& folder) {
  QUARRY_TRY(std::vector<std::string> arguments, OwnArguments());
  for (std::string more :
       {std::string("--worker-address"), address, std::string("--worker-memory"),
        fmt::format("{}", memory_bytes), std::string("--worker-status"), fmt::format("{}", kStatusFd)}) {
    arguments.push_back(std::move(more));
  }
  Workers workers;
  for (uint32_t rank = 0; rank < count; rank++) {
    QUARRY_RETURN_IF_ERROR(workers.Start(rank, arguments, Environment(rank, count, folder)));
  }
  return workers.Wait();
}

Status FollowStarter(int status_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pollfd reader{.fd = status_fd, .events = 0};  // it may have ended before
  if (poll(&reader, 1, 0) == 0) return Status::Ok();
  return MakeStatus(Code::kUsage, "--worker-status {}: nobody listens there", status_fd);
}

Status TellStarter(int status_fd, const Status& status) {
  if (status.ok()) return status;
  std::string told(1, static_cast<char>(status.code()));
  told += status.message().substr(0, kSentenceBytes - 1);
  if (write(status_fd, told.data(), told.size()) < 0) return status;
  return Status::Ok();
}

}  // namespace quarry::cli
