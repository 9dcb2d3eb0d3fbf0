// quarry: the composition of the verbs, and the one place where a Status becomes an exit code.
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

#include "cli.h"
#include "command.h"
#include "config_file.h"
#include "print_json.h"
#include "quarry/base/exhaustion.h"
#include "quarry/base/process_limits.h"
#include "quarry/base/units.h"
#include "sql_print.h"
#include "trace_option.h"
#include "usage.h"
#include "version.h"

namespace quarry::cli {

// The only globals of the process: a signal handler can reach nothing else.
std::atomic<bool> interrupted{false};
std::atomic<int> interrupt_event{
    -1};  // an eventfd, readable from the first signal on until that is forgotten

bool Interrupted() { return interrupted.load(std::memory_order_relaxed); }
void ForgetInterrupt() {
  uint64_t count = 0;
  static_cast<void>(!read(interrupt_event, &count, sizeof(count)));
  interrupted = false;
}

void WaitForInterrupt(int milliseconds, std::span<pollfd> others) {
  std::vector<pollfd> all(others.begin(), others.end());
  if (!Interrupted()) all.push_back({.fd = interrupt_event, .events = POLLIN, .revents = 0});
  poll(all.data(), all.size(), milliseconds);
  std::copy_n(all.begin(), others.size(), others.begin());
}

namespace {

void OnSignal(int signal) {
  if (interrupted.exchange(true)) {  // asked twice: the user means it
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  const int error = errno;
  const uint64_t one = 1;
  static_cast<void>(!write(interrupt_event, &one, sizeof(one)));
  errno = error;
}

Status HearSignals() {
  interrupt_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (interrupt_event < 0) return ErrnoStatus(errno, "make", "an eventfd for signals");
  std::signal(SIGINT, OnSignal);
  std::signal(SIGTERM, OnSignal);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond RLIMIT_FSIZE is an error like that of a full disk
  return Status::Ok();
}

// Refuses a command that would not even have room for what libraries take without asking, such as glibc for the
// destructors of a thread: where they find none, they end the process.
Status CheckAddressSpace() {
  constexpr uint64_t kLeast = 128 * kMiB;
  const uint64_t left = AddressSpaceLeft();
  if (left >= kLeast) return Status::Ok();
  return MakeStatus(Code::kOutOfBudget,
                    "the limit of address space leaves {}, and a command takes {}: raise it (ulimit -v)",
                    FormatBytes(left), FormatBytes(kLeast));
}

// What is asked for by the environment is there, too.
Status CheckEnvironment() {
  struct Variable {
    const char* name;
    std::vector<std::string_view> values;
  };
  const Variable variables[] = {{"QUARRY_LOG", {"off", "error", "err", "warn", "warning", "info", "debug"}},
                                {"QUARRY_IO", {"uring", "threads"}}};
  for (const auto& [name, values] : variables) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == 0 || std::ranges::find(values, value) != values.end()) continue;
    return MakeStatus(Code::kUsage, "{}={} in the environment: it is one of {}", name, value,
                      fmt::join(values, ", "));
  }
  return Status::Ok();
}

std::string_view WordOf(const char* word) { return word == nullptr ? std::string_view() : word; }

// A sentence for people, and an object besides where stdout is read by a program and has none yet: reports of
// `verify` and others say what is wrong. Returns the exit code.
int Fail(const Status& status, bool json) {
  PrintError("quarry: " + status.ToString());
  if (json && !JsonPrinted()) {
    PrintJson({{"error",
                {{"code", CodeName(status.code())},
                 {"message", status.message()},
                 {"exit_code", ExitCode(status.code())}}}});
  }
  return ExitCode(status.code());
}

// "quarry help train" is `quarry train --help`.
std::vector<char*> Words(int argc, char** argv) {
  std::vector<char*> words(argv, argv + argc);
  if (argc < 2 || std::string_view(argv[1]) != "help") return words;
  static char help[] = "--help";
  words.erase(words.begin() + 1);
  words.push_back(help);
  return words;
}

// Writes down what the action runs with before it begins: what fails or is killed can be run again, too.
Status Run(const CLI::App& app, const std::string& config_path, const std::string& trace_path,
           const Action& action) {
  QUARRY_RETURN_IF_ERROR(CheckAddressSpace());
  QUARRY_RETURN_IF_ERROR(CheckEnvironment());
  if (!config_path.empty()) QUARRY_RETURN_IF_ERROR(SaveConfig(app, config_path));
  return RunTraced(trace_path, action);
}

}  // namespace

// Ends the process where memory ran out in a thread that a library started: nobody could catch it. What was
// acknowledged is on disk, as after any other death of the process. Bugs still abort.
[[noreturn]] void OnTerminate() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    constexpr std::string_view kSentence =
        "quarry: out of budget: a library found no memory on a thread of its own, and the command ends: "
        "raise the "
        "limit (ulimit -v, the cgroup's memory.max)\n";
    static_cast<void>(!write(STDERR_FILENO, kSentence.data(), kSentence.size()));
    _exit(ExitCode(Code::kOutOfBudget));
  } catch (...) {
  }
  std::abort();
}

int Main(int given_count, char** given) {
  std::set_terminate(OnTerminate);
  std::vector<char*> words = Words(given_count, given);
  const int argc = static_cast<int>(words.size());
  words.push_back(nullptr);
  char** const argv = words.data();
  RaiseDescriptorLimit();
  HandOver(argc, argv);
  const bool json = std::ranges::find(words, std::string_view("--json"), WordOf) != words.end();
  const Status hears = HearSignals();
  if (!hears.ok()) return Fail(hears, json);
  CLI::App app("quarry: a storage engine for the data that graph neural networks train on", "quarry");
  app.formatter(std::make_shared<HelpFormatter>(TerminalWidth(stdout)));
  app.set_version_flag("--version", kVersionLine);
  app.require_subcommand(1);
  app.fallthrough();  // --config may stand behind the verb
  std::string config_path, trace_path;
  AddConfig(app, config_path);
  app.footer("Exit codes: 0 done, 1 failed, 2 usage, 3 corruption. `quarry VERB --help` has an example.");
  Action action;
  AddGenerate(app, action);
  AddImport(app, action);
  AddExport(app, action);
  AddPut(app, action);
  AddAdd(app, action);
  AddRemove(app, action);
  AddCompact(app, action);
  AddInfo(app, action);
  AddStats(app, action);
  AddSql(app, action);
  AddLayout(app, action);
  AddPartition(app, action);
  AddVerify(app, action);
  AddCheckpoint(app, action);
  AddRestore(app, action);
  AddPush(app, action);
  AddPull(app, action);
  AddRepair(app, action);
  AddUpgrade(app, action);
  AddCreateTable(app, action);
  AddDrop(app, action);
  AddCalibrate(app, action);
  AddTrain(app, action);
  AddPredict(app, action);
  AddServe(app, action);
  AddTop(app, action);
  AddPlot(app, action);
  AddDoctor(app, action);
  AddCompletion(app, action);
  AddTrace(app, trace_path);
  if (argc > 1 && argv[1] == kComplete) {
    PrintCompletions(app, std::vector<std::string_view>(argv + 2, argv + argc));
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return Fail(Status(Code::kUsage, UsageFault(app, error)), json);
  }
  const Status status =
      CatchExhaustion(app.get_name(), [&] { return Run(app, config_path, trace_path, action); });
  return status.ok() ? 0 : Fail(status, json);
}

}  // namespace quarry::cli

int quarry_command(int argc, char** argv) {
  try {
    return quarry::cli::Main(argc, argv);
  } catch (const std::bad_alloc&) {  // before there is a command
    std::fputs("quarry: out of budget: no memory to read the command: raise its limit (ulimit -v)\n", stderr);
    return quarry::ExitCode(quarry::Code::kOutOfBudget);
  }
}
