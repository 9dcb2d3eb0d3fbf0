// The command line without the trainer: LibTorch, which takes half a second to load, is in quarry-train
// alone.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>
#include <thread>

#include "cli.h"
#include "export_model.h"
#include "quarry/base/process_limits.h"
#include "quarry/base/thread.h"
#include "quarry/base/units.h"

namespace quarry::cli {
namespace {

constexpr unsigned kOwnThreads = 16;  // the catalog's, and the least of the roads

// For the verbs of models, the completion of its words, and files of options, which may be training's.
bool NeedsTrainer(int argc, char** argv) {
  const std::span<char*> arguments(argv + 1, argv + argc);
  const bool configured = std::ranges::any_of(
      arguments, [](std::string_view argument) { return argument.starts_with("--config"); });
  const size_t verb = !arguments.empty() && arguments[0] == kComplete ? 1 : 0;
  if (configured || arguments.size() <= verb) return configured;
  if (arguments[verb] == std::string_view("export")) {
    return std::ranges::any_of(arguments, [](std::string_view argument) {
      return argument == "--run" || argument.starts_with("--run=");
    });
  }
  return arguments[verb] == std::string_view("train") || arguments[verb] == std::string_view("predict");
}

// What LibTorch and OpenBLAS map while they are loaded and when they begin to compute: where they are refused, LibTorch
// ends the process before its main, and OpenBLAS asks for ever.
uint64_t TrainerBytes() {
  constexpr uint64_t kLoadedBytes = 1 * kGiB, kBlasBufferBytes = 128 * kMiB;
  return kLoadedBytes + 2 * std::max(1U, std::thread::hardware_concurrency()) * kBlasBufferBytes;
}

constexpr const char* kMissing =
    "there is no quarry-train beside this program, which has the models and is no part of Quarry's package "
    "for Python: train there with quarry.pyg and any model of PyTorch Geometric, or install the package for "
    "Debian, or build with LibTorch and -DQUARRY_TRAINER=ON";

// A verb of the program that is not there. Its arguments are not looked at.
void AddMissing(CLI::App& app, const char* name, const char* description, Action& action) {
  CLI::App* verb = app.add_subcommand(name, description);
  verb->footer(std::string("Not here: ") + kMissing + ".");
  verb->allow_extras()->fallthrough(false);
  verb->callback([&action] { action = [] { return Status(Code::kUnsupported, kMissing); }; });
}

}  // namespace

void HandOver(int argc, char** argv) {
  if (!NeedsTrainer(argc, argv)) return;
  if (const uint64_t left = AddressSpaceLeft(); left < TrainerBytes()) {
    PrintError(fmt::format(
        "quarry: out of budget: the limit of address space leaves {}, and LibTorch takes {} before it "
        "trains: raise it (ulimit -v)",
        FormatBytes(left), FormatBytes(TrainerBytes())));
    std::exit(ExitCode(Code::kOutOfBudget));
  }
  // OpenBLAS starts its threads while it is loaded, and ends the process by SIGINT where it cannot; the
  // program itself needs some beside them.
  const unsigned threads = std::max(1U, std::thread::hardware_concurrency()) + kOwnThreads;
  if (ProbeThreads(threads) < threads) setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/0);
  // OpenMP's threads would turn in circles while they have nothing to do, on cores that samplers, extractors and BLAS's own
  // threads want: epochs of small models took up to four times as long. Read when the library is loaded.
  setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0);
  // OpenBLAS's wait for a tenth of a second by sched_yield, which took 40 % of all processor seconds of a small model: after
  // 2^16 cycles, about what waking one takes, they sleep.
  setenv("OPENBLAS_THREAD_TIMEOUT", "16", /*overwrite=*/0);
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  execv((self.parent_path() / "quarry-train").c_str(), argv);
}

Status ExportModel(const ModelExport& /*what*/) { return Status(Code::kUnsupported, kMissing); }
void AddTrain(CLI::App& app, Action& action) { AddMissing(app, "train", kTrainDescription, action); }
void AddPredict(CLI::App& app, Action& action) { AddMissing(app, "predict", kPredictDescription, action); }

}  // namespace quarry::cli
