// quarry export: the verb as a script sees it. What is in the files is export_test's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "quarry_process.h"
#include "support/array_files.h"
#include "support/file_text.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class ExportCliTest : public testing::Test {
 protected:
  ExportCliTest() : folder_("export-cli") {
    folder_.Write("set/edges.npy", NpyEdges({{0, 1}, {2, 0}}));
    folder_.Write("set/features.npy", NpyFile<float>({1, 2, 3}, {3, 1}));
    folder_.Write("set/labels.npy", NpyVector<int64_t>({0, 1, 0}));
    EXPECT_EQ(Run("import db set --undirected --feature-dtype bfloat16").exit_code, 0);
  }
  Outcome Run(const std::string& arguments) const { return Process(arguments, folder_.path()).Wait(); }

  const TemporaryFolder folder_;
};

TEST_F(ExportCliTest, SaysHowAnEqualDatabaseIsMade) {
  const Outcome exported = Run("export db out");
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const std::string says = "an equal database is made by: quarry import NEW.db out ";
  const std::vector<std::string> lines = Lines(exported.out);
  ASSERT_EQ(lines.size(), 2u) << exported.out;
  EXPECT_THAT(lines[0], HasSubstr("out: 4 files"));
  ASSERT_EQ(lines[1], says + "--undirected --bf16");
  ASSERT_EQ(Run("import again out --undirected --bf16").exit_code, 0);
  const json again = json::parse(Run("info again --json").out);
  EXPECT_EQ(again["edges"], 4);
  EXPECT_EQ(again["tables"].size(), 2u);
  EXPECT_EQ(again["topologies"][0]["undirected"], true);
}

TEST_F(ExportCliTest, JsonIsOneObject) {
  const Outcome exported =
      Run("export --what features,labels db out --format graphbolt --json --trace trace.json");
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const json report = json::parse(exported.out);
  EXPECT_EQ(report["path"], "out");
  EXPECT_EQ(report["files"], 3);
  EXPECT_THAT(report["import_options"], ElementsAre("--feature-dtype bfloat16"));
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / "out")) bytes += entry.file_size();
  EXPECT_EQ(report["bytes"], bytes);
  EXPECT_THAT(testing_util::FileText(folder_ / "trace.json"), HasSubstr("export features"));
}

TEST_F(ExportCliTest, RefusesByExitCodeAndSentence) {
  const auto refused = [&](const std::string& arguments, int exit_code) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << arguments;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_EQ(refused("export db set", 1),
            "quarry: already exists: set exists; remove it or choose another folder\n");
  EXPECT_EQ(refused("export db db/out", 1),
            "quarry: invalid argument: db/out: lies in the database db: put it elsewhere\n");
  EXPECT_THAT(refused("export db out --table absent", 1), HasSubstr("absent"));
  EXPECT_THAT(refused("export absent out", 1), HasSubstr("absent"));
  EXPECT_THAT(refused("export db out --format parquet", 2), HasSubstr("parquet"));
  EXPECT_THAT(refused("export db out --what rows", 2), HasSubstr("rows"));
  EXPECT_THAT(refused("export db out --what split", 1), HasSubstr("holds nothing of what is to be exported"));
  EXPECT_THAT(refused("export db out --memory 1MiB", 1), HasSubstr("give at least"));
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  EXPECT_FALSE(fs::exists(folder_ / "out.exporting"));
}

}  // namespace
}  // namespace quarry
