#include "crash/crash_oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "quarry/base/units.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/training_state.h"
#include "support/status_matchers.h"

namespace quarry::crash {

Oracle::Oracle(uint64_t seed) : seed_(seed), tables_(seed) {
  for (NodeId node = 0; node < Graph().nodes; ++node) {
    rows_.push_back(Graph().Row(node));
    labels_.push_back(Graph().Label(node));
  }
}

uint64_t Oracle::batches() const { return std::reduce(batches_.begin(), batches_.end()); }

void Oracle::Check(Store& store) {
  const std::vector<Status> faults = testing_util::FaultsOf(store);
  for (const Status& fault : faults) ADD_FAILURE() << fault.ToString();
  ASSERT_TRUE(faults.empty());
  const auto snapshot = store.TakeSnapshot();
  ASSERT_OK(snapshot);
  ASSERT_NO_FATAL_FAILURE(CheckEdges(store));
  ASSERT_NO_FATAL_FAILURE(CheckWriters(store, *snapshot));
  CheckTraining(store);
}

// Every commit up to some number, whole, and none after it.
void Oracle::CheckEdges(Store& store) {
  const auto found = ReadEdges(store);
  ASSERT_OK(found);
  ASSERT_GE(found->commits, edge_commits_) << "commits of edges were there before";
  while (edge_commits_ < found->commits) {
    const EdgeBatch batch = EdgeBatchOf(seed_, ++edge_commits_);
    edges_.Take(batch);
    if (batch.removed_node) {
      std::ranges::fill(rows_[*batch.removed_node], std::byte{0});
      labels_[*batch.removed_node] = -1;
    }
    if (!batch.node) continue;
    rows_.push_back(Graph().Row(*batch.node));
    labels_.push_back(Graph().Label(*batch.node));
  }
  ASSERT_EQ(found->lists.size(), edges_.lists().size()) << "nodes";
  for (NodeId node = 0; node < found->lists.size(); ++node) {
    ASSERT_TRUE(std::ranges::equal(found->lists[node], edges_.lists()[node])) << "list of node " << node;
  }
}

void Oracle::CheckWriters(Store& store, const std::shared_ptr<const Snapshot>& snapshot) {
  const auto found = ReadFeatures(store, snapshot);
  ASSERT_OK(found);
  for (uint64_t writer = 0; writer < kWriters; ++writer) {
    const auto [author, number] = AuthorOf((*found)[writer], Graph().Row(static_cast<NodeId>(writer)));
    ASSERT_TRUE(author == writer || number == 0) << "row " << writer << " is of writer " << author;
    ASSERT_GE(number, batches_[writer]) << "batches of writer " << writer << " were there before";
    Advance(writer, number);
  }
  ASSERT_GE(snapshot->timestamp, batches());
  ASSERT_GE(snapshot->timestamp, timestamp_);
  timestamp_ = snapshot->timestamp;
  ASSERT_NO_FATAL_FAILURE(CheckSharedRow((*found)[kSharedRow]));
  ASSERT_EQ(found->size(), rows_.size());
  for (uint64_t row = 0; row < rows_.size(); ++row) {
    ASSERT_TRUE((*found)[row] == rows_[row]) << "row " << row << " is not of the last batch that wrote it";
  }
  const auto properties = LoadNodeProperties(store, rows_.size(), snapshot);
  ASSERT_OK(properties);
  ASSERT_EQ(properties->labels, labels_);
}

void Oracle::Advance(uint64_t writer, uint64_t number) {
  while (batches_[writer] < number) {
    const WriterBatch batch = BatchOf(seed_, writer, ++batches_[writer]);
    for (const auto& [row, value] : batch.rows) rows_[row] = value.empty() ? Bytes(FeatureBytes()) : value;
    for (const auto& [node, label] : batch.labels) labels_[node] = label;
  }
}

// Every batch writes it, so that it is of the last batch of one of the writers; which one came last they
// settle among themselves.
void Oracle::CheckSharedRow(const Bytes& found) {
  const auto [writer, number] = AuthorOf(found, Graph().Row(kSharedRow));
  if (number != 0) {
    ASSERT_LT(writer, kWriters);
    ASSERT_EQ(number, batches_[writer]) << "there is a later batch of writer " << writer;
    ASSERT_TRUE(found == BatchOf(seed_, writer, number).rows[kSharedRow]);
  }
  rows_[kSharedRow] = found;
}

void Oracle::CheckTraining(Store& store) {
  const Status opened = tables_.Open(store);
  ASSERT_OK(opened);
  const int64_t timestamp = tables_[0].timestamp();
  ASSERT_GE(timestamp, trained_) << "there was a later checkpoint before";
  while (trained_ < timestamp) tables_.Note(++trained_, writes_);
  tables_.ExpectState(store, timestamp, writes_);
  tables_.Close();
  if (timestamp == kNeverWritten) return;
  const auto state = ReadTrainingState(store, "run");
  ASSERT_OK(state);
  ASSERT_TRUE(*state == TrainingStateOf(seed_, timestamp)) << "of another checkpoint than the tables";
}

void Oracle::CheckLayout(Store& store) const {
  MemoryBudget budget(kGiB);
  const auto road = PlannedRoad::Open(store, budget, {});
  ASSERT_OK(road);
  const auto stream = (*road)->StartPass({.seeds = (*road)->TrainNodes(), .ordered = true});
  ASSERT_OK(stream);
  for (;;) {
    const auto batch = (*stream)->Next();
    ASSERT_OK(batch);
    if (!*batch) return;
    const BatchView& block = (*batch)->view();
    for (size_t v = 0; v < block.nodes.size(); ++v) {
      const Bytes& expected = rows_[block.nodes[v]];
      ASSERT_EQ(std::memcmp(block.features.Row(v), expected.data(), expected.size()), 0)
          << "row " << block.nodes[v];
    }
    for (size_t i = 0; i < block.seed_count; ++i) {
      ASSERT_EQ(block.labels[i], labels_[block.nodes[i]]);
    }
  }
}

void Oracle::CheckPartitioning(Store& store) const {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const PartitioningRecord& record = *manifest->FindPartitioning("default");
  if (!IsFresh(*manifest, record)) return;  // the table was compacted
  MemoryBudget budget(kGiB);
  const auto opened = StoredPartitioning::Open(store, budget, "default");
  ASSERT_OK(opened);
  const StoredPartitioning& parts = **opened;
  const PartitionDirectory& directory = parts.directory();
  const Assignment assignment = PartsToBuild(record.seed, record.node_count);
  ASSERT_EQ(directory.parts(), assignment.parts);
  std::vector<NodeId> new_ids(record.node_count), old_ids(record.node_count);
  ASSERT_OK(parts.ReadNewIds(0, new_ids));
  ASSERT_OK(parts.ReadOldIds(0, old_ids));
  const auto snapshot = store.TakeSnapshot();
  ASSERT_OK(snapshot);
  const auto newer =
      store.OpenOverlay("feature", *snapshot, TableVersion{record.table_generation, record.timestamp});
  ASSERT_OK(newer);
  const auto read = [&](const File& file, uint64_t offset, uint64_t bytes) {
    IoBuffer pages = IoBuffer::Allocate(std::max<uint64_t>(bytes, 1)).value();
    EXPECT_OK(store.backend().ReadAt(file, offset, pages.span().first(bytes)));
    return pages;
  };
  uint64_t edges = 0;
  for (uint32_t i = 0; i < directory.parts(); ++i) {
    const IoBuffer rows = read(parts.file(), parts.RowsAt(i), directory.part_bytes(i));
    for (uint64_t row = 0; row < directory.part_nodes(i); ++row) {
      const NodeId node = old_ids[directory.part_starts[i] + row];
      ASSERT_EQ(assignment.part_of[node], i);
      ASSERT_EQ(new_ids[node], directory.part_starts[i] + row);
      if ((*newer)->Touched(node)) continue;
      ASSERT_EQ(std::memcmp(rows.data() + row * directory.row_stride, rows_[node].data(), rows_[node].size()),
                0)
          << "row " << node;
    }
    for (uint32_t j = 0; j < directory.parts(); ++j) {
      const uint64_t bytes = directory.bucket_bytes(i, j);
      const IoBuffer pages = read(parts.BucketFile(i, j), parts.BucketAt(i, j), bytes);
      ASSERT_OK(parts.VerifyBucket(i, j, pages.span().first(bytes)));
      edges += directory.bucket(i, j).edges;
    }
  }
  EXPECT_EQ(edges, record.edge_count);
}

}  // namespace quarry::crash
