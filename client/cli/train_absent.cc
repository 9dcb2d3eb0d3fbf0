// The train verb of a build without the trainer room: it stays in the help, and says what is missing.
#include "cli.h"

namespace quarry::cli {

void AddTrain(CLI::App& app, Action& action) {
  CLI::App* train =
      app.add_subcommand("train", "Train a model (not in this build: it was made without LibTorch)");
  train->allow_extras();
  train->callback([&action] {
    action = [] {
      return Status(
          Code::kUnsupported,
          "this build has no trainer: configure with -DQUARRY_TRAINER=ON (needs LibTorch) and rebuild");
    };
  });
}

}  // namespace quarry::cli
