// quarry partition build|list|explain|drop, and what verify, repair and SQL say of partitionings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli_database_test.h"
#include "support/flip_byte.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class PartitionCliTest : public CliDatabaseTest {
 protected:
  static void SetUpTestSuite() {
    MakeDatabase("partition_cli_test", "--nodes 3k --degree 8 --dim 16 --classes 4 --train-share 20%");
  }

  static void ExpectUsage(const std::string& arguments, const std::string& words) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(words)) << arguments;
  }
};

TEST_F(PartitionCliTest, BuildsListsExplainsAndDrops) {
  const json built = RunJson("partition build db --parts 8 --seed 3 --json");
  EXPECT_EQ(built["method"], "grem");
  EXPECT_EQ(built["parts"], 8);
  EXPECT_EQ(built["nodes"], 3000);
  EXPECT_EQ(built["table"], "feature");
  EXPECT_TRUE(built["fresh"]);
  EXPECT_GT(built["cut_share"].get<double>(), 0);
  EXPECT_LT(built["cut_share"].get<double>(), 1);
  ASSERT_EQ(Run("partition build db edges --method random --parts 9 --table none").exit_code, 0);

  const json list = RunJson("partition list db --json");
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["name"], "default");
  EXPECT_EQ(list[1]["name"], "edges");
  EXPECT_TRUE(list[1]["table"].is_null());
  EXPECT_THAT(Run("partition list db").out,
              AllOf(HasSubstr("partitioning default: 8 parts"), HasSubstr("by grem")));

  const json explained = RunJson("partition explain db --buffer 4 --logical 4 --json");
  EXPECT_EQ(explained["buffer"], 4);
  ASSERT_EQ(explained["orders"].size(), 4U);
  const json& beta = explained["orders"][0];
  EXPECT_EQ(beta["order"], "beta");
  EXPECT_EQ(beta["swaps"], 9);
  EXPECT_EQ(beta["swaps_min"], 8);
  EXPECT_EQ(explained["orders"][1]["swaps"], 2 * 5);  // two parts each, of BETA(4, 2)
  EXPECT_THAT(explained["orders"][2]["refused"].get<std::string>(), HasSubstr("odd"));
  EXPECT_EQ(explained["orders"][3]["parts_read"], 8);
  const json edges = RunJson("partition explain db edges --buffer 6 --logical 3 --json");
  EXPECT_EQ(edges["orders"][2]["swaps"], 6);
  EXPECT_THAT(Run("partition explain db").out, HasSubstr("8 parts, 8 of them held; 2 logical ones"));

  EXPECT_EQ(Run("verify db").exit_code, 0);
  const json counts = RunJson(
      "sql db --json "
      "SELECT/**/partitioning,count(*)/**/AS/**/parts,sum(nodes)/**/AS/**/nodes/**/FROM/**/partitions/**/"
      "GROUP/**/BY/**/1");
  ASSERT_EQ(counts.size(), 2U);

  ASSERT_EQ(Run("partition drop db edges").exit_code, 0);
  ASSERT_EQ(Run("partition drop db").exit_code, 0);
  EXPECT_EQ(RunJson("partition list db --json"), json::array());
  EXPECT_TRUE(fs::is_empty(root_ / "db/partitions"));
  const Outcome gone = Run("partition drop db");
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_THAT(gone.err, HasSubstr("there is no partitioning \"default\""));
}

TEST_F(PartitionCliTest, TunesThePartsItself) {
  const json built = RunJson("partition build db tuned --method random --json");
  EXPECT_GE(built["parts"].get<int>(), 2);
  const json info = RunJson("info db --json");
  EXPECT_EQ(info["disk_bytes"]["partitionings"], built["disk_bytes"]);
  ASSERT_EQ(info["partitionings"].size(), 1U);
  EXPECT_EQ(info["partitionings"][0]["name"], "tuned");
  EXPECT_THAT(Run("info db").out, HasSubstr("tuned"));
  ASSERT_EQ(Run("partition drop db tuned").exit_code, 0);
}

TEST_F(PartitionCliTest, WhatCannotBeIsRefused) {
  ExpectUsage("partition build db --parts 5000", "5000 parts");
  ExpectUsage("partition build db --parts 2 --chunk 0%", "--chunk 0%");
  ExpectUsage("partition build db --parts 2 --chunk 10", "--chunk 10");
  ExpectUsage("partition build db a/b --parts 2", "letters, digits");
  ExpectUsage("partition build db --method hash", "hash");
  ExpectUsage("partition explain unix:run/quarry.sock", "stop it, and give the database's folder");
  const Outcome none = Run("partition explain db none");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("`quarry partition build` makes one"));
}

TEST_F(PartitionCliTest, EdgesThatCameAreTakenInByBuckets) {
  fs::copy(root_ / "db", root_ / "grown", fs::copy_options::recursive);
  const json built = RunJson("partition build grown --method random --parts 6 --json");
  EXPECT_EQ(built["buckets_bytes"], 0);
  EXPECT_EQ(built["edges_changed"], 0);
  std::ofstream(root_ / "more.csv") << "1,2\n2500,17\n2999,0\n";
  const json added = RunJson("add grown --edges more.csv --json");
  const json old = RunJson("partition list grown --json")[0];
  EXPECT_FALSE(old["fresh"]);
  EXPECT_TRUE(old["servable"]);
  EXPECT_EQ(old["edges_changed"], added["added"]);
  for (const char* const verb : {"partition list grown", "info grown"}) {
    EXPECT_THAT(Run(verb).out, HasSubstr("--method kept takes in what came since")) << verb;
  }
  const std::string train =
      "train grown --road partitioned --fanout 3,3 --hidden 8 --batch-size 256 --epochs 1";
  EXPECT_THAT(Run(train).err,
              HasSubstr("`quarry partition build grown default --method kept` takes that in"));
  const json renewed = RunJson("partition build grown --method kept --json");
  EXPECT_TRUE(renewed["fresh"]);
  EXPECT_EQ(renewed["method"], "random");
  EXPECT_EQ(renewed["edges"].get<int64_t>(), built["edges"].get<int64_t>() + added["added"].get<int64_t>());
  EXPECT_GT(renewed["buckets_bytes"].get<int64_t>(), 0);
  EXPECT_EQ(renewed["disk_bytes"].get<int64_t>(),
            built["disk_bytes"].get<int64_t>() + renewed["buckets_bytes"].get<int64_t>());
  EXPECT_EQ(RunJson("info grown --json")["disk_bytes"]["partitionings"], renewed["disk_bytes"]);
  EXPECT_EQ(Run("verify grown").exit_code, 0);
  const Outcome trained = Run(train);
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.err, Not(HasSubstr("takes that in")));
}

// The buffer is the run's, whatever a later run would tune.
TEST_F(PartitionCliTest, ARunByPartsGoesOnWithTheBufferThatItHad) {
  fs::copy(root_ / "db", root_ / "runs", fs::copy_options::recursive);
  ASSERT_EQ(Run("partition build runs --method random --parts 8").exit_code, 0);
  const std::string train =
      "train runs --road partitioned --fanout 3,3 --hidden 8 --batch-size 256 --ordered --torch-threads 1 "
      "--run r ";
  const Outcome begun =
      Run(train + "--epochs 1 --buffer 4 --logical 4 --threads 2 --memory 256MiB --checkpoint-every 1");
  ASSERT_EQ(begun.exit_code, 0) << begun.err;
  EXPECT_THAT(begun.err, HasSubstr("4 of 8 parts are held, 4 logical ones"));
  const Outcome resumed = Run(train + "--epochs 2 --threads 8 --memory 512MiB --resume");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("4 of 8 parts are held, 4 logical ones"));
  const Outcome other = Run(train + "--epochs 3 --buffer 6 --resume");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("--buffer is 6, but was 4"));
  EXPECT_THAT(Run("train runs --road partitioned --fanout 3,3 --run none --resume").err, HasSubstr("none"));
}

// A label of 10^9 makes 10^9 classes: it is the label that is wrong, and not the width.
TEST_F(PartitionCliTest, OneWrongLabelIsNamed) {
  fs::copy(root_ / "db", root_ / "wrong", fs::copy_options::recursive);
  const auto put = [](const std::string& name, int64_t value) {
    std::ofstream file(root_ / name, std::ios::binary);
    std::string head = "{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }";
    head.resize(117, ' ');
    head += '\n';
    file << "\x93NUMPY" << '\x01' << '\0' << '\x76' << '\0' << head;
    file.write(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  put("ids.npy", 17);
  put("labels.npy", 1'000'000'000);
  const Outcome written = Run("put wrong --ids ids.npy --labels labels.npy");
  ASSERT_EQ(written.exit_code, 0) << written.err;
  ASSERT_EQ(Run("partition build wrong --method random --parts 4").exit_code, 0);
  const Outcome refused = Run("train wrong --road partitioned --fanout 3,3 --hidden 8 --epochs 1");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err,
              HasSubstr("the label of node 17 is 1000000000, so a model would tell 1000000001 classes "
                        "apart; the largest of the others is 3"));
}

TEST_F(PartitionCliTest, ADamagedOneIsDroppedByARepairThatSaysHowToMakeItAgain) {
  fs::copy(root_ / "db", root_ / "broken", fs::copy_options::recursive);
  ASSERT_EQ(Run("partition build broken parts --method random --parts 4 --seed 7").exit_code, 0);
  testing_util::FlipByte((root_ / "broken/partitions/parts-1/parts.qpp").string(), 9000);
  const Outcome verified = Run("verify broken");
  EXPECT_EQ(verified.exit_code, 3);
  EXPECT_THAT(verified.out + verified.err, HasSubstr("parts.qpp"));
  const Outcome repaired = Run("repair broken");
  EXPECT_EQ(repaired.exit_code, 0) << repaired.err;
  EXPECT_THAT(repaired.out,
              HasSubstr("quarry partition build broken parts --method random --parts 4 --seed 7"));
  EXPECT_EQ(RunJson("partition list broken --json"), json::array());
  EXPECT_EQ(Run("verify broken").exit_code, 0);
}

}  // namespace
}  // namespace quarry
