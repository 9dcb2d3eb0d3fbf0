// Models of nodes that tell relations apart, as people ask for them: over a graph with types, and over one whose edges have
// relations and whose rows are of one table.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli_database_test.h"
#include "quarry/base/random.h"
#include "support/array_files.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

// Papers of four classes, whose rows say nothing. Authors, whose rows say their class, write papers of it, and review papers
// of any: so a paper's class is that of those who wrote it, which the relation alone tells.
class RelationsCliTest : public CliDatabaseTest {
 protected:
  static constexpr int kPapers = 800, kAuthors = 400, kClasses = 4, kPaperDim = 6, kAuthorDim = 5;

  static void SetUpTestSuite() {
    MakeDatabase("relations_cli_test",
                 "--nodes 500 --degree 4 --dim 8 --classes 3 --train-share 20% --valid-share 10% "
                 "--test-share 10% --seed 7");
    Rng rng(11);
    std::vector<int64_t> writes[2], reviews[2], labels, splits[3];
    for (int paper = 0; paper < kPapers; paper++) {
      const auto of_class = static_cast<int64_t>(rng.Below(kClasses));
      labels.push_back(of_class);
      splits[paper % 4 < 2 ? 0 : paper % 4 - 1].push_back(paper);
      writes[0].push_back(static_cast<int64_t>(rng.Below(kAuthors / kClasses)) * kClasses + of_class);
      writes[1].push_back(paper);
      for (int i = 0; i < 5; i++) {
        reviews[0].push_back(static_cast<int64_t>(rng.Below(kAuthors)));
        reviews[1].push_back(paper);
      }
    }
    const auto noise = [&] { return static_cast<float>(2 * rng.Unit() - 1); };
    std::vector<float> papers, authors;
    for (int i = 0; i < kPapers * kPaperDim; i++) papers.push_back(noise());
    for (int author = 0; author < kAuthors; author++) {
      for (int c = 0; c < kAuthorDim; c++) authors.push_back(noise() + (c == author % kClasses ? 1.5F : 0));
    }
    WriteTyped(writes, reviews, labels, splits, papers, authors);
    WriteUntyped(writes, reviews, labels, splits, papers, authors);
    Expect0("import typed typed-folder --add-reverse");
    Expect0("import related related-folder");
  }

  static void WriteFile(const std::string& name, const std::string& bytes) {
    fs::create_directories(Path(name).parent_path());
    Write(name, bytes);
  }
  static std::string Ids(const std::vector<int64_t>& ids) { return NpyFile(ids, {ids.size()}); }
  static std::string EdgesOf(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
    std::vector<int64_t> ids = from;
    ids.insert(ids.end(), to.begin(), to.end());
    return NpyFile(ids, {2, from.size()});
  }
  static constexpr const char* kSplitNames[] = {"train", "valid", "test"};

  static void WriteTyped(const std::vector<int64_t> (&writes)[2], const std::vector<int64_t> (&reviews)[2],
                         const std::vector<int64_t>& labels, const std::vector<int64_t> (&splits)[3],
                         const std::vector<float>& papers, const std::vector<float>& authors) {
    WriteFile("typed-folder/metadata.yaml",
              "node_types:\n  - paper\n  - author\nrelations:\n  - \"author:writes:paper\"\n"
              "  - \"author:reviews:paper\"\n");
    WriteFile("typed-folder/paper/metadata.yaml", fmt::format("num_nodes: {}\n", kPapers));
    WriteFile("typed-folder/author/metadata.yaml", fmt::format("num_nodes: {}\n", kAuthors));
    WriteFile("typed-folder/paper/features.npy", NpyFile(papers, {kPapers, kPaperDim}));
    WriteFile("typed-folder/author/features.npy", NpyFile(authors, {kAuthors, kAuthorDim}));
    WriteFile("typed-folder/paper/labels.npy", Ids(labels));
    for (int i = 0; i < 3; i++) {
      WriteFile(fmt::format("typed-folder/paper/{}_idx.npy", kSplitNames[i]), Ids(splits[i]));
    }
    WriteFile("typed-folder/author__writes__paper/edges.npy", EdgesOf(writes[0], writes[1]));
    WriteFile("typed-folder/author__reviews__paper/edges.npy", EdgesOf(reviews[0], reviews[1]));
  }

  // Authors are the nodes behind the papers, and have no label.
  static void WriteUntyped(const std::vector<int64_t> (&writes)[2], const std::vector<int64_t> (&reviews)[2],
                           std::vector<int64_t> labels, const std::vector<int64_t> (&splits)[3],
                           const std::vector<float>& papers, const std::vector<float>& authors) {
    std::vector<float> rows;
    for (int node = 0; node < kPapers + kAuthors; node++) {
      for (int c = 0; c < kPaperDim; c++) {
        const int author = node - kPapers;
        rows.push_back(author < 0       ? papers[node * kPaperDim + c]
                       : c < kAuthorDim ? authors[author * kAuthorDim + c]
                                        : 0.0F);
      }
    }
    labels.resize(kPapers + kAuthors, -1);
    WriteFile("related-folder/features.npy", NpyFile(rows, {kPapers + kAuthors, kPaperDim}));
    WriteFile("related-folder/labels.npy", Ids(labels));
    for (int i = 0; i < 3; i++) {
      WriteFile(fmt::format("related-folder/{}_idx.npy", kSplitNames[i]), Ids(splits[i]));
    }
    const auto behind = [](std::vector<int64_t> ids) {
      for (int64_t& id : ids) id += kPapers;
      return ids;
    };
    WriteFile("related-folder/edges_writes.npy", EdgesOf(behind(writes[0]), writes[1]));
    WriteFile("related-folder/edges_reviews.npy", EdgesOf(behind(reviews[0]), reviews[1]));
  }

  static json Summary(std::string arguments) {
    if (arguments.find("--epochs") == std::string::npos) arguments += " --epochs 40";
    if (arguments.find("--lr") == std::string::npos) arguments += " --lr 0.01";
    const Outcome outcome = Run("train " + arguments + kSettings);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << "\n" << outcome.err;
    const std::vector<std::string> lines = Lines(outcome.out);
    return outcome.exit_code != 0 || lines.empty() ? json()
                                                   : json::parse(lines.back()).value("summary", json());
  }
  static std::string Refused(const std::string& arguments, int exit_code) {
    const Outcome outcome = Run("train " + arguments + " --fanout 5,5 --memory 256MiB");
    EXPECT_EQ(outcome.exit_code, exit_code) << arguments << "\n" << outcome.err;
    EXPECT_TRUE(outcome.out.empty()) << outcome.out;
    return outcome.err;
  }

  static constexpr const char* kSettings =
      " --fanout 6,4 --hidden 16 --batch-size 50 --seed 3 --ordered --torch-threads 1 --json --memory "
      "256MiB ";
};

TEST_F(RelationsCliTest, ALabelThatOnlyRelationsTellIsLearned) {
  for (const std::string run : {"typed-rgcn", "typed-rgat", "related-rgcn"}) {
    const std::string db = run.substr(0, run.find('-')), model = run.substr(db.size() + 1);
    const json summary = Summary(db + " --model " + model + " --run " + run);
    EXPECT_GT(summary.value("test_accuracy", 0.0), 0.85) << run;
    EXPECT_EQ(summary["model"], model);
    if (model == "rgat") continue;
    const json predicted = RunJson("predict " + db + " --run " + run + " --split test --out p.npy --json");
    EXPECT_EQ(predicted["accuracy"], summary["test_accuracy"]) << run;
  }
  EXPECT_EQ(RunJson("predict typed --run typed-rgat --what embeddings --out e.npy --json")["columns"], 16);
  // Five of a paper's six neighbors say nothing: who takes all alike is told less.
  const json alike = Summary("related --model gcn --road live");
  EXPECT_LT(alike.value("test_accuracy", 1.0), 0.7);
}

// The first epoch of every road has the live road's batches, whoever makes them, and in whatever order their nodes stand.
TEST_F(RelationsCliTest, EveryRoadTrainsThem) {
  const auto loss = [](const std::string& arguments) {
    return Summary(arguments + " --epochs 1 --dropout 0").value("loss", -1.0);
  };
  Expect0("layout build related ids --edge-ids --fanout 6,4 --batch-size 50 --seed 3 --cache 25%");
  EXPECT_EQ(RunJson("layout list related --json")[0]["edge_ids"], true);
  const double live = loss("related --model rgcn --road live");
  EXPECT_GT(live, 0);
  for (const char* const road :
       {"--plan --cache 25%", "--plan --resample every-epoch --cache 25%", "--layout ids"}) {
    EXPECT_NEAR(loss(std::string("related --model rgcn ") + road), live, 1e-4) << road;
  }
  EXPECT_NEAR(loss("related --model rgat --plan --cache 25%"), loss("related --model rgat --road live"),
              1e-4);
  EXPECT_GT(loss("related --model rgcn --workers 2"), 0);
  const double typed = loss("typed --model rgcn");
  Expect0("layout build typed ids --fanout 6,4 --batch-size 50 --seed 3 --cache 25%");
  for (const char* const road :
       {"--plan --cache 25%", "--plan --resample every-epoch --cache 25%", "--layout ids"}) {
    EXPECT_NEAR(loss(std::string("typed --model rgcn ") + road), typed, 1e-4) << road;
  }
  for (const std::string db : {"related", "typed"}) {
    const Process server("serve " + db + " --socket run/" + db + " --memory 512MiB", root_);
    const std::string at = "unix:run/" + db;
    ASSERT_TRUE(server.WaitUntil([&] { return fs::exists(root_ / "run" / db); }));
    const json summary = Summary(at + " --model rgcn --epochs 1 --dropout 0 --run served");
    EXPECT_EQ(summary.value("loss", -1.0), db == "typed" ? typed : live);
    const json told = RunJson("predict " + at + " --run served --split test --out p.npy --json");
    EXPECT_EQ(told["accuracy"], summary["test_accuracy"]);
    EXPECT_NEAR(loss(at + " --model rgcn --layout ids"), db == "typed" ? typed : live, 1e-4) << db;
    if (db == "typed") {
      EXPECT_NEAR(loss(at + " --model rgcn --plan --resample every-epoch"), typed, 1e-4);
    }
    server.Signal(SIGTERM);
    EXPECT_EQ(server.Wait().exit_code, 0);
  }
  // Where edges came, such a layout has the numbers of others: who lists it is told what opening it says.
  fs::copy(root_ / "related", root_ / "grown", fs::copy_options::recursive);
  Write("more.csv", "0,1\n");
  Expect0("add grown --edges more.csv --type writes");
  EXPECT_THAT(Run("layout list grown").out, HasSubstr("refused until `quarry layout rebuild`"));
  EXPECT_THAT(Refused("grown --model rgcn --layout ids", 1), HasSubstr("`quarry layout rebuild`"));
  Expect0("layout rebuild grown ids");
  EXPECT_GT(loss("grown --model rgcn --layout ids"), 0);
}

TEST_F(RelationsCliTest, ARunGoesOnAndItsWeightsBeginAnother) {
  const std::string train = "typed --model rgcn --bases 2 --checkpoint-every 1 --run ";
  const json whole = Summary(train + "whole --dropout 0.3 --epochs 6");
  Summary(train + "parts --dropout 0.3 --epochs 3");
  const json parts = Summary(train + "parts --dropout 0.3 --epochs 6 --resume");
  EXPECT_EQ(parts["loss"], whole["loss"]);
  EXPECT_EQ(parts["test_accuracy"], whole["test_accuracy"]);
  // Papers and authors have a weight and a bias each, a layer three tensors.
  EXPECT_EQ(RunJson("export typed whole.safetensors --run whole --json")["tensors"], 10);
  const json from = Summary("typed --model rgcn --bases 2 --from whole.safetensors --epochs 1 --lr 1e-30");
  EXPECT_EQ(from["test_accuracy"], whole["test_accuracy"]);
}

TEST_F(RelationsCliTest, WhatCannotBeIsRefusedByName) {
  EXPECT_THAT(Refused("db --model rgcn", 1), HasSubstr("import a file of edges for each relation"));
  EXPECT_THAT(Refused("typed --model rgat --road partitioned", 2), HasSubstr("take another road"));
  EXPECT_THAT(Refused("related --model rgcn --road partitioned", 2), HasSubstr("take another road"));
  EXPECT_THAT(Run("train typed --model rgcn --fanout 6,4 --memory 256MiB --explain").out,
              HasSubstr("planned"));
  EXPECT_THAT(Refused("typed --model rgcn --sampler labor", 1), HasSubstr("drawn uniformly along 'in'"));
  Expect0("layout build typed packed --fanout 6,4 --batch-size 50 --cache 10%");
  for (const char* const verb : {"explain", "trace"}) {
    const Outcome told = Run(fmt::format("layout {} typed packed", verb));
    EXPECT_EQ(told.exit_code, 1);
    EXPECT_THAT(told.err, HasSubstr("packs rows of several types")) << verb;
  }
  EXPECT_THAT(Refused("typed --model rgcn --layout packed", 2), HasSubstr("was planned with fanouts"));
  Expect0("layout drop typed packed");
  Summary("typed --model rgcn --run kept --epochs 1");
  const Outcome layers = Run("predict typed --run kept --inference layers --out p.npy");
  EXPECT_EQ(layers.exit_code, 1);
  EXPECT_THAT(layers.err, HasSubstr("--model rgcn"));
  EXPECT_THAT(Refused("typed --model rgcn --run kept --resume --bases 4", 2),
              HasSubstr("--bases is 4, but was 8"));
  // Where memory ends, it is said before anything is trained.
  const Outcome little = Run("train typed --model rgcn --fanout 4,4 --memory 1MiB");
  EXPECT_EQ(little.exit_code, 1);
  EXPECT_THAT(little.err, HasSubstr("memory budget"));
}

}  // namespace
}  // namespace quarry
