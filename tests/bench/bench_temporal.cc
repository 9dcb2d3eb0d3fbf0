// Link prediction over a graph that grows and drifts, in a database: MRRs of the edges of each round, ranked before they are added,
// by a model that goes on with them in the next epoch (TrainNewestLinks), by one that stopped behind the first round, and by one
// that is trained anew over all that there is.
//
//   bench_temporal [--nodes 20k] [--groups 1000] [--first-edges 100k] [--edges 50k] [--moves 0.1] [--within 0.9]
//                  [--rounds 9] [--window 3] [--epochs 6] [--anew-every 8] [--anew-epochs 18] [--ranked 1000] [--dim 16]
//                  [--batch 1000] [--negatives 200] [--optimizer adam] [--rate 0.02] [--seed 1] [--threads 2]
//                  [--folder build/bench-data]
//
// --window: rounds whose edges stay, 0 = all; --moves: share of the nodes that change their group before a round; --within: share of the edges within a group; --epochs: of a
// round; --ranked: edges of a round that are ranked, both ways among all nodes.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "quarry/base/text.h"
#include "quarry/base/units.h"
#include "trainer/drifting_graph.h"

namespace quarry::bench {
namespace {

using testing_util::DriftCourse;
using testing_util::DriftFollower;
using testing_util::DriftRound;

struct Options {
  DriftCourse course;
  std::string folder = "build/bench-data";
};

Options Defaults() {
  Options options;
  options.course.graph = {.nodes = 20'000,
                          .groups = 1000,
                          .first_edges = 100'000,
                          .edges = 50'000,
                          .moves = 0.1,
                          .within = 0.9,
                          .seed = 1};
  options.course.rounds = 9;
  options.course.window = 3;
  options.course.anew_every = 8;
  options.course.anew_epochs = 18;
  options.course.ranked = 1000;
  LinkTrainOptions& train = options.course.train;
  train.spec.decoder = DecoderKind::kDot;
  train.spec.dim = 16;
  train.negatives = 200;
  train.chunk_edges = 100;
  train.optimizer = OptimizerKind::kAdam;
  train.optimizer_options.learning_rate = 0.02F;
  train.epochs = 6;
  train.seed = 1;
  train.compute_threads = 2;
  return options;
}

Status ParseOption(const std::string& word, const std::string& value, Options& options) {
  DriftCourse& course = options.course;
  const auto number = [&](auto& to) {
    using Number = std::remove_reference_t<decltype(to)>;
    if constexpr (std::is_floating_point_v<Number>) {
      to = static_cast<Number>(std::strtod(value.c_str(), nullptr));
    } else {
      QUARRY_TRY(const uint64_t count, ParseCount(value));
      to = static_cast<Number>(count);
    }
    return Status::Ok();
  };
  if (word == "--nodes") return number(course.graph.nodes);
  if (word == "--groups") return number(course.graph.groups);
  if (word == "--first-edges") return number(course.graph.first_edges);
  if (word == "--edges") return number(course.graph.edges);
  if (word == "--moves") return number(course.graph.moves);
  if (word == "--within") return number(course.graph.within);
  if (word == "--rounds") return number(course.rounds);
  if (word == "--window") return number(course.window);
  if (word == "--batch") return number(course.train.batch_edges);
  if (word == "--epochs") return number(course.train.epochs);
  if (word == "--anew-every") return number(course.anew_every);
  if (word == "--anew-epochs") return number(course.anew_epochs);
  if (word == "--ranked") return number(course.ranked);
  if (word == "--dim") return number(course.train.spec.dim);
  if (word == "--negatives") return number(course.train.negatives);
  if (word == "--rate") return number(course.train.optimizer_options.learning_rate);
  if (word == "--threads") return number(course.train.compute_threads);
  if (word == "--seed") {
    QUARRY_RETURN_IF_ERROR(number(course.graph.seed));
    return number(course.train.seed);
  }
  if (word == "--optimizer") {
    QUARRY_TRY(course.train.optimizer, ParseName<OptimizerKind>(value));
    return Status::Ok();
  }
  if (word == "--folder") {
    options.folder = value;
    return Status::Ok();
  }
  return MakeStatus(Code::kUsage, "'{}': not an option of bench_temporal", word);
}

Status Main(const std::vector<std::string>& words) {
  Options options = Defaults();
  for (size_t i = 0; i < words.size(); i += 2) {
    if (i + 1 == words.size()) return MakeStatus(Code::kUsage, "{} needs a value", words[i]);
    QUARRY_RETURN_IF_ERROR(ParseOption(words[i], words[i + 1], options));
  }
  const std::string folder = options.folder + "/temporal";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  fmt::print(
      "MRR of the edges that come next; \"groups\": of whoever knows the groups of their round, and nothing "
      "else\n"
      "| round | trained on | goes on | stopped | anew | groups | s of epochs | s of the commit |\n"
      "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  MemoryBudget budget(4 * kGiB);
  uint32_t number = 0;
  const Status followed = DriftFollower(options.course, budget).Follow(folder, [&](const DriftRound& round) {
    fmt::print("| {} | {} | {:.4f} | {:.4f} | {} | {:.4f} | {:.2f} | {:.2f} |\n", number++, round.trained,
               round.growing, round.stopped, round.anew ? fmt::format("{:.4f}", *round.anew) : "",
               round.groups, round.train_seconds, round.commit_seconds);
    std::fflush(stdout);
  });
  std::filesystem::remove_all(folder);
  return followed;
}

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  const quarry::Status status = quarry::bench::Main({argv + 1, argv + argc});
  if (!status.ok()) fmt::print(stderr, "bench_temporal: {}\n", status.message());
  return quarry::ExitCode(status.code());
}
