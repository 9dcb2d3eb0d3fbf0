// Training on a server, alone and together: the real binary, as it is started by people and launchers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "cli_database_test.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kTrain =
    " --fanout 5,5 --hidden 32 --epochs 3 --cache 25% --seed 3 --ordered --torch-threads 1 --json "
    "--batch-size ";

constexpr const char* kByParts = " --road partitioned --buffer 4";

constexpr const char* kLink =
    " --task link --dim 8 --batch-size 2000 --negatives 20 --ordered --seed 3 --json --memory 128MiB "
    "--valid-share 1% --test-share 1% ";

// What does not depend on the machine, to the last bit: of every epoch, and of the end.
std::string TrainingResultsIn(const std::string& out) {
  std::string results;
  for (const std::string& line : Lines(out)) {
    const json object = json::parse(line);
    json figures = object.contains("summary") ? object["summary"] : object;
    for (const char* name :
         {"loss", "valid_accuracy", "test_accuracy", "valid_mrr", "test_mrr", "test_hits_10"}) {
      results += figures[name].dump() + " ";
    }
    results += "\n";
  }
  return results;
}

// The last `count` lines of results.
std::string LastOf(const std::string& results, size_t count) {
  const std::vector<std::string> lines = Lines(results);
  std::string last;
  for (size_t i = lines.size() - std::min(count, lines.size()); i < lines.size(); i++)
    last += lines[i] + "\n";
  return last;
}

json SummaryIn(const std::string& out) {
  const std::vector<std::string> lines = Lines(out);
  return lines.empty() ? json() : json::parse(lines.back()).value("summary", json());
}

class TrainRemoteTest : public CliDatabaseTest {
 protected:
  static void SetUpTestSuite() {
    MakeDatabase("train_remote_test",
                 "--nodes 6k --degree 10 --dim 16 --classes 4 --train-share 20% --valid-share 10% "
                 "--test-share 10% --seed 7");
    Expect0("layout build db --fanout 5,5 --batch-size 128 --cache 25% --seed 3");
    Expect0("partition build db --method random --parts 8 --seed 5");
  }

  static Outcome Run(const std::string& arguments) {
    return Process(arguments, root_, {TemporaryFolders()}).Wait();
  }
  // Where workers meet; what a killed one leaves is removed with the rest.
  static std::string TemporaryFolders() { return "TMPDIR=" + root_.string(); }

  // `quarry serve db`, for as long as it lives.
  class Server {
   public:
    Server() : process_("serve db --socket run/socket --memory 512MiB", root_) {
      EXPECT_TRUE(process_.WaitUntil([] { return fs::exists(root_ / "run/socket"); }));
    }
    ~Server() {
      process_.Signal(SIGTERM);
      const Outcome outcome = process_.Wait();
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    }

   private:
    const Process process_;
  };

  // Layouts in a database that no manifest names.
  static std::vector<std::string> PassingLayouts(const std::string& database) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_ / database / "layouts")) {
      const std::string name = entry.path().filename();
      if (name.ends_with(".passing")) names.push_back(name);
    }
    return names;
  }

  static std::vector<pid_t> ChildrenOf(pid_t process) {
    const std::string id = std::to_string(process);
    std::ifstream file("/proc/" + id + "/task/" + id + "/children");
    return {std::istream_iterator<pid_t>(file), {}};
  }
  static bool IsGone(pid_t process) {
    // One whose starter was killed is reaped by whoever adopts it, if by anyone.
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    const std::string stat{std::istreambuf_iterator<char>(file), {}};
    return stat.empty() || stat.find(") Z ") != std::string::npos;
  }
  // However long it takes.
  static void WaitUntilGone(const std::vector<pid_t>& processes) {
    while (!std::ranges::all_of(processes, IsGone)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  // Two workers that would train for hours, in their second epoch or later.
  static std::unique_ptr<Process> StartEndless() {
    auto process = std::make_unique<Process>(
        "train db --workers 2 --epochs 100000 --fanout 5,5 --hidden 32 --batch-size 128 --json", root_,
        std::vector<std::string>{TemporaryFolders()});
    EXPECT_TRUE(process->WaitUntilItPrints());
    return process;
  }

  // A command with a road; a layout knows its cache, and parts need none.
  static std::string WithRoad(std::string command, const std::string& road) {
    const std::string cache = "--cache 25% ";
    const bool cacheless = road.find("--layout") != std::string::npos || road == kByParts;
    if (const size_t at = command.find(cache); cacheless && at != std::string::npos) {
      command.erase(at, cache.size());
    }
    return command + road;
  }
};

TEST_F(TrainRemoteTest, ATrainerCannotTellAServerFromADatabase) {
  const std::string roads[] = {"", " --layout default", " --resample every-epoch", kByParts};
  std::vector<std::string> embedded;
  for (const std::string& road : roads) {
    const Outcome outcome = Run(WithRoad("train db --memory 256MiB" + std::string(kTrain) + "128", road));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    embedded.push_back(TrainingResultsIn(outcome.out));
  }
  const Server server;
  for (size_t i = 0; i < std::size(roads); i++) {
    SCOPED_TRACE("road:" + roads[i]);
    const Outcome outcome =
        Run(WithRoad("train unix:run/socket --memory 256MiB" + std::string(kTrain) + "128", roads[i]));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(TrainingResultsIn(outcome.out), embedded[i]);
    const json summary = SummaryIn(outcome.out);
    EXPECT_EQ(summary["trainers"], 1);
    if (roads[i] == kByParts) {
      EXPECT_GE(summary["batches"], 30);  // the last batch of each step is a short one
    } else {
      EXPECT_EQ(summary["batches"], 30);  // 3 epochs of 1200 nodes
    }
    EXPECT_GT(summary["input_nodes"], 30 * 128);
  }
}

// Through its socket, to all its clients so far.
uint64_t BytesSent(const Outcome& stats) {
  EXPECT_EQ(stats.exit_code, 0) << stats.err;
  return json::parse(stats.out).at("quarry_bytes_sent_total");
}

TEST_F(TrainRemoteTest, ATrainerWithoutSharedMemoryLosesNothing) {
  const Server server;
  const auto train = [](const std::string& options) {
    const uint64_t before = BytesSent(Run("stats unix:run/socket --json"));
    const Outcome outcome = Run("train unix:run/socket " + options);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return std::pair(outcome.out, BytesSent(Run("stats unix:run/socket --json")) - before);
  };
  const std::string node = "--memory 256MiB" + std::string(kTrain) + "128";
  const auto [mapped, mapped_bytes] = train(node);
  const auto [through, through_bytes] = train("--inline " + node);
  EXPECT_EQ(TrainingResultsIn(through), TrainingResultsIn(mapped));
  const uint64_t row_bytes = SummaryIn(through)["input_nodes"].get<uint64_t>() * 16 * sizeof(float);
  EXPECT_GT(through_bytes, row_bytes);
  EXPECT_LT(mapped_bytes, row_bytes / 2);

  const std::string link =
      "--task link --dim 8 --epochs 1 --seed 3 --embedding-mode sync --valid-share 5% --test-share 5% --json";
  const auto [mapped_link, mapped_link_bytes] = train(link);
  const auto [link_through, link_bytes] = train("--inline " + link);
  EXPECT_EQ(TrainingResultsIn(link_through), TrainingResultsIn(mapped_link));
  EXPECT_GT(link_bytes, 2 * mapped_link_bytes);

  const Outcome sql =
      Run("sql unix:run/socket --inline --csv SELECT/**/count(*)/**/AS/**/n/**/FROM/**/nodes");
  EXPECT_EQ(sql.out, "n\n6000\n") << sql.err;
  for (const char* verb : {"train db", "train db --task link", "train db --workers 2", "sql db"}) {
    const Outcome refused = Run(std::string(verb) + " --inline");
    EXPECT_EQ(refused.exit_code, 2) << verb;
    EXPECT_THAT(refused.err, HasSubstr("--inline is of a server's address")) << verb;
  }
}

TEST_F(TrainRemoteTest, WhatIsTheServersToDecideIsRefusedHere) {
  const std::pair<std::string, std::string> cases[] = {
      {"--threads 2", "--threads is the server's to decide"},
      {"--topology disk", "--topology is the server's to decide"},
      {"--plan", "--plan builds a layout in the database"},
      {"--dry-run", "--dry-run is of memory that is divided here"},
      {"--task link --save", "--save makes tables of the database itself"},
      {"--task link --run mine", "--run is of runs with checkpoints: give --checkpoint-every"},
      {"--task link --overwrite", "--overwrite is of runs with checkpoints: give --checkpoint-every"},
  };
  for (const auto& [option, sentence] : cases) {
    const Outcome outcome = Run("train unix:run/socket " + option);
    EXPECT_EQ(outcome.exit_code, 2) << option;
    EXPECT_THAT(outcome.err, HasSubstr(sentence));
    EXPECT_EQ(Lines(outcome.err).size(), 1u) << outcome.err;
  }
  const Outcome nobody = Run("train unix:run/nobody");
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("run/nobody"));
}

// The trainer is killed, the server started anew, and the rest trained there; and then on the database
// itself.
TEST_F(TrainRemoteTest, ARunGoesOnToTheLastBitWhoeverDies) {
  const std::string options =
      " --fanout 5,5 --hidden 32 --seed 3 --ordered --torch-threads 1 --json --cache 25% "
      "--batch-size 128 --checkpoint-every 1 --run killed";
  for (const std::string& road : {std::string(), std::string(" --layout default")}) {
    SCOPED_TRACE("road:" + road);
    const std::string settings = WithRoad(options, road);
    size_t told = 0;
    {
      const Server server;
      const Process process("train unix:run/socket --epochs 100000 --overwrite" + settings, root_);
      EXPECT_TRUE(process.WaitUntilItPrints());
      process.Signal(SIGKILL);
      const Outcome killed = process.Wait();
      EXPECT_EQ(killed.exit_code, 128 + SIGKILL);
      told = Lines(killed.out).size();  // or one epoch more
      ASSERT_GT(told, 0u);
    }
    const std::string to_end = " --epochs " + std::to_string(told + 3);
    const std::string longer = " --epochs " + std::to_string(told + 4);
    Outcome rest;
    {
      const Server server;
      rest = Run("train unix:run/socket --resume" + to_end + settings);
      ASSERT_EQ(rest.exit_code, 0) << rest.err;
      EXPECT_GE(SummaryIn(rest.out)["resumed_from_epoch"], told);
    }
    const Outcome more = Run("train db --resume" + longer + settings);
    ASSERT_EQ(more.exit_code, 0) << more.err;
    EXPECT_EQ(SummaryIn(more.out)["resumed_from_epoch"], told + 3);
    const auto whole = [&](const std::string& epochs) {
      return Run(WithRoad("train db" + epochs + options + "-not --overwrite", road));
    };
    const Outcome all = whole(to_end);
    ASSERT_EQ(all.exit_code, 0) << all.err;
    const size_t lines = Lines(rest.out).size();
    EXPECT_GE(lines, 3u);
    EXPECT_EQ(TrainingResultsIn(rest.out), LastOf(TrainingResultsIn(all.out), lines));
    EXPECT_EQ(TrainingResultsIn(more.out), LastOf(TrainingResultsIn(whole(longer).out), 2));
  }
}

TEST_F(TrainRemoteTest, WorkersGoOnTogetherFromOneCheckpoint) {
  const std::string options =
      " --fanout 5,5 --hidden 32 --seed 3 --ordered --torch-threads 1 --json --batch-size 64 "
      "--checkpoint-every 1 --run together";
  const Outcome all = Run("train db --workers 2 --epochs 4" + options + "-all");
  ASSERT_EQ(all.exit_code, 0) << all.err;
  EXPECT_EQ(SummaryIn(all.out)["checkpoints"], 4);
  const std::string config = SummaryIn(all.out)["config"];
  EXPECT_THAT(config,
              AllOf(HasSubstr("\nDB = \"db\"\n"), HasSubstr("\nworkers = 2\n"), Not(HasSubstr("worker-"))));
  const json trainings = json::parse(Run("info db --json").out)["trainings"];
  const auto kept = std::ranges::find(trainings, "together-all", [](const json& run) { return run["name"]; });
  ASSERT_NE(kept, trainings.end());
  EXPECT_EQ((*kept)["config"], config) << "it came by the workers' server";
  ASSERT_EQ(Run("train db --workers 2 --epochs 2" + options).exit_code, 0);
  const Outcome rest = Run("train db --workers 2 --epochs 4 --resume" + options);
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(TrainingResultsIn(rest.out), LastOf(TrainingResultsIn(all.out), 3));
  const Outcome alone = Run("train db --epochs 4 --resume" + options);
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--workers is not set, but was 2"));
}

// It goes on until an epoch has more edges than there were, which others added meanwhile.
TEST_F(TrainRemoteTest, NewestLinksAreThoseThatThereAre) {
  CopyDatabase("linked");
  const Process server("serve linked --socket run/linked --memory 512MiB", root_);
  ASSERT_TRUE(server.WaitUntil([] { return fs::exists(root_ / "run/linked"); }));
  const std::string train =
      "train unix:run/linked --task link --dim 4 --negatives 10 --batch-size 5000 --chunk 5000 --valid-every "
      "0 "
      "--valid-share 1% --test-share 1% --json --newest ";
  const Process trainer(train + "--epochs 1000000", root_, {TemporaryFolders()});
  const auto edges_of_last_epoch = [&] {
    int64_t edges = 0;
    for (const std::string& line : Lines(trainer.Printed())) {
      const json epoch = json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (epoch.is_object() && epoch.contains("epoch")) edges = epoch["edges"].get<int64_t>();
    }
    return edges;
  };
  EXPECT_TRUE(trainer.WaitUntil([&] { return edges_of_last_epoch() > 0; }));
  const int64_t before = edges_of_last_epoch();
  Expect0(
      "sql unix:run/linked --write INSERT/**/INTO/**/edges/**/(src,dst)/**/"
      "SELECT/**/id,(id*7+3)%2000/**/FROM/**/nodes/**/WHERE/**/id<1500");
  EXPECT_TRUE(trainer.WaitUntil([&] { return edges_of_last_epoch() > before; }));
  trainer.Signal(SIGINT);
  EXPECT_NE(trainer.Wait().exit_code, 0);
  const auto refused = [&](const std::string& options) { return Run(train + options).err; };
  EXPECT_THAT(refused("--patience 2"), HasSubstr("--patience is of runs whose edges stay"));
  EXPECT_THAT(refused("--checkpoint-every 5"), HasSubstr("--checkpoint-every is of runs"));
  EXPECT_THAT(Run("train linked --task link --valid-share 1% --test-share 1% --newest").err,
              HasSubstr("--newest is of a server's database"));
  const Outcome whole = Run(train + "--epochs 2");
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_EQ(SummaryIn(whole.out)["epochs"], 2);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait().exit_code, 0);
}

// It goes on until the new nodes are in an epoch, and ends by itself where a class comes that its model does not have.
TEST_F(TrainRemoteTest, NewestTrainsOnWhatCameMeanwhile) {
  CopyDatabase("grown");
  const Process server("serve grown --socket run/grown --memory 512MiB", root_);
  ASSERT_TRUE(server.WaitUntil([] { return fs::exists(root_ / "run/grown"); }));
  const std::string train = "train unix:run/grown --fanout 5,5 --hidden 8 --batch-size 128 --json --newest ";
  const auto write = [](const std::string& values) {
    Expect0("sql unix:run/grown --write INSERT/**/INTO/**/nodes/**/(label,split)/**/" + values);
  };
  const Process trainer(train + "--epochs 1000000", root_, {TemporaryFolders()});
  // The seeds of an epoch by its steps: 1,200 at first, then 2,200 of 128 each.
  const auto has_epoch_of = [&](int batches) {
    return trainer.WaitUntil([&] {
      const std::string printed = trainer.Printed();
      return printed.find(fmt::format("\"batches\":{},", batches)) != std::string::npos;
    });
  };
  EXPECT_TRUE(has_epoch_of(10));
  write("SELECT/**/id%4,'train'/**/FROM/**/nodes/**/WHERE/**/id<1000");
  EXPECT_TRUE(has_epoch_of(18));
  write("VALUES/**/(7,'train')");
  const Outcome outcome = trainer.Wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("labels of 8 classes"));
  EXPECT_THAT(outcome.err, HasSubstr("begin another run"));
  // A run goes on with what there is then, with the option or without.
  const std::string kept =
      "train unix:run/grown --fanout 5,5 --hidden 8 --batch-size 128 --json --checkpoint-every 1 --run kept ";
  EXPECT_EQ(Run(kept + "--newest --epochs 1").exit_code, 0);
  write("VALUES/**/(2,'train'),(3,'train')");
  const Outcome rest = Run(kept + "--epochs 2 --resume");
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(SummaryIn(rest.out)["epochs"], 2);
  EXPECT_EQ(Run(train + "--epochs 1 --layout default").exit_code, 2);
  EXPECT_THAT(Run("train grown --newest").err, HasSubstr("--newest is of a server's database"));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait().exit_code, 0);
}

TEST_F(TrainRemoteTest, RunsOfAServerAreNeitherLostNorMixedUp) {
  const Server server;
  const std::string train =
      "train unix:run/socket --fanout 5,5 --hidden 8 --epochs 1 --checkpoint-every 1 --json ";
  const auto refusal = [&](const std::string& options, int exit_code) {
    const Outcome outcome = Run(train + options);
    EXPECT_EQ(outcome.exit_code, exit_code) << options;
    EXPECT_TRUE(PrintedTheErrorAlone(outcome, train)) << outcome.out;
    return outcome.err;
  };
  EXPECT_THAT(refusal("--run ../../x", 2), HasSubstr("\"../../x\" is no name of a training run"));
  EXPECT_THAT(refusal("--run mine --resume", 1), HasSubstr("no checkpoint of a training run \"mine\""));
  ASSERT_EQ(Run(train + "--run mine").exit_code, 0);
  EXPECT_THAT(refusal("--run mine", 1), HasSubstr("run \"mine\" has a checkpoint of 20"));
  EXPECT_THAT(refusal("--run mine --resume --lr 0.5", 2), HasSubstr("--lr is 0.5, but was 0.003"));
  EXPECT_EQ(Run(train + "--run mine --overwrite").exit_code, 0);
}

// Vectors, batches and ranking are the trainer's; the edges are all that it asks for.
TEST_F(TrainRemoteTest, LinksAreLearnedFromAServersEdges) {
  const std::string options =
      " --task link --dim 8 --epochs 2 --batch-size 2000 --negatives 20 --ordered --seed 3 "
      "--json --memory 128MiB ";
  const std::string shares = "--valid-share 1% --test-share 1% ";
  for (const std::string& encoder : {std::string(), std::string("--encoder sage --fanout 3")}) {
    const Outcome embedded = Run("train db" + options + shares + encoder);
    ASSERT_EQ(embedded.exit_code, 0) << embedded.err;
    const Server server;
    const Outcome remote = Run("train unix:run/socket" + options + shares + encoder);
    ASSERT_EQ(remote.exit_code, 0) << remote.err;
    EXPECT_EQ(TrainingResultsIn(remote.out), TrainingResultsIn(embedded.out));
    EXPECT_GT(SummaryIn(remote.out)["test_mrr"], 0);
    EXPECT_EQ(SummaryIn(remote.out)["memory_budget_bytes"], 128 << 20);
  }
  const Server server;
  const Outcome nothing_held_out = Run("train unix:run/socket" + options);
  EXPECT_EQ(nothing_held_out.exit_code, 1);
  EXPECT_THAT(nothing_held_out.err, HasSubstr("--valid-share"));
  const Outcome small =
      Run("train unix:run/socket --memory 1MiB" + options.substr(0, options.find(" --memory")));
  EXPECT_EQ(small.exit_code, 1);
  EXPECT_THAT(small.err, HasSubstr("edges, batches and vectors"));
}

// Vectors are the trainer's, checkpoints the server's: killed in the middle of an epoch, a run goes on at a
// server that was started anew; and then on the database itself, which makes tables of its vectors.
TEST_F(TrainRemoteTest, LinksGoOnToTheLastBitWhoeverDies) {
  const std::string link = std::string(kLink) + "--checkpoint-every 7 --run ";
  for (const std::string& encoder : {std::string(), std::string(" --encoder sage --fanout 3")}) {
    SCOPED_TRACE("encoder:" + encoder);
    const std::string options = link + "killed" + encoder;
    size_t told = 0;
    {
      const Server server;
      const Process process("train unix:run/socket --epochs 100000 --overwrite" + options, root_);
      EXPECT_TRUE(process.WaitUntilItPrints());
      process.Signal(SIGKILL);
      const Outcome killed = process.Wait();
      EXPECT_EQ(killed.exit_code, 128 + SIGKILL) << killed.err;
      told = Lines(killed.out).size();
      ASSERT_GT(told, 0u);
    }
    const std::string to_end = " --epochs " + std::to_string(told + 2);
    const std::string longer = " --epochs " + std::to_string(told + 3);
    Outcome rest, all;
    {
      const Server server;
      rest = Run("train unix:run/socket --resume" + to_end + options);
      ASSERT_EQ(rest.exit_code, 0) << rest.err;
      EXPECT_GE(SummaryIn(rest.out)["resumed_from_epoch"], told);
      EXPECT_EQ(SummaryIn(rest.out)["tables"], "memory");
      EXPECT_EQ(SummaryIn(rest.out)["run"], "killed");
      all = Run("train unix:run/socket --overwrite" + to_end + link + "whole" + encoder);
      ASSERT_EQ(all.exit_code, 0) << all.err;
    }
    const size_t lines = Lines(rest.out).size();
    EXPECT_GE(lines, 3u);
    EXPECT_EQ(TrainingResultsIn(rest.out), LastOf(TrainingResultsIn(all.out), lines));

    const Outcome more = Run("train db --resume" + longer + options);
    ASSERT_EQ(more.exit_code, 0) << more.err;
    EXPECT_EQ(SummaryIn(more.out)["tables"], "stored");
    const Outcome embedded = Run("train db" + longer + kLink + encoder);
    EXPECT_EQ(TrainingResultsIn(more.out), LastOf(TrainingResultsIn(embedded.out), 3))
        << "the last epoch is ranked again";
    ASSERT_EQ(Run("verify db").exit_code, 0);
    for (const char* what : {"training killed", "embeddings killed-nodes", "embeddings killed-relations"}) {
      const Outcome dropped = Run("drop db " + std::string(what) + " --yes");
      EXPECT_EQ(dropped.exit_code, 0) << dropped.err;
    }
  }
}

// As many checkpoints as it takes, at two servers one after the other; then Ctrl-C.
TEST_F(TrainRemoteTest, LinksOutliveTheirServer) {
  auto server = std::make_unique<Server>();
  const std::string options = std::string(kLink) + "--checkpoint-every 7 --run outlived";
  const Process process("train unix:run/socket --epochs 100000" + options, root_);
  EXPECT_TRUE(process.WaitUntilItPrints());
  server.reset();
  server = std::make_unique<Server>();
  const size_t told = Lines(process.Printed()).size();
  EXPECT_TRUE(process.WaitUntil([&] { return Lines(process.Printed()).size() > told + 2; }));
  process.Signal(SIGINT);
  const Outcome outcome = process.Wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("interrupted in epoch "));
  EXPECT_THAT(outcome.err, HasSubstr("; --resume goes on behind batch "));
  const std::string epochs = " --epochs " + std::to_string(Lines(outcome.out).size() + 1);
  const Outcome rest = Run("train unix:run/socket --resume" + epochs + options);
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  const Outcome whole = Run("train unix:run/socket" + epochs + kLink);
  EXPECT_EQ(TrainingResultsIn(rest.out), LastOf(TrainingResultsIn(whole.out), Lines(rest.out).size()));
}

TEST_F(TrainRemoteTest, RunsOfLinksAreNeitherLostNorMixedUp) {
  const Server server;
  const std::string train = "train unix:run/socket --epochs 1 --checkpoint-every 10" + std::string(kLink);
  const auto refusal = [&](const std::string& options, int exit_code) {
    const Outcome outcome = Run(train + options);
    EXPECT_EQ(outcome.exit_code, exit_code) << options << ": " << outcome.err;
    EXPECT_TRUE(PrintedTheErrorAlone(outcome, train)) << outcome.out;
    return outcome.err;
  };
  EXPECT_THAT(refusal("--run ../../x", 2), HasSubstr("\"../../x\" is no name of a training run"));
  EXPECT_THAT(refusal("--run links --resume", 1), HasSubstr("no checkpoint of a training run \"links\""));
  ASSERT_EQ(Run(train + "--run links").exit_code, 0);
  EXPECT_THAT(refusal("--run links", 1), HasSubstr("run \"links\" has a checkpoint of 20"));
  EXPECT_THAT(
      refusal("--run links --resume --lr 0.5", 2),
      HasSubstr("--lr is 0.5, but was 0.05 when run \"links\" took its checkpoint: --resume goes on"));
  EXPECT_EQ(Run(train + "--run links --overwrite").exit_code, 0);
}

// Before anything is trained, and with what would do.
TEST_F(TrainRemoteTest, StatesOfLinksThatAreTooLargeAreRefused) {
  const Server server;  // of 512 MiB
  const std::string train =
      "train unix:run/socket --task link --valid-share 1% --test-share 1% --checkpoint-every 10 ";
  const auto refusal = [&](const std::string& options) {
    const Outcome outcome = Run(train + options);
    EXPECT_EQ(outcome.exit_code, 1) << options << ": " << outcome.err;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  // The protocol's limit: what it says would do is refused for memory alone, one float more for that limit.
  const std::string wide = refusal("--dim 60000 --memory 64GiB");
  EXPECT_THAT(wide, HasSubstr("a server takes at most 1.00 GiB (with --dim "));
  const size_t at = wide.find("--dim ") + 6;
  const int dim = std::stoi(wide.substr(at));
  EXPECT_THAT(refusal("--memory 64GiB --dim " + std::to_string(dim + 1)),
              HasSubstr("a server takes at most"));
  // The limit of the server's memory.
  EXPECT_THAT(refusal("--memory 64GiB --dim " + std::to_string(dim)),
              testing::AllOf(HasSubstr("which the server holds to save it: a session of at least 1.3"),
                             HasSubstr("are free")));
  // The limit of the memory here: what it says would do is enough.
  const std::string small = refusal("--dim 64 --memory 20MiB");
  EXPECT_THAT(small, HasSubstr("edges, batches, vectors and their checkpoints"));
  std::smatch least;
  ASSERT_TRUE(std::regex_search(small, least, std::regex("give at least ([0-9.]+) MiB"))) << small;
  const std::string enough = std::to_string(std::stoi(least[1]) + 1) + "MiB";
  for (const char* more : {"1", "2 --resume"}) {
    const Outcome trained = Run(train + "--dim 64 --run least --memory " + enough + " --epochs " + more);
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
  }
}

TEST_F(TrainRemoteTest, WorkersLearnWhatOneTrainerDoes) {
  // Both step by 128 nodes.
  const Outcome one = Run("train db" + std::string(kTrain) + "128");
  const Outcome two = Run("train db --workers 2" + std::string(kTrain) + "64");
  const Outcome again = Run("train db --workers 2" + std::string(kTrain) + "64");
  ASSERT_EQ(one.exit_code, 0) << one.err;
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(TrainingResultsIn(two.out), TrainingResultsIn(again.out)) << "in order, and to the last bit";
  ASSERT_EQ(Lines(two.out).size(), 4u) << "of one of them alone:\n" << two.out;
  const json summary = SummaryIn(two.out);
  EXPECT_EQ(summary["trainers"], 2);
  EXPECT_EQ(summary["batches"], 3 * 19) << "each by one of them";
  const double accuracy = SummaryIn(one.out)["test_accuracy"];
  EXPECT_GT(accuracy, 0.5) << "more than one in four";
  EXPECT_NEAR(summary["test_accuracy"].get<double>(), accuracy, 0.05);
  for (const auto& entry : fs::directory_iterator(root_)) {
    EXPECT_THAT(entry.path().filename().string(), testing::Not(testing::StartsWith("quarry-train-")));
  }
}

// One road holds the parts, and the workers share its batches: a step of two is that of one trainer with batches twice as
// large, but for where a step's nodes end.
TEST_F(TrainRemoteTest, WorkersTrainByPartsTogether) {
  const auto train = [](const std::string& command, const std::string& batch_size) {
    return Run(WithRoad("train db" + command + std::string(kTrain) + batch_size, kByParts));
  };
  const Outcome one = train("", "128");
  const Outcome two = train(" --workers 2", "64");
  const Outcome again = train(" --workers 2", "64");
  ASSERT_EQ(one.exit_code, 0) << one.err;
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(TrainingResultsIn(two.out), TrainingResultsIn(again.out)) << "in order, and to the last bit";
  const json summary = SummaryIn(two.out);
  EXPECT_EQ(summary["trainers"], 2);
  const double accuracy = SummaryIn(one.out)["test_accuracy"];
  EXPECT_GT(accuracy, 0.4) << "more than one in four";
  EXPECT_NEAR(summary["test_accuracy"].get<double>(), accuracy, 0.08);
}

// The buffer that was tuned is the run's, whatever memory there is later; and a run that a server began goes on in the
// database itself, and the other way round.
TEST_F(TrainRemoteTest, ARunByPartsGoesOnAnywhere) {
  const std::string options =
      " --road partitioned --fanout 5,5 --hidden 32 --seed 3 --ordered --torch-threads 1 --json --batch-size "
      "64 "
      "--checkpoint-every 1 --run ";
  const Outcome all = Run("train db --workers 2 --epochs 4" + options + "parts-all");
  ASSERT_EQ(all.exit_code, 0) << all.err;
  ASSERT_EQ(Run("train db --workers 2 --epochs 2" + options + "parts").exit_code, 0);
  const Outcome rest = Run("train db --workers 2 --epochs 4 --resume" + options + "parts");
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(TrainingResultsIn(rest.out), LastOf(TrainingResultsIn(all.out), 3));
  const Outcome other = Run("train db --workers 2 --epochs 5 --buffer 3 --resume" + options + "parts");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("--buffer is 3, but was "));

  const Outcome alone = Run("train db --memory 256MiB --epochs 3" + options + "alone");
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  {
    const Server server;
    ASSERT_EQ(Run("train unix:run/socket --memory 64MiB --epochs 1" + options + "moves").exit_code, 0);
  }
  ASSERT_EQ(Run("train db --memory 256MiB --epochs 2 --resume" + options + "moves").exit_code, 0);
  const Server server;
  const Outcome back = Run("train unix:run/socket --memory 128MiB --epochs 3 --resume" + options + "moves");
  ASSERT_EQ(back.exit_code, 0) << back.err;
  EXPECT_EQ(TrainingResultsIn(back.out), LastOf(TrainingResultsIn(alone.out), 2));
}

TEST_F(TrainRemoteTest, TrainersOfALauncherShareAServer) {
  const Server server;
  const std::string command = "train unix:run/socket" + std::string(kTrain) + "128";
  const std::string meeting = "MASTER_ADDR=" + (root_ / "meeting").string();
  const Process first(command, root_, {"RANK=0", "WORLD_SIZE=2", meeting});
  const Process second(command, root_, {"RANK=1", "WORLD_SIZE=2", meeting});
  const Outcome outcome = first.Wait();
  const Outcome other = second.Wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(other.out, "");
  EXPECT_EQ(SummaryIn(outcome.out)["trainers"], 2);
}

TEST_F(TrainRemoteTest, AFaultOfAllIsToldOnce) {
  const Outcome outcome = Run("train db --workers 2 --fanout 5,5 --layout none-such");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("trainer 0: "));
  EXPECT_THAT(outcome.err, HasSubstr("none-such"));
  EXPECT_EQ(Lines(outcome.err).size(), 1u) << outcome.err;
}

TEST_F(TrainRemoteTest, AKilledWorkerEndsAll) {
  const std::unique_ptr<Process> process = StartEndless();
  const std::vector<pid_t> workers = ChildrenOf(process->id());
  ASSERT_EQ(workers.size(), 2u);
  kill(workers[1], SIGKILL);
  const Outcome outcome = process->Wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("was ended by signal 9"));
  WaitUntilGone(workers);
}

TEST_F(TrainRemoteTest, CtrlCEndsAllWorkers) {
  const std::unique_ptr<Process> process = StartEndless();
  const std::vector<pid_t> workers = ChildrenOf(process->id());
  ASSERT_EQ(workers.size(), 2u);
  for (const pid_t worker : workers) kill(worker, SIGINT);  // as a terminal does
  process->Signal(SIGINT);
  const Outcome outcome = process->Wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("interrupted in "));
  WaitUntilGone(workers);
}

TEST_F(TrainRemoteTest, WorkersEndWithTheirStarter) {
  const std::unique_ptr<Process> process = StartEndless();
  const std::vector<pid_t> workers = ChildrenOf(process->id());
  ASSERT_EQ(workers.size(), 2u);
  process->Signal(SIGKILL);
  EXPECT_EQ(process->Wait().exit_code, 128 + SIGKILL);
  WaitUntilGone(workers);
}

TEST_F(TrainRemoteTest, EpochsOfAKilledProcessGoWithTheNextWriterAndThoseOfALivingOneStay) {
  fs::copy(root_ / "db", root_ / "killed", fs::copy_options::recursive);
  for (const bool served : {false, true}) {
    SCOPED_TRACE(served ? "server" : "trainer");
    std::unique_ptr<Process> server;
    if (served) {
      server = std::make_unique<Process>("serve killed --socket other/socket --memory 512MiB", root_);
      ASSERT_TRUE(server->WaitUntil([] { return fs::exists(root_ / "other/socket"); }));
    }
    const Process trainer(std::string("train ") + (served ? "unix:other/socket" : "killed --plan") +
                              " --resample every-epoch --epochs 100000 --fanout 5,5 --hidden 32 "
                              "--batch-size 128 --memory 256MiB --json",
                          root_);
    EXPECT_TRUE(trainer.WaitUntilItPrints()) << "from now on there is one all the time";
    const Outcome refused = Run("info killed");
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err, HasSubstr("is open in process"));
    EXPECT_THAT(PassingLayouts("killed"), Not(IsEmpty())) << "of a living process";

    (served ? *server : trainer).Signal(SIGKILL);
    if (served) {
      EXPECT_EQ(server->Wait().exit_code, 128 + SIGKILL);
    }
    trainer.Signal(SIGKILL);
    EXPECT_EQ(trainer.Wait().exit_code, 128 + SIGKILL);
    EXPECT_THAT(PassingLayouts("killed"), Not(IsEmpty())) << "nobody was there to remove them";
    EXPECT_EQ(Run("info killed").exit_code, 0);
    EXPECT_THAT(PassingLayouts("killed"), Not(IsEmpty())) << "reading changes nothing";
    const Outcome repaired = Run("repair killed");
    EXPECT_EQ(repaired.exit_code, 0) << repaired.err;
    EXPECT_THAT(repaired.out, HasSubstr(".passing: removed"));
    EXPECT_THAT(PassingLayouts("killed"), IsEmpty());
    EXPECT_EQ(Run("verify killed").exit_code, 0);
  }
}

}  // namespace
}  // namespace quarry
