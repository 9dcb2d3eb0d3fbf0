// The command line: one file per verb (import.cc, train.cc, ...), each adding itself to the application here.
//
// Conventions: results on stdout, progress and notes on stderr; exit codes 0, 1 (failed), 2 (usage), 3
// (corruption).
#pragma once

#include <fmt/format.h>
#include <poll.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/base/text.h"
#include "quarry/base/units.h"
#include "quarry/storage/checkpoint.h"

namespace quarry::cli {

// Set by the verb that was chosen while parsing; run after it.
using Action = std::function<Status()>;

void AddCalibrate(CLI::App& app, Action& action);
void AddCheckpoint(CLI::App& app, Action& action);
void AddAdd(CLI::App& app, Action& action);
void AddRemove(CLI::App& app, Action& action);
void AddCompact(CLI::App& app, Action& action);
void AddCompletion(CLI::App& app, Action& action);
void AddDoctor(CLI::App& app, Action& action);
void AddCreateTable(CLI::App& app, Action& action);
void AddDrop(CLI::App& app, Action& action);
void AddExport(CLI::App& app, Action& action);
void AddGenerate(CLI::App& app, Action& action);
void AddImport(CLI::App& app, Action& action);
void AddInfo(CLI::App& app, Action& action);
void AddLayout(CLI::App& app, Action& action);
void AddLayoutExplain(CLI::App& layout, Action& action);  // verbs of layout
void AddPartition(CLI::App& app, Action& action);
void AddPlot(CLI::App& app, Action& action);
void AddPredict(CLI::App& app, Action& action);
void AddPull(CLI::App& app, Action& action);
void AddPush(CLI::App& app, Action& action);
void AddPut(CLI::App& app, Action& action);
void AddRepair(CLI::App& app, Action& action);
void AddRestore(CLI::App& app, Action& action);
void AddServe(CLI::App& app, Action& action);
void AddSql(CLI::App& app, Action& action);
void AddStats(CLI::App& app, Action& action);
void AddTop(CLI::App& app, Action& action);
void AddTrain(CLI::App& app, Action& action);
void AddUpgrade(CLI::App& app, Action& action);
void AddVerify(CLI::App& app, Action& action);

// The first argument of what a shell runs at each TAB, with the words behind `quarry` after it; no verb, since
// those words need not parse.
inline constexpr std::string_view kComplete = "__complete";
// Prints what the last of the words may become, a line each: the word, a TAB, and what it means.
void PrintCompletions(const CLI::App& app, std::span<const std::string_view> words);

inline constexpr const char* kTrainDescription = "train on a database: classify nodes, or predict edges";
inline constexpr const char* kPredictDescription =
    "what a trained model says of nodes: classes, scores, vectors";

// The group in help of the options of train that belong to link prediction alone.
inline constexpr const char* kLinkGroup = "Link prediction (--task link)";

// Where the arguments need the program that trains, and this is not it, becomes that one. Otherwise returns.
void HandOver(int argc, char** argv);

// To stdout; unlike fmt::print it does not throw when stdout is gone. What would steer a terminal is escaped
// (text.h): names in a database may hold any bytes.
template <typename... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fputs(Printable(text, LineEnds::kKeep).c_str(), stdout);
}

// A line, flushed: whoever reads the pipe sees an epoch when it ends.
inline void PrintLine(std::string_view line) {
  Print("{}\n", line);
  std::fflush(stdout);
}

// "1 run", "2 runs".
inline std::string Counted(uint64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

// A line on stderr, escaped as above.
inline void PrintError(std::string_view line) { std::fprintf(stderr, "%s\n", Printable(line).c_str()); }

// "231 MiB/s"
inline std::string FormatRate(double bytes, double seconds) {
  return FormatBytes(static_cast<uint64_t>(seconds > 0 ? bytes / seconds : 0)) + "/s";
}

// What a checkpoint or a restoring made at `path`.
void PrintCheckpoint(const std::string& path, const CheckpointReport& report, bool json);

// True once SIGINT or SIGTERM has arrived.
bool Interrupted();
void ForgetInterrupt();  // for a shell: what was interrupted has ended

// Until SIGINT or SIGTERM arrives, where none has; one of `others` has an event, which is in its `revents` then; or so
// many milliseconds have passed, where that is not negative.
void WaitForInterrupt(int milliseconds, std::span<pollfd> others = {});

// A bar on stderr while it is a terminal (nothing otherwise); erases itself at the end. One thread.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  // Redraws at most ten times a second; shows a rate and the time left where total is known.
  void Show(std::string_view phase, uint64_t done, uint64_t total, std::string_view unit = "");
  void Clear();
  // As the engine wants it: shows, and returns kCancelled once Interrupted(), with what the command leaves.
  ProgressFunction AsFunction(std::string left = "nothing was left behind");

 private:
  const bool terminal_;
  std::string phase_;
  double phase_start_ = 0;
  double last_drawn_ = 0;
  bool drawn_ = false;
};

}  // namespace quarry::cli
