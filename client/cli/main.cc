// quarry: the composition of the verbs, and the one place where a Status becomes an exit code.
#include <atomic>
#include <csignal>
#include <cstdio>

#include "cli.h"
#include "trace_option.h"

namespace quarry::cli {

// The only global of the process: a signal handler can reach nothing else.
std::atomic<bool> interrupted{false};

bool Interrupted() { return interrupted.load(std::memory_order_relaxed); }
void ForgetInterrupt() { interrupted = false; }

namespace {

void OnSignal(int signal) {
  if (interrupted.exchange(true)) {  // asked twice: the user means it
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

// CLI11 says of a mistyped verb only that one is required.
std::string UsageFault(const CLI::App& app, int argc, char** argv, const char* fault) {
  if (argc < 2 || argv[1][0] == '-') return fault;
  std::string verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == argv[1]) return fault;
    verbs += (verbs.empty() ? "" : ", ") + verb->get_name();
  }
  return fmt::format("there is no verb '{}'; the verbs are {}", argv[1], verbs);
}

}  // namespace

int Main(int argc, char** argv) {
  std::signal(SIGINT, OnSignal);
  std::signal(SIGTERM, OnSignal);
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app("quarry: a storage engine for the data that graph neural networks train on", "quarry");
  app.set_version_flag("--version", "quarry " QUARRY_VERSION);
  app.require_subcommand(1);
  app.footer("Exit codes: 0 done, 1 failed, 2 usage, 3 corruption. `quarry VERB --help` has an example.");
  Action action;
  AddGenerate(app, action);
  AddImport(app, action);
  AddPut(app, action);
  AddCompact(app, action);
  AddInfo(app, action);
  AddSql(app, action);
  AddLayout(app, action);
  AddVerify(app, action);
  AddCheckpoint(app, action);
  AddRestore(app, action);
  AddRepair(app, action);
  AddDrop(app, action);
  AddCalibrate(app, action);
  AddTrain(app, action);
  AddServe(app, action);
  AddTop(app, action);
  std::string trace_path;
  AddTrace(app, trace_path);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "quarry: usage: %s\n", UsageFault(app, argc, argv, error.what()).c_str());
    return ExitCode(Code::kUsage);
  }
  const Status status = RunTraced(trace_path, action);
  if (!status.ok()) std::fprintf(stderr, "quarry: %s\n", status.ToString().c_str());
  return ExitCode(status.code());
}

}  // namespace quarry::cli

int main(int argc, char** argv) { return quarry::cli::Main(argc, argv); }
