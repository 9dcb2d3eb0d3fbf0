// The C interface gives what the C++ one gives, and says what went wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/c_api_util.h"
#include "quarry/base/random.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using testing::HasSubstr;

class CApiTest : public CStoreTest {};
INSTANTIATE_TEST_SUITE_P(Kinds, CApiTest, kBothKinds, KindName);

TEST_P(CApiTest, DescribesTheDatabase) {
  EXPECT_EQ(quarry_abi_version() >> 16, QUARRY_ABI_VERSION >> 16);
  EXPECT_EQ(quarry_ping(store_), QUARRY_OK);
  quarry_description* description = nullptr;
  ASSERT_EQ(quarry_describe(store_, &description), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(quarry_node_count(description), 300u);
  EXPECT_EQ(quarry_class_count(description), 5u);
  size_t tables = 0;
  for (; quarry_table(description, tables) != nullptr; ++tables) {
    const quarry_table_info& table = *quarry_table(description, tables);
    if (std::string(table.name) == "feature") {
      EXPECT_EQ(table.row_bytes, 128u);
    }
  }
  EXPECT_EQ(tables, 3u);
  EXPECT_STREQ(quarry_topology(description, 0)->name, "graph");
  EXPECT_EQ(quarry_layout(description, 0), nullptr);
  EXPECT_STREQ(quarry_embedding(description, 0)->name, "nodes");
  quarry_description_free(description);
}

TEST_P(CApiTest, PutsAndLooksUpRowsAsOfSnapshots) {
  quarry_snapshot* before = nullptr;
  ASSERT_EQ(quarry_take_snapshot(store_, &before), QUARRY_OK) << quarry_last_error();
  std::vector<float> values(32, 0.5F);
  std::vector<std::byte> row(128);
  ASSERT_EQ(quarry_encode_row(QUARRY_FLOAT32, values.data(), 32, row.data(), row.size()), QUARRY_OK);
  EXPECT_EQ(quarry_encode_row(QUARRY_FLOAT32, values.data(), 32, row.data(), 127), QUARRY_INVALID_ARGUMENT);
  const uint64_t id = 7;
  const quarry_put_rows put = {
      .table = "feature", .ids = &id, .count = 1, .rows = row.data(), .row_bytes = 128};
  uint64_t timestamp = 0;
  ASSERT_EQ(quarry_put(store_, &put, 1, 1, &timestamp), QUARRY_OK) << quarry_last_error();
  EXPECT_GT(timestamp, quarry_snapshot_timestamp(before));
  const uint32_t node = 7;
  for (const quarry_snapshot* snapshot :
       {static_cast<const quarry_snapshot*>(nullptr), static_cast<const quarry_snapshot*>(before)}) {
    quarry_rows* rows = nullptr;
    ASSERT_EQ(quarry_lookup(store_, "feature", &node, 1, snapshot, &rows), QUARRY_OK) << quarry_last_error();
    uint64_t bytes = 0;
    const void* const data = quarry_rows_data(rows, &bytes);
    ASSERT_EQ(bytes, 128u);
    const std::vector<std::byte> expected = snapshot == nullptr ? row : database_.graph().Row(7);
    EXPECT_EQ(std::memcmp(data, expected.data(), bytes), 0);
    std::vector<float> floats(32);
    EXPECT_EQ(quarry_rows_float32(rows, floats.data(), 31), QUARRY_INVALID_ARGUMENT);
    ASSERT_EQ(quarry_rows_float32(rows, floats.data(), 32), QUARRY_OK);
    EXPECT_EQ(std::memcmp(floats.data(), expected.data(), bytes), 0);
    EXPECT_EQ(quarry_rows_element_type(rows), QUARRY_FLOAT32);
    quarry_rows_free(rows);
  }
  quarry_snapshot_free(before);
}

TEST_P(CApiTest, ChangesTheGraph) {
  const std::vector<std::byte> row = database_.graph().Row(9);
  const uint64_t id = 300;
  const quarry_put_rows put = {
      .table = "feature", .ids = &id, .count = 1, .rows = row.data(), .row_bytes = 128};
  const uint32_t sources[] = {300, 301}, destinations[] = {301, 4}, gone[] = {5};
  quarry_graph_change change = {.size = sizeof(change),
                                .first_node = 300,
                                .nodes = 2,
                                .sources = sources,
                                .destinations = destinations,
                                .edge_count = 2,
                                .removed_nodes = gone,
                                .removed_node_count = 1};
  const auto touches_5 = [](const Edge& edge) { return edge.source == 5 || edge.destination == 5; };
  const std::vector<Edge> edges = database_.graph().Edges();
  const uint64_t lost = static_cast<uint64_t>(std::ranges::count_if(edges, touches_5));
  quarry_graph_changed changed = {};
  ASSERT_EQ(quarry_change_graph(store_, &change, &put, 1, &changed, sizeof(changed)), QUARRY_OK)
      << quarry_last_error();
  EXPECT_GT(changed.timestamp, 0u);
  EXPECT_EQ(changed.added, 2u);
  EXPECT_EQ(changed.removed, lost);
  EXPECT_EQ(changed.first_node, 300u);
  EXPECT_EQ(changed.nodes_added, 2u);
  EXPECT_EQ(changed.nodes_removed, 1u);
  EXPECT_EQ(changed.node_count, 302u);
  EXPECT_EQ(changed.edge_count, edges.size() + 2 - lost);
  EXPECT_EQ(changed.runs, 1u);
  const uint32_t nodes[] = {300, 301, 5};
  quarry_rows* rows = nullptr;
  ASSERT_EQ(quarry_lookup(store_, "feature", nodes, 3, nullptr, &rows), QUARRY_OK) << quarry_last_error();
  uint64_t bytes = 0;
  const auto* const data = static_cast<const std::byte*>(quarry_rows_data(rows, &bytes));
  ASSERT_EQ(bytes, 3 * 128u);
  EXPECT_EQ(std::memcmp(data, row.data(), 128), 0);
  for (size_t i = 128; i < bytes; ++i) ASSERT_EQ(data[i], std::byte{0}) << i;
  quarry_rows_free(rows);

  EXPECT_EQ(quarry_change_graph(store_, &change, nullptr, 0, nullptr, 0), QUARRY_BUSY)
      << "there are 302 nodes by now";
  change.first_node = 302;
  change.nodes = change.removed_node_count = 0;
  const uint32_t beyond[] = {302, 0};
  change.sources = beyond;
  EXPECT_EQ(quarry_change_graph(store_, &change, nullptr, 0, nullptr, 0), QUARRY_INVALID_ARGUMENT);
  EXPECT_THAT(quarry_last_error(), HasSubstr("302"));
  change.sources = sources;
  change.remove = 1;
  // As a program of an earlier version has it: less of the answer.
  changed = {.nodes_removed = 77};
  ASSERT_EQ(quarry_change_graph(store_, &change, nullptr, 0, &changed,
                                offsetof(quarry_graph_changed, nodes_removed)),
            QUARRY_OK)
      << quarry_last_error();
  EXPECT_EQ(changed.removed, 2u);
  EXPECT_EQ(changed.node_count, 302u);
  EXPECT_EQ(changed.nodes_removed, 77u) << "behind what it has room for";
}

// Edges of a change, as C has them; they are the list's.
struct EdgeColumns {
  explicit EdgeColumns(const std::vector<Edge>& edges) {
    for (const Edge& edge : edges) {
      sources.push_back(static_cast<uint32_t>(edge.source));
      destinations.push_back(static_cast<uint32_t>(edge.destination));
    }
  }
  quarry_graph_change Change(bool remove) const {
    return {.size = sizeof(quarry_graph_change),
            .sources = sources.data(),
            .destinations = destinations.data(),
            .edge_count = sources.size(),
            .remove = remove ? 1 : 0};
  }
  std::vector<uint32_t> sources, destinations;
};

using EdgeSet = std::multiset<std::pair<uint64_t, uint64_t>>;

EdgeSet AllEdges(quarry_store* store) {
  std::vector<uint32_t> triples(3 * 20000);
  uint64_t count = 0;
  EXPECT_EQ(quarry_read_edges(store, nullptr, 0, 20000, triples.data(), &count), QUARRY_OK)
      << quarry_last_error();
  EXPECT_LT(count, 20000u);
  EdgeSet edges;
  for (uint64_t i = 0; i < count; ++i) edges.insert({triples[3 * i], triples[3 * i + 2]});
  return edges;
}

// Beside a model: what comes in any number of pieces is one commit, which nobody sees before it is made.
TEST_P(CApiTest, ChangesTheGraphInPieces) {
  EdgeSet model;
  for (const Edge& edge : database_.graph().Edges()) model.insert({edge.source, edge.destination});
  uint64_t nodes = 300;
  std::map<uint64_t, std::vector<std::byte>> rows;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const uint64_t added = rng.Below(4);
    const quarry_graph_change begin = {.size = sizeof(begin), .first_node = nodes, .nodes = added};
    quarry_large_put* put = nullptr;
    ASSERT_EQ(quarry_begin_put(store_, &begin, &put), QUARRY_OK) << quarry_last_error();
    EdgeSet removed, came;
    std::map<uint64_t, std::vector<std::byte>> written;
    for (uint64_t piece = 0; piece < 1 + rng.Below(6); ++piece) {
      std::vector<Edge> edges;
      const bool remove = rng.Below(3) == 0;
      for (uint64_t i = 0; i < rng.Below(40); ++i) {
        edges.push_back({rng.Below(nodes + added), rng.Below(nodes + added)});
        (remove ? removed : came).insert({edges.back().source, edges.back().destination});
      }
      const EdgeColumns columns(edges);
      const quarry_graph_change change = columns.Change(remove);
      ASSERT_EQ(quarry_change_more(put, &change), QUARRY_OK) << quarry_last_error();
      const uint64_t id = rng.Below(nodes + added);
      written[id] = database_.graph().Row(static_cast<NodeId>(rng.Below(300)));
      const quarry_put_rows some = {
          .table = "feature", .ids = &id, .count = 1, .rows = written[id].data(), .row_bytes = 128};
      ASSERT_EQ(quarry_put_more(put, &some, 1), QUARRY_OK) << quarry_last_error();
    }
    EXPECT_EQ(AllEdges(store_), model) << "before the commit";
    quarry_graph_changed changed = {};
    ASSERT_EQ(quarry_commit_put(put, &changed, sizeof(changed)), QUARRY_OK) << quarry_last_error();
    EXPECT_EQ(quarry_commit_put(put, &changed, sizeof(changed)), QUARRY_USAGE);
    quarry_large_put_free(put);
    for (const auto& edge : removed) model.erase(edge);
    model.insert(came.begin(), came.end());
    nodes += added;
    for (auto& [id, row] : written) rows[id] = std::move(row);
    EXPECT_EQ(changed.nodes_added, added);
    EXPECT_EQ(changed.node_count, nodes);
    EXPECT_EQ(changed.edge_count, model.size());
    ASSERT_EQ(AllEdges(store_), model);
  }
  for (const auto& [id, row] : rows) {
    const auto node = static_cast<uint32_t>(id);
    std::vector<std::byte> read(128);
    ASSERT_EQ(quarry_lookup_into(store_, "feature", &node, 1, nullptr, 0, read.data(), 0), QUARRY_OK);
    EXPECT_EQ(read, row) << id;
  }
}

TEST_P(CApiTest, PiecesAreRefusedInWordsAndForgotten) {
  const EdgeSet before = AllEdges(store_);
  const EdgeColumns columns({{1, 2}});
  const quarry_graph_change edges = columns.Change(/*remove=*/false);
  quarry_graph_change other = edges;
  other.first_node = 300;
  other.nodes = 7;
  const EdgeColumns beyond({{1, 300}});
  const quarry_graph_change far = beyond.Change(/*remove=*/false);

  const auto refuses = [&](const quarry_graph_change* begin, const quarry_graph_change& piece, int code,
                           const char* why) {
    quarry_large_put* put = nullptr;
    ASSERT_EQ(quarry_begin_put(store_, begin, &put), QUARRY_OK) << quarry_last_error();
    EXPECT_EQ(quarry_change_more(put, &piece), code);
    EXPECT_THAT(quarry_last_error(), HasSubstr(why));
    EXPECT_EQ(quarry_commit_put(put, nullptr, 0), code) << "the same from then on";
    EXPECT_THAT(quarry_last_error(), HasSubstr(why));
    quarry_large_put_free(put);
  };
  refuses(nullptr, edges, QUARRY_USAGE, "the first one does not: begin with it");
  refuses(&edges, other, QUARRY_USAGE, "a piece is of topology \"graph\" and 7 nodes from 300 on");
  refuses(&edges, far, QUARRY_INVALID_ARGUMENT, "300");

  // One that is not committed leaves nothing, and another may begin once it has gone.
  quarry_large_put *first = nullptr, *second = nullptr;
  ASSERT_EQ(quarry_begin_put(store_, &edges, &first), QUARRY_OK);
  ASSERT_EQ(quarry_change_more(first, &edges), QUARRY_OK) << quarry_last_error();
  ASSERT_EQ(quarry_begin_put(store_, &edges, &second), QUARRY_OK);
  EXPECT_EQ(quarry_change_more(second, &edges), QUARRY_BUSY);
  quarry_large_put_free(second);
  quarry_large_put_free(first);
  EXPECT_EQ(AllEdges(store_), before);

  // Rows alone.
  const std::vector<std::byte> row = database_.graph().Row(9);
  const uint64_t id = 7;
  const quarry_put_rows put = {
      .table = "feature", .ids = &id, .count = 1, .rows = row.data(), .row_bytes = 128};
  ASSERT_EQ(quarry_begin_put(store_, nullptr, &first), QUARRY_OK);
  ASSERT_EQ(quarry_put_more(first, &put, 1), QUARRY_OK) << quarry_last_error();
  quarry_graph_changed changed = {};
  ASSERT_EQ(quarry_commit_put(first, &changed, sizeof(changed)), QUARRY_OK) << quarry_last_error();
  EXPECT_GT(changed.timestamp, 0u);
  EXPECT_EQ(changed.edge_count, 0u) << "nothing is said of the graph";
  quarry_large_put_free(first);
  const uint32_t node = 7;
  std::vector<std::byte> read(128);
  ASSERT_EQ(quarry_lookup_into(store_, "feature", &node, 1, nullptr, 0, read.data(), 0), QUARRY_OK);
  EXPECT_EQ(read, row);
}

TEST_P(CApiTest, GivesBlocksAndBatches) {
  const std::vector<uint32_t> seeds = {1, 2, 3}, fanouts = {4, 3};
  quarry_batch* block = nullptr;
  ASSERT_EQ(quarry_sample(store_, nullptr, seeds.data(), 3, fanouts.data(), 2, QUARRY_IN, 5, &block),
            QUARRY_OK)
      << quarry_last_error();
  quarry_batch_arrays arrays{};
  ASSERT_EQ(quarry_batch_get(block, &arrays, sizeof(arrays)), QUARRY_OK);
  EXPECT_EQ(arrays.seed_count, 3u);
  EXPECT_EQ(arrays.nodes[0], 1u);
  EXPECT_EQ(arrays.rows, nullptr);
  EXPECT_EQ(arrays.indptr[arrays.target_count], arrays.edge_count);
  quarry_batch_free(block);

  const quarry_live_spec live = {
      .size = sizeof(live), .fanouts = fanouts.data(), .fanout_count = 2, .batch_size = 16};
  quarry_stream* stream = nullptr;
  ASSERT_EQ(quarry_open_live(store_, &live, nullptr, &stream), QUARRY_OK) << quarry_last_error();
  EXPECT_EQ(quarry_stream_feature_dim(stream), 32u);
  const quarry_pass pass = {.size = sizeof(pass), .split = QUARRY_VALID, .ordered = 1};
  uint64_t batches = 0, seen = 0;
  ASSERT_EQ(quarry_start_pass(stream, &pass, &batches), QUARRY_OK) << quarry_last_error();
  while (true) {
    quarry_batch* batch = nullptr;
    ASSERT_EQ(quarry_next(stream, &batch), QUARRY_OK) << quarry_last_error();
    if (batch == nullptr) break;
    ASSERT_EQ(quarry_batch_get(batch, &arrays, sizeof(arrays)), QUARRY_OK);
    EXPECT_EQ(arrays.index, seen++);
    const uint64_t row = arrays.slots == nullptr ? 0 : arrays.slots[0];
    const auto* const bytes = static_cast<const std::byte*>(arrays.rows) + row * arrays.row_stride_bytes;
    EXPECT_EQ(std::memcmp(bytes, database_.graph().Row(arrays.nodes[0]).data(), 128), 0);
    EXPECT_EQ(arrays.labels[0], database_.graph().Label(arrays.nodes[0]));
    quarry_batch_free(batch);
  }
  EXPECT_EQ(seen, batches);
  quarry_counters* counters = nullptr;
  ASSERT_EQ(quarry_stream_stats(stream, &counters), QUARRY_OK) << quarry_last_error();
  EXPECT_STREQ(quarry_counter_name(counters, 0), "batches");
  EXPECT_EQ(quarry_counter_value(counters, 0), static_cast<double>(batches));
  EXPECT_EQ(quarry_counter_name(counters, quarry_counters_count(counters)), nullptr);
  quarry_counters_free(counters);
  quarry_stream_free(stream);
  ASSERT_EQ(quarry_stats(store_, &counters), QUARRY_OK);
  EXPECT_GT(quarry_counters_count(counters), 0u);
  quarry_counters_free(counters);
}

TEST_P(CApiTest, SuperbatchesAreEpochsOfFreshBatches) {
  const std::vector<uint32_t> fanouts = {4, 3};
  const quarry_live_spec live = {
      .size = sizeof(live), .fanouts = fanouts.data(), .fanout_count = 2, .batch_size = 16};
  quarry_superbatch_spec spec = {.size = sizeof(spec), .live = &live, .packing = QUARRY_PACK_NEVER};
  quarry_stream* stream = nullptr;
  ASSERT_EQ(quarry_open_superbatch(store_, &spec, nullptr, &stream), QUARRY_OK) << quarry_last_error();
  for (uint64_t epoch = 0; epoch < 2; ++epoch) {
    const quarry_pass pass = {.size = sizeof(pass), .ordered = 1, .pass = epoch};
    uint64_t batches = 0, seen = 0;
    ASSERT_EQ(quarry_start_pass(stream, &pass, &batches), QUARRY_OK) << quarry_last_error();
    while (true) {
      quarry_batch* batch = nullptr;
      ASSERT_EQ(quarry_next(stream, &batch), QUARRY_OK) << quarry_last_error();
      if (batch == nullptr) break;
      quarry_batch_arrays arrays{};
      ASSERT_EQ(quarry_batch_get(batch, &arrays, sizeof(arrays)), QUARRY_OK);
      const uint64_t row = arrays.slots == nullptr ? 0 : arrays.slots[0];
      const auto* const bytes = static_cast<const std::byte*>(arrays.rows) + row * arrays.row_stride_bytes;
      EXPECT_EQ(std::memcmp(bytes, database_.graph().Row(arrays.nodes[0]).data(), 128), 0);
      quarry_batch_free(batch);
      ++seen;
    }
    EXPECT_GT(seen, 0u);
    EXPECT_EQ(seen, batches);
  }
  quarry_stream_free(stream);
  spec.policy = "best";
  EXPECT_EQ(quarry_open_superbatch(store_, &spec, nullptr, &stream), QUARRY_INVALID_ARGUMENT);
  EXPECT_THAT(quarry_last_error(), HasSubstr("best"));
  spec = {.size = sizeof(spec), .packing = 3};
  EXPECT_EQ(quarry_open_superbatch(store_, &spec, nullptr, &stream), QUARRY_INVALID_ARGUMENT);
  EXPECT_THAT(quarry_last_error(), HasSubstr("packing 3"));
}

TEST_P(CApiTest, BatchesOfPartsNameNodesAsTheDatabaseDoes) {
  const std::vector<uint32_t> fanouts = {4, 3};
  const quarry_live_spec live = {
      .size = sizeof(live), .fanouts = fanouts.data(), .fanout_count = 2, .batch_size = 16};
  quarry_partitioned_spec spec = {.size = sizeof(spec), .live = &live, .buffer = 3};
  quarry_stream* stream = nullptr;
  ASSERT_EQ(quarry_open_partitioned(store_, &spec, nullptr, &stream), QUARRY_OK) << quarry_last_error();
  for (const int split : {QUARRY_TRAIN, QUARRY_TEST}) {
    const quarry_pass pass = {.size = sizeof(pass), .split = split};
    uint64_t batches = 0, seen = 0;
    std::vector<uint32_t> seeds, expected = database_.graph().SplitNodes(static_cast<Split>(split));
    if (split == QUARRY_TRAIN) {
      std::erase_if(expected, [&](uint32_t node) { return database_.graph().Label(node) < 0; });
    }
    ASSERT_EQ(quarry_start_pass(stream, &pass, &batches), QUARRY_OK) << quarry_last_error();
    while (true) {
      quarry_batch* batch = nullptr;
      ASSERT_EQ(quarry_next(stream, &batch), QUARRY_OK) << quarry_last_error();
      if (batch == nullptr) break;
      quarry_batch_arrays arrays{};
      ASSERT_EQ(quarry_batch_get(batch, &arrays, sizeof(arrays)), QUARRY_OK);
      for (uint32_t i = 0; i < arrays.node_count; ++i) {
        const uint64_t row = arrays.slots == nullptr ? i : arrays.slots[i];
        const auto* const bytes = static_cast<const std::byte*>(arrays.rows) + row * arrays.row_stride_bytes;
        ASSERT_EQ(std::memcmp(bytes, database_.graph().Row(arrays.nodes[i]).data(), 128), 0) << i;
      }
      for (uint32_t i = 0; i < arrays.seed_count; ++i) {
        ASSERT_EQ(arrays.labels[i], database_.graph().Label(arrays.nodes[i]));
        seeds.push_back(arrays.nodes[i]);
      }
      quarry_batch_free(batch);
      ++seen;
    }
    EXPECT_EQ(seen, batches);
    std::ranges::sort(seeds);
    EXPECT_EQ(seeds, expected);
  }
  const uint32_t seed = 1;
  const quarry_pass given = {.size = sizeof(given), .seeds = &seed, .seed_count = 1};
  EXPECT_EQ(quarry_start_pass(stream, &given, nullptr), QUARRY_UNSUPPORTED);
  EXPECT_THAT(quarry_last_error(), HasSubstr("given nodes"));
  quarry_stream_free(stream);
  spec.partitioning = "other";
  EXPECT_EQ(quarry_open_partitioned(store_, &spec, nullptr, &stream), QUARRY_NOT_FOUND);
  EXPECT_THAT(quarry_last_error(), HasSubstr("no partitioning \"other\""));
}

TEST_P(CApiTest, ReadsEdges) {
  quarry_description* description = nullptr;
  ASSERT_EQ(quarry_describe(store_, &description), QUARRY_OK);
  const uint64_t all = quarry_topology(description, 0)->edge_count;
  quarry_description_free(description);
  std::vector<uint32_t> edges(3 * (all + 5));
  uint64_t count = 0;
  ASSERT_EQ(quarry_read_edges(store_, nullptr, 0, all + 5, edges.data(), &count), QUARRY_OK)
      << quarry_last_error();
  ASSERT_EQ(count, all);
  for (uint64_t i = 1; i < all; ++i) ASSERT_LE(edges[3 * i - 1], edges[3 * i + 2]) << "by destination";
  std::vector<uint32_t> one(3);
  ASSERT_EQ(quarry_read_edges(store_, "graph", 7, 1, one.data(), &count), QUARRY_OK);
  EXPECT_EQ(count, 1u);
  EXPECT_TRUE(std::ranges::equal(one, std::span(edges).subspan(21, 3)));
  EXPECT_EQ(quarry_read_edges(store_, "none", 0, 1, one.data(), &count), QUARRY_NOT_FOUND);
  EXPECT_THAT(quarry_last_error(), HasSubstr("none"));
}

TEST_P(CApiTest, SavesAndReadsTrainings) {
  const std::string state = "weights";
  quarry_training_to_save save = {.size = sizeof(save),
                                  .name = "run",
                                  .settings = "--seed 3",
                                  .state = state.data(),
                                  .state_bytes = state.size()};
  quarry_training *saved = nullptr, *read = nullptr;
  ASSERT_EQ(quarry_save_training(store_, &save, &saved), QUARRY_OK) << quarry_last_error();
  ASSERT_EQ(quarry_read_training(store_, "run", 1, &read), QUARRY_OK) << quarry_last_error();
  EXPECT_STREQ(quarry_training_settings(read), "--seed 3");
  EXPECT_STREQ(quarry_training_created_utc(read), quarry_training_created_utc(saved));
  EXPECT_EQ(quarry_training_timestamp(read), -1);
  uint64_t bytes = 0;
  const void* const data = quarry_training_state(read, &bytes);
  EXPECT_EQ(std::string(static_cast<const char*>(data), bytes), state);
  EXPECT_EQ(quarry_training_state(saved, &bytes), nullptr);
  quarry_training_free(read);
  quarry_training_free(saved);

  const uint64_t id = 3;
  const char* const table = "nodes";
  quarry_embedding_rows* rows = nullptr;
  int64_t timestamp = -1;
  ASSERT_EQ(quarry_read_embeddings(store_, table, &id, 1, &rows), QUARRY_OK);
  ASSERT_EQ(quarry_commit_embeddings(store_, &table, &rows, 1, &timestamp, nullptr), QUARRY_OK);
  quarry_embedding_rows_free(rows);
  save.with_embeddings = 1;
  ASSERT_EQ(quarry_save_training(store_, &save, nullptr), QUARRY_OK) << quarry_last_error();
  ASSERT_EQ(quarry_read_training(store_, "run", 0, &read), QUARRY_OK);
  EXPECT_EQ(quarry_training_timestamp(read), timestamp);
  EXPECT_EQ(quarry_training_state(read, &bytes), nullptr);
  EXPECT_EQ(bytes, 0u);
  quarry_training_free(read);

  EXPECT_EQ(quarry_read_training(store_, "other", 1, &read), QUARRY_NOT_FOUND);
  EXPECT_THAT(quarry_last_error(), HasSubstr("run"));
  save.state_bytes = 0;
  EXPECT_EQ(quarry_save_training(store_, &save, nullptr), QUARRY_INVALID_ARGUMENT);
  save = {.size = sizeof(save), .name = "run", .state_bytes = 9};
  EXPECT_EQ(quarry_save_training(store_, &save, nullptr), QUARRY_USAGE) << "bytes of nothing";
}

TEST_P(CApiTest, CommitsEmbeddings) {
  const std::vector<uint64_t> ids = {3, 4};
  quarry_embedding_rows *mine = nullptr, *theirs = nullptr;
  ASSERT_EQ(quarry_read_embeddings(store_, "nodes", ids.data(), 2, &mine), QUARRY_OK) << quarry_last_error();
  ASSERT_EQ(quarry_read_embeddings(store_, "nodes", ids.data(), 1, &theirs), QUARRY_OK);
  quarry_embedding_arrays arrays{};
  ASSERT_EQ(quarry_embedding_rows_get(mine, &arrays, sizeof(arrays)), QUARRY_OK);
  EXPECT_EQ(arrays.dim, 4u);
  EXPECT_EQ(arrays.ids[1], 4u);
  arrays.values[0] = 2;
  const char* const table = "nodes";
  int64_t timestamp = -2;
  uint64_t stale = 9;
  ASSERT_EQ(quarry_commit_embeddings(store_, &table, &mine, 1, &timestamp, &stale), QUARRY_OK)
      << quarry_last_error();
  EXPECT_GE(timestamp, 0);
  EXPECT_EQ(stale, 0u);
  ASSERT_EQ(quarry_commit_embeddings(store_, &table, &theirs, 1, &timestamp, &stale), QUARRY_OK);
  EXPECT_EQ(timestamp, -1);
  EXPECT_EQ(stale, 1u);
  quarry_embedding_rows_free(mine);
  quarry_embedding_rows_free(theirs);
}

TEST_P(CApiTest, SaysWhatWentWrongToTheThreadThatDidIt) {
  quarry_rows* rows = nullptr;
  const uint32_t node = 300;
  EXPECT_EQ(quarry_lookup(store_, "feature", &node, 1, nullptr, &rows), QUARRY_INVALID_ARGUMENT);
  EXPECT_THAT(quarry_last_error(), HasSubstr("300"));
  EXPECT_EQ(rows, nullptr);
  std::thread([&] {
    EXPECT_STREQ(quarry_last_error(), "");
    EXPECT_EQ(quarry_lookup(store_, nullptr, &node, 1, nullptr, &rows), QUARRY_INVALID_ARGUMENT) << "no name";
  }).join();
  EXPECT_THAT(quarry_last_error(), HasSubstr("300"));
  quarry_store* none = nullptr;
  EXPECT_EQ(quarry_open("/nothing/there", nullptr, &none), QUARRY_NOT_FOUND);
  EXPECT_EQ(quarry_open(nullptr, nullptr, &none), QUARRY_USAGE);
  const quarry_open_options unset{};
  EXPECT_EQ(quarry_open("/nothing/there", &unset, &none), QUARRY_USAGE) << "no size";
  quarry_stream* stream = nullptr;
  const quarry_live_spec live = {.size = sizeof(live), .direction = 7};
  EXPECT_EQ(quarry_open_live(store_, &live, nullptr, &stream), QUARRY_INVALID_ARGUMENT);
  quarry_close(nullptr);
  quarry_rows_free(nullptr);
}

// A program compiled when the struct was shorter.
TEST_P(CApiTest, TakesStructsOfEarlierVersions) {
  struct {
    size_t size;
    uint64_t memory_bytes;
  } early = {sizeof(early), 1 << 20};
  quarry_close(store_);
  store_ = nullptr;
  ASSERT_EQ(quarry_open(address().c_str(), reinterpret_cast<const quarry_open_options*>(&early), &store_),
            QUARRY_OK);
  quarry_stream* stream = nullptr;
  EXPECT_EQ(quarry_open_live(store_, nullptr, nullptr, &stream), QUARRY_OUT_OF_BUDGET) << "a mebibyte";
}

}  // namespace
}  // namespace quarry
