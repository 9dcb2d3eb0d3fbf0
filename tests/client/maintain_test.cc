// Maintenance does the same to a database whether it is asked of it here or over a server: each task against
// what is known of the database.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "client/store_util.h"
#include "quarry/format/manifest.h"
#include "support/flip_byte.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Values = std::map<std::string, double>;

Values ValuesOf(const wire::MaintenanceReport& report) {
  Values values;
  for (const wire::Counter& counter : report.counters) values[counter.name] = counter.value;
  return values;
}

class MaintainTest : public testing::TestWithParam<StoreKind> {
 protected:
  Values Do(const wire::MaintenanceTask& task) {
    const auto report = store_->Maintain(task);
    EXPECT_OK(report);
    return report.ok() ? ValuesOf(*report) : Values();
  }
  void PutRow(NodeId node, NodeId row_of) {
    EXPECT_OK(store_->Put({.tables = {RowsToPut("feature", {node}, {database_.graph().Row(row_of)})}}));
  }
  static std::vector<std::byte> RowOf(client::Store& store, NodeId node) {
    const auto rows = store.Lookup({.table = "feature", .ids = std::vector<NodeId>{node}});
    EXPECT_OK(rows);
    return rows.ok() ? std::vector<std::byte>((*rows)->bytes().begin(), (*rows)->bytes().end())
                     : std::vector<std::byte>();
  }
  Manifest ReadManifest() {
    const auto bytes = store_->ReadManifest();
    EXPECT_OK(bytes);
    return DecodeManifest(bytes.value(), "the store").value();
  }

  const TinyDatabase database_{{.nodes = 300, .dim = 32}};
  const TemporaryFolder folder_{"maintain"};
  OpenedStore store_{GetParam(), database_.path()};
};

INSTANTIATE_TEST_SUITE_P(Kinds, MaintainTest,
                         testing::Values(StoreKind::kEmbedded, StoreKind::kRemote, StoreKind::kInline),
                         [](const auto& kind) { return NameOf(kind.param); });

TEST_P(MaintainTest, CompactionFoldsTheChangedRows) {
  PutRow(7, 100);
  PutRow(8, 101);
  EXPECT_EQ(Do(wire::CompactTable{"feature", true})["rows_changed"], 2);
  EXPECT_EQ(ReadManifest().FindTable("feature")->generation, 1u) << "said, not done";
  Values done = Do(wire::CompactTable{"feature"});
  EXPECT_EQ(done["rows_changed"], 2);
  EXPECT_EQ(done["rows"], 300);
  EXPECT_EQ(done["generation"], 2);
  EXPECT_EQ(ReadManifest().FindTable("feature")->generation, 2u);
  EXPECT_EQ(RowOf(*store_, 7), database_.graph().Row(100));
  EXPECT_EQ(RowOf(*store_, 9), database_.graph().Row(9));
  EXPECT_EQ(Do(wire::CompactTable{"feature"})["rows_changed"], 0) << "nothing is left to do";
  EXPECT_EQ(Do(wire::VerifyDatabase{})["faults"], 0);
}

TEST_P(MaintainTest, ReadersOfBeforeGoOnThroughACompaction) {
  wire::OpenStream open = SmallStream();
  ASSERT_OK_AND_ASSIGN(const auto expected, store_->OpenStream(open));
  ASSERT_OK(expected->StartPass({.ordered = true}));
  const Hashes whole = DrainPass(*expected);
  ASSERT_OK_AND_ASSIGN(const auto stream, store_->OpenStream(open));
  ASSERT_OK(stream->StartPass({.ordered = true}));
  Hashes batches = DrainPass(*stream, 2);
  PutRow(7, 100);
  EXPECT_EQ(Do(wire::CompactTable{"feature"})["rows_changed"], 1);
  std::ranges::copy(DrainPass(*stream), std::back_inserter(batches));
  EXPECT_EQ(batches, whole);
}

TEST_P(MaintainTest, ACheckpointIsADatabaseWithWhatWasCommitted) {
  ASSERT_OK(store_->CreateEmbeddings("vectors", {.row_count = 20, .dim = 4}));
  const std::vector<uint64_t> ids = {3};
  {
    ASSERT_OK_AND_ASSIGN(const auto rows, store_->ReadEmbeddings("vectors", ids));
    std::ranges::fill(rows->arrays().values, 2.5F);
    const client::Store::Update update = {"vectors", rows.get()};
    ASSERT_OK_AND_ASSIGN(const auto committed, store_->CommitEmbeddings({&update, 1}));
    ASSERT_EQ(committed.stale_rows, 0u);
  }
  PutRow(7, 100);
  const std::string path = folder_ / "copy.db";
  EXPECT_GT(Do(wire::CheckpointDatabase{path})["bytes"], 0);
  EXPECT_EQ(store_->Maintain(wire::CheckpointDatabase{path}).status().code(), Code::kAlreadyExists);
  PutRow(7, 101);
  ASSERT_OK_AND_ASSIGN(const auto copy, client::Open(path, {.memory_bytes = 128 * kMiB}));
  EXPECT_EQ(RowOf(*copy, 7), database_.graph().Row(100)) << "as it was then";
  ASSERT_OK_AND_ASSIGN(const auto vectors, copy->ReadEmbeddings("vectors", ids));
  EXPECT_THAT(vectors->arrays().values, testing::Each(2.5F));
  ASSERT_OK_AND_ASSIGN(const auto report, copy->Maintain(wire::VerifyDatabase{}));
  EXPECT_THAT(report.faults, IsEmpty());
}

TEST_P(MaintainTest, VerifyingNamesWhatIsDamaged) {
  EXPECT_EQ(Do(wire::VerifyDatabase{})["faults"], 0);
  FlipByte(database_.path() + "/" + ReadManifest().FindTable("feature")->file, 8192 + 5);
  ASSERT_OK_AND_ASSIGN(const auto report, store_->Maintain(wire::VerifyDatabase{}));
  EXPECT_EQ(ValuesOf(report)["faults"], 1);
  EXPECT_THAT(report.faults, ElementsAre(HasSubstr("feature")));
  ASSERT_EQ(report.damages.size(), 1u);
  EXPECT_EQ(report.damages[0].name, "feature");
  EXPECT_GT(report.damages[0].row_count, 0u);
}

TEST_P(MaintainTest, ALayoutIsBuiltServedRebuiltAndDropped) {
  const wire::BuildLayout build = {.name = "plan",
                                   .road = {.fanouts = {4, 3}, .batch_size = 32, .cache_bytes = 4096}};
  Values built = Do(build);
  {
    wire::OpenStream open;
    open.road = wire::PlannedSpec{.layout = "plan"};
    ASSERT_OK_AND_ASSIGN(const auto stream, store_->OpenStream(open));
    ASSERT_OK_AND_ASSIGN(const uint64_t batches, stream->StartPass({}));
    EXPECT_EQ(built["batches"], static_cast<double>(batches));
    EXPECT_EQ(DrainPass(*stream).size(), batches);
  }
  EXPECT_EQ(static_cast<double>(ReadManifest().FindLayout("plan")->total_bytes()), built["disk_bytes"]);
  PutRow(7, 100);
  ASSERT_OK_AND_ASSIGN(const auto plan, store_->Maintain(wire::RebuildLayout{"plan", false, true}));
  EXPECT_EQ(ValuesOf(plan)["rows_changed"], 1);
  EXPECT_THAT(plan.notes, ElementsAre(testing::Not(IsEmpty())));
  EXPECT_EQ(Do(wire::RebuildLayout{"plan", true})["path"], 3) << "built anew";
  Do(wire::DropLayout{"plan"});
  EXPECT_EQ(ReadManifest().FindLayout("plan"), nullptr);
  EXPECT_EQ(store_->Maintain(wire::DropLayout{"plan"}).status().code(), Code::kNotFound);
}

TEST_P(MaintainTest, InspectingTellsWhatTheManifestDoesNot) {
  Values before = Do(wire::InspectDatabase{});
  EXPECT_EQ(before["splits.train"] + before["splits.valid"] + before["splits.test"] + before["splits.none"],
            300);
  EXPECT_GT(before["disk_bytes.catalog"], 0);
  EXPECT_FALSE(before.contains("changed_rows.feature"));
  PutRow(7, 100);
  PutRow(8, 101);
  ASSERT_OK(store_->CreateEmbeddings("vectors", {.row_count = 20, .dim = 4}));
  Values after = Do(wire::InspectDatabase{});
  EXPECT_EQ(after["timestamp"], before["timestamp"] + 2);
  EXPECT_EQ(after["changed_rows.feature"], 2);
  EXPECT_GT(after["changed_rows_bytes.feature"], 0);
  EXPECT_TRUE(after.contains("disk_bytes.embeddings.vectors"));
  ASSERT_OK_AND_ASSIGN(const auto description, store_->Describe());
  EXPECT_EQ(description.path, database_.path());
}

TEST_P(MaintainTest, ALayoutIsExplainedAndItsTraceMeasured) {
  EXPECT_EQ(store_->Maintain(wire::ExplainLayout{"plan"}).status().code(), Code::kNotFound);
  EXPECT_EQ(store_->Maintain(wire::TraceLayout{"plan"}).status().code(), Code::kNotFound);
  Values built = Do(
      wire::BuildLayout{.name = "plan", .road = {.fanouts = {4, 3}, .batch_size = 32, .cache_bytes = 4096}});
  ASSERT_OK_AND_ASSIGN(const auto explained, store_->Maintain(wire::ExplainLayout{"plan", 7}));
  EXPECT_THAT(explained.notes, ElementsAre(HasSubstr("7 epochs")));
  Values costs = ValuesOf(explained);
  const std::string own = fmt::format("paths.{}.", costs["own"]),
                    best = fmt::format("paths.{}.", costs["best"]);
  EXPECT_GE(costs[own + "bytes_read"], costs[own + "bytes_useful"]);
  EXPECT_LE(costs[best + "amortised_seconds_per_epoch"], costs[own + "amortised_seconds_per_epoch"]);
  EXPECT_EQ(costs["levels.0.rows"], built["cache_rows"]);
  Values trace = Do(wire::TraceLayout{"plan", {4096, uint64_t{1} << 30}});
  EXPECT_EQ(trace["nodes"], 300);
  EXPECT_EQ(trace["hit_ratios.0.cache_rows"], 4096 / (32 * 4));
  EXPECT_LE(trace["hit_ratios.0.fifo"], trace["hit_ratios.0.belady"]);
  EXPECT_EQ(trace["hit_ratios.1.cache_rows"], 300) << "no more than there are";
  EXPECT_NEAR(trace["top_shares.20"], trace["decile_shares.0"] + trace["decile_shares.1"], 1e-9);
}

TEST_P(MaintainTest, AnExportHasWhatWasCommitted) {
  PutRow(7, 100);
  ASSERT_OK_AND_ASSIGN(const auto report,
                       store_->Maintain(wire::ExportDatabase{.path = folder_ / "out", .labels = false}));
  const Values done = ValuesOf(report);
  double files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "out")) {
    ++files;
    EXPECT_NE(entry.path().filename(), "labels.npy");
  }
  EXPECT_EQ(done.at("files"), files);
  EXPECT_EQ(store_->Maintain(wire::ExportDatabase{.path = folder_ / "out"}).status().code(),
            Code::kAlreadyExists);
}

TEST_P(MaintainTest, WhatIsDroppedIsGone) {
  const std::vector<std::byte> state(100);
  ASSERT_OK(store_->SaveTraining({.name = "run", .settings = "none", .state = state}));
  Do(wire::DropTraining{"run"});
  EXPECT_EQ(store_->ReadTraining("run").status().code(), Code::kNotFound);
  EXPECT_EQ(store_->Maintain(wire::DropTraining{"run"}).status().code(), Code::kNotFound);
  Do(wire::DropTable{"label"});
  EXPECT_EQ(ReadManifest().FindTable("label"), nullptr);
  EXPECT_EQ(store_->Maintain(wire::DropTable{"label"}).status().code(), Code::kNotFound);
  EXPECT_EQ(Do(wire::VerifyDatabase{})["faults"], 0);
}

TEST_P(MaintainTest, WhatItsProgressEndsHasNotHappened) {
  PutRow(7, 100);
  const Status enough(Code::kCancelled, "enough");
  const auto stop = [&](std::string_view, uint64_t, uint64_t) { return enough; };
  const std::string path = folder_ / "copy.db";
  for (const wire::MaintenanceTask& task : std::initializer_list<wire::MaintenanceTask>{
           wire::VerifyDatabase{}, wire::CompactTable{"feature"}, wire::CheckpointDatabase{path},
           wire::ExportDatabase{.path = path},
           wire::BuildLayout{.road = {.fanouts = {2}, .batch_size = 32}}}) {
    EXPECT_EQ(store_->Maintain(task, stop).status().code(), Code::kCancelled) << task.index();
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  const Manifest manifest = ReadManifest();
  EXPECT_EQ(manifest.FindTable("feature")->generation, 1u);
  EXPECT_THAT(manifest.layouts, IsEmpty());
}

}  // namespace
}  // namespace quarry
