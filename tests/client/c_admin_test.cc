// Making databases and their upkeep through the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "client/c_api_util.h"
#include "embedding/trained_tables.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using testing::HasSubstr;

std::map<std::string, double> ValuesOf(quarry_counters* report) {
  std::map<std::string, double> values;
  for (size_t i = 0; i < quarry_counters_count(report); ++i) {
    values[quarry_counter_name(report, i)] = quarry_counter_value(report, i);
  }
  quarry_counters_free(report);
  return values;
}

int CountCalls(void* context, const char* phase, uint64_t, uint64_t) {
  EXPECT_NE(std::strlen(phase), 0u);
  ++*static_cast<int*>(context);
  return 0;
}
int EndAtOnce(void*, const char*, uint64_t, uint64_t) { return 1; }

class CAdminTest : public CStoreTest {};
INSTANTIATE_TEST_SUITE_P(Kinds, CAdminTest, testing::Values(StoreKind::kEmbedded, StoreKind::kRemote),
                         KindName);

TEST(CImportTest, MakesADatabaseOrNothing) {
  const TemporaryFolder folder("c_import");
  const std::string source = folder / "edges.csv", path = folder / "graph.db";
  std::ofstream(source) << "0,1\n1,2\n2,0\n";
  quarry_import_options options = {.size = sizeof(options), .node_count = 5, .progress = EndAtOnce};
  EXPECT_EQ(quarry_import(path.c_str(), source.c_str(), &options), QUARRY_CANCELLED);
  EXPECT_FALSE(std::filesystem::exists(path));
  int calls = 0;
  options.progress = CountCalls;
  options.context = &calls;
  options.undirected = 1;
  ASSERT_EQ(quarry_import(path.c_str(), source.c_str(), &options), QUARRY_OK) << quarry_last_error();
  EXPECT_GT(calls, 0);
  EXPECT_EQ(quarry_import(path.c_str(), source.c_str(), nullptr), QUARRY_ALREADY_EXISTS);
  quarry_store* store = nullptr;
  ASSERT_EQ(quarry_open(path.c_str(), nullptr, &store), QUARRY_OK) << quarry_last_error();
  quarry_description* description = nullptr;
  ASSERT_EQ(quarry_describe(store, &description), QUARRY_OK);
  EXPECT_EQ(quarry_node_count(description), 5u);
  EXPECT_EQ(quarry_topology(description, 0)->edge_count, 6u);
  quarry_description_free(description);
  quarry_close(store);
  options.feature_type = QUARRY_INT64;
  EXPECT_EQ(quarry_import((folder / "other.db").c_str(), source.c_str(), &options), QUARRY_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_import(nullptr, source.c_str(), nullptr), QUARRY_USAGE);
  EXPECT_EQ(quarry_import((folder / "other.db").c_str(), "/nothing/there", nullptr), QUARRY_NOT_FOUND);
}

TEST(CImportTest, NumbersLabelsThatAreCodes) {
  const TemporaryFolder folder("c_relabel");
  std::ofstream(folder / "edges.csv") << "0,1\n1,2\n2,0\n";
  std::ofstream(folder / "labels.csv") << "700000000\n5\n700000000\n";
  const std::string edges = folder / "edges.csv", labels = folder / "labels.csv", path = folder / "graph.db";
  quarry_import_options options = {.size = sizeof(options), .labels = labels.c_str()};
  EXPECT_EQ(quarry_import(path.c_str(), edges.c_str(), &options), QUARRY_INVALID_ARGUMENT);
  EXPECT_THAT(quarry_last_error(), HasSubstr("relabel"));
  options.relabel = 1;
  // A program of an earlier version, whose struct ends before it, does not have it.
  options.size = offsetof(quarry_import_options, relabel);
  EXPECT_EQ(quarry_import(path.c_str(), edges.c_str(), &options), QUARRY_INVALID_ARGUMENT);
  options.size = sizeof(options);
  ASSERT_EQ(quarry_import(path.c_str(), edges.c_str(), &options), QUARRY_OK) << quarry_last_error();
  quarry_store* store = nullptr;
  ASSERT_EQ(quarry_open(path.c_str(), nullptr, &store), QUARRY_OK) << quarry_last_error();
  quarry_description* description = nullptr;
  ASSERT_EQ(quarry_describe(store, &description), QUARRY_OK);
  EXPECT_EQ(quarry_class_count(description), 2u);
  quarry_description_free(description);
  quarry_close(store);
}

TEST_P(CAdminTest, BuildsALayoutTrainsFromItAndDropsIt) {
  const std::vector<uint32_t> fanouts = {4, 3};
  const quarry_live_spec live = {
      .size = sizeof(live), .fanouts = fanouts.data(), .fanout_count = 2, .batch_size = 32};
  int calls = 0;
  quarry_layout_spec spec = {
      .size = sizeof(spec), .name = "plan", .live = &live, .progress = CountCalls, .context = &calls};
  quarry_counters* report = nullptr;
  ASSERT_EQ(quarry_build_layout(store_, &spec, &report), QUARRY_OK) << quarry_last_error();
  EXPECT_GT(calls, 0);
  std::map<std::string, double> built = ValuesOf(report);
  quarry_stream* stream = nullptr;
  ASSERT_EQ(quarry_open_planned(store_, "plan", nullptr, nullptr, &stream), QUARRY_OK) << quarry_last_error();
  uint64_t batches = 0;
  ASSERT_EQ(quarry_start_pass(stream, nullptr, &batches), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(built["batches"], static_cast<double>(batches));
  quarry_stream_free(stream);
  const quarry_live_spec with_ids = {.size = sizeof(with_ids),
                                     .fanouts = fanouts.data(),
                                     .fanout_count = 2,
                                     .batch_size = 32,
                                     .edge_ids = 1};
  EXPECT_EQ(quarry_open_planned(store_, "plan", &with_ids, nullptr, &stream), QUARRY_UNSUPPORTED);
  spec.progress = EndAtOnce;
  EXPECT_EQ(quarry_build_layout(store_, &spec, nullptr), QUARRY_CANCELLED);
  spec = {.size = sizeof(spec), .name = "told", .live = &with_ids};
  ASSERT_EQ(quarry_build_layout(store_, &spec, nullptr), QUARRY_OK) << quarry_last_error();
  ASSERT_EQ(quarry_open_planned(store_, "told", &with_ids, nullptr, &stream), QUARRY_OK)
      << quarry_last_error();
  quarry_stream_free(stream);
  ASSERT_EQ(quarry_drop_layout(store_, "told"), QUARRY_OK) << quarry_last_error();
  spec = {.size = sizeof(spec), .policy = "best"};
  EXPECT_EQ(quarry_build_layout(store_, &spec, nullptr), QUARRY_INVALID_ARGUMENT);
  EXPECT_THAT(quarry_last_error(), HasSubstr("best"));
  ASSERT_EQ(quarry_drop_layout(store_, "plan"), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(quarry_drop_layout(store_, "plan"), QUARRY_NOT_FOUND);
}

TEST_P(CAdminTest, PartsHaveRowsUnlessEdgesAloneAreAskedFor) {
  quarry_partitioning_options options = {
      .size = sizeof(options), .name = "cut", .table = "feature", .method = "random", .parts = 4};
  std::map<std::string, double> built[2];
  for (const int edges_only : {0, 1}) {
    options.edges_only = edges_only;
    quarry_counters* report = nullptr;
    ASSERT_EQ(quarry_build_partitioning(store_, &options, &report), QUARRY_OK) << quarry_last_error();
    built[edges_only] = ValuesOf(report);
  }
  EXPECT_EQ(built[0]["cut_edges"], built[1]["cut_edges"]);
  EXPECT_GE(built[0]["disk_bytes"] - built[1]["disk_bytes"], built[0]["nodes"] * 128) << "bytes of the rows";
  const quarry_partitioned_spec spec = {.size = sizeof(spec), .partitioning = "cut"};
  quarry_stream* stream = nullptr;
  EXPECT_EQ(quarry_open_partitioned(store_, &spec, nullptr, &stream), QUARRY_UNSUPPORTED);
  EXPECT_THAT(quarry_last_error(), HasSubstr("has no rows"));
  // A program that was compiled before there was the field: rows, as ever.
  options.size = offsetof(quarry_partitioning_options, edges_only);
  quarry_counters* report = nullptr;
  ASSERT_EQ(quarry_build_partitioning(store_, &options, &report), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(ValuesOf(report)["disk_bytes"], built[0]["disk_bytes"]);
  ASSERT_EQ(quarry_drop_partitioning(store_, "cut"), QUARRY_OK) << quarry_last_error();
}

TEST_P(CAdminTest, MakesAnEmbeddingTableTrainsItAndDropsIt) {
  quarry_embedding_spec spec = {.size = sizeof(spec),
                                .row_count = 50,
                                .dim = 6,
                                .optimizer = QUARRY_ADAM,
                                .init = QUARRY_INIT_NORMAL,
                                .init_scale = 2,
                                .seed = 3};
  ASSERT_EQ(quarry_create_embeddings(store_, "x", &spec), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(quarry_create_embeddings(store_, "x", &spec), QUARRY_ALREADY_EXISTS);
  EXPECT_EQ(quarry_create_embeddings(store_, "../x", &spec), QUARRY_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_create_embeddings(store_, "y", nullptr), QUARRY_INVALID_ARGUMENT) << "no rows";
  quarry_description* description = nullptr;
  ASSERT_EQ(quarry_describe(store_, &description), QUARRY_OK);
  EXPECT_STREQ(quarry_embedding(description, 1)->name, "x");
  EXPECT_EQ(quarry_embedding(description, 1)->state_dim, 13u);
  EXPECT_EQ(quarry_embedding(description, 2), nullptr);
  quarry_description_free(description);

  const std::vector<uint64_t> ids = {3, 49};
  quarry_embedding_rows* rows = nullptr;
  ASSERT_EQ(quarry_read_embeddings(store_, "x", ids.data(), 2, &rows), QUARRY_OK) << quarry_last_error();
  quarry_embedding_arrays arrays{};
  ASSERT_EQ(quarry_embedding_rows_get(rows, &arrays, sizeof(arrays)), QUARRY_OK);
  std::vector<float> first(6);
  InitRow({.row_count = 50, .dim = 6, .init = InitKind::kNormal, .init_scale = 2, .seed = 3}, 49, first);
  EXPECT_EQ(std::vector(arrays.values + 6, arrays.values + 12), first);
  const char* const table = "x";
  int64_t timestamp = -1;
  ASSERT_EQ(quarry_commit_embeddings(store_, &table, &rows, 1, &timestamp, nullptr), QUARRY_OK);
  EXPECT_GE(timestamp, 0);
  quarry_embedding_rows_free(rows);

  ASSERT_EQ(quarry_drop_embeddings(store_, "x"), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(quarry_drop_embeddings(store_, "x"), QUARRY_NOT_FOUND);
  EXPECT_EQ(quarry_read_embeddings(store_, "x", ids.data(), 2, &rows), QUARRY_NOT_FOUND);
  for (const std::string& file : FilesIn(database_.path() + "/embeddings")) {
    EXPECT_FALSE(file.starts_with("x-")) << file;
  }
  spec.optimizer = 7;
  EXPECT_EQ(quarry_create_embeddings(store_, "x", &spec), QUARRY_INVALID_ARGUMENT);
  EXPECT_THAT(quarry_last_error(), HasSubstr("optimizer 7"));
}

TEST_P(CAdminTest, FoldsChangedRowsIntoANewFileThatLookupsRead) {
  const std::vector<float> row(32, 0.5F);
  const uint64_t id = 7;
  const quarry_put_rows put = {
      .table = "feature", .ids = &id, .count = 1, .rows = row.data(), .row_bytes = 128};
  uint64_t timestamp = 0;
  ASSERT_EQ(quarry_put(store_, &put, 1, 1, &timestamp), QUARRY_OK) << quarry_last_error();
  quarry_counters* report = nullptr;
  ASSERT_EQ(quarry_compact(store_, "feature", 1, nullptr, nullptr, &report), QUARRY_OK);
  EXPECT_EQ(ValuesOf(report)["rows_changed"], 1);
  ASSERT_EQ(quarry_compact(store_, nullptr, 0, nullptr, nullptr, &report), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(ValuesOf(report)["rows_changed"], 1);
  ASSERT_EQ(quarry_compact(store_, "feature", 0, nullptr, nullptr, &report), QUARRY_OK);
  EXPECT_EQ(ValuesOf(report)["rows_changed"], 0) << "nothing to do";
  const uint32_t node = 7;
  std::vector<float> read(32);
  ASSERT_EQ(quarry_lookup_into(store_, "feature", &node, 1, nullptr, 0, read.data(), 0), QUARRY_OK);
  EXPECT_EQ(read, row);
  EXPECT_EQ(quarry_compact(store_, "none", 0, nullptr, nullptr, nullptr), QUARRY_NOT_FOUND);
}

TEST_P(CAdminTest, ACheckpointIsADatabaseAndVerifiesLikeOne) {
  const std::string copy = folder_ / "copy.db";
  quarry_counters* report = nullptr;
  EXPECT_EQ(quarry_checkpoint(store_, nullptr, nullptr, nullptr, &report), QUARRY_USAGE);
  ASSERT_EQ(quarry_checkpoint(store_, copy.c_str(), nullptr, nullptr, &report), QUARRY_OK)
      << quarry_last_error();
  EXPECT_GT(ValuesOf(report)["bytes"], 0);
  quarry_close(store_);
  ASSERT_EQ(quarry_open(copy.c_str(), nullptr, &store_), QUARRY_OK) << quarry_last_error();
  std::vector<std::string> faults;
  const quarry_fault keep = [](void* context, const char* what) {
    static_cast<std::vector<std::string>*>(context)->push_back(what);
  };
  ASSERT_EQ(quarry_verify(store_, keep, nullptr, &faults, &report), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(ValuesOf(report)["faults"], 0);
  EXPECT_TRUE(faults.empty());
  std::ofstream(copy + "/features/stray.qft") << "nobody's";
  ASSERT_EQ(quarry_verify(store_, keep, nullptr, &faults, &report), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(ValuesOf(report)["faults"], 1);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_THAT(faults[0], HasSubstr("stray.qft"));
  EXPECT_EQ(quarry_verify(store_, nullptr, EndAtOnce, nullptr, nullptr), QUARRY_CANCELLED);
}

TEST_P(CAdminTest, RemembersWhatTheDeviceDoes) {
  quarry_counters* report = nullptr;
  ASSERT_EQ(quarry_calibrate(store_, 0, &report), QUARRY_OK) << quarry_last_error();
  const std::map<std::string, double> measured = ValuesOf(report);
  EXPECT_GT(measured.at("random_reads_per_second"), 0);
  ASSERT_EQ(quarry_calibrate(store_, 0, &report), QUARRY_OK) << quarry_last_error();
  const std::map<std::string, double> remembered = ValuesOf(report);
  EXPECT_EQ(measured.at("measured_now"), 1);
  EXPECT_EQ(remembered.at("measured_now"), 0);
  for (const char* const rate : {"random_reads_per_second", "sequential_bytes_per_second",
                                 "write_bytes_per_second", "gather_bytes_per_second"}) {
    EXPECT_EQ(remembered.at(rate), measured.at(rate)) << rate;
  }
}

}  // namespace
}  // namespace quarry
