#include "trace_option.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "quarry/base/log.h"
#include "quarry/base/trace.h"

namespace quarry::cli {
namespace {

constexpr std::array<std::string_view, 19> kLongVerbs = {
    "calibrate",      "checkpoint",     "compact",      "export", "generate", "import", "layout build",
    "layout explain", "layout rebuild", "layout trace", "pull",   "push",     "put",    "repair",
    "restore",        "serve",          "sql",          "train",  "verify"};

// One of several trainers of one run has a file of its own: they were started by one command line.
std::string PathOfRank(const std::string& path) {
  constexpr std::array<std::pair<const char*, const char*>, 4> kLaunchers = {
      {{"RANK", "WORLD_SIZE"},
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
       {"PMI_RANK", "PMI_SIZE"},
       {"SLURM_PROCID", "SLURM_NTASKS"}}};
  for (const auto& [rank, count] : kLaunchers) {
    const char* const ranks = std::getenv(count);
    const char* const mine = std::getenv(rank);
    if (ranks != nullptr && mine != nullptr && std::atoi(ranks) > 1) return fmt::format("{}.{}", path, mine);
  }
  return path;
}

Status Write(int fd, const std::string& path) {
  QUARRY_TRY(const TraceReport report, WriteTrace(fd, path));
  LogInfo("{}: {} spans of {} threads; open it in ui.perfetto.dev", path, report.spans, report.threads);
  if (report.dropped > 0) LogInfo("{}: {} later spans had no room", path, report.dropped);
  return Status::Ok();
}

}  // namespace

void AddTrace(CLI::App& app, std::string& path) {
  for (CLI::App* const verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    AddTrace(*verb, path);
    const std::string& own = verb->get_name();
    const std::string name = app.get_parent() == nullptr ? own : app.get_name() + " " + own;
    if (std::ranges::count(kLongVerbs, name) == 0) continue;
    verb->add_option("--trace", path, "write a trace of where the time goes, for Perfetto")
        ->type_name("FILE");
  }
}

Status RunTraced(const std::string& file, const Action& action) {
  if (file.empty()) return action();
  const std::string path = PathOfRank(file);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "create", path);
  StartTrace();
  Status status = action();
  StopTrace();
  const Status written = Write(fd, path);
  close(fd);
  if (!status.ok() && !written.ok()) LogInfo("{}", written.message());
  return status.ok() ? written : status;
}

}  // namespace quarry::cli
