// A database with something of everything (tables with versions over them, a layout, embeddings, a training
// run), of which it is known what it must hold: what the work of a FaultScenario is done on.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "embedding/trained_tables.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/progress.h"
#include "quarry/base/units.h"
#include "quarry/import/graph_change.h"
#include "quarry/layout/layout.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/training_state.h"
#include "storage/store_rows.h"
#include "support/fault_backend.h"
#include "support/fault_matrix.h"
#include "support/status_matchers.h"
#include "support/unsynced_backend.h"

namespace quarry::testing_util {

// Files and folders of a database but for the catalog's own, with # for the digits.
inline std::multiset<std::string> NamesIn(const std::string& path) {
  std::multiset<std::string> names;
  for (std::filesystem::recursive_directory_iterator entry(path), end; entry != end; ++entry) {
    std::string name = entry->path().lexically_relative(path);
    if (name == "catalog") entry.disable_recursion_pending();  // RocksDB removes files when it likes
    std::ranges::replace_if(
        name, [](char c) { return c >= '0' && c <= '9'; }, '#');
    names.insert(std::move(name));
  }
  return names;
}

class SmallWorld final : public FaultScenario {
 public:
  struct Spec {
    // Once: what is done before the faults, to the database that every fault finds.
    std::function<Status(SmallWorld&)> prepare = {};
    // The work on a store that is open (or not, where opening it is the work).
    std::function<Status(SmallWorld&)> work;
    // Besides what the world knows by itself.
    std::function<void(SmallWorld&, bool done)> check = {};
    std::function<bool(const FaultPlan&)> may_end_well = {};
    std::string may_be_missing;  // a file that works do without where a fault lets them end well
    bool only_tidies = false;    // the catalog is written to only in order to remove what is left over
    std::function<bool(const FaultPlan&)> skips = {};
    std::function<bool(const CatalogFaultPlan&)> skips_of_catalog = {};
    bool reads_catalog = false;  // with faults of these reads: most are of opening, the same for all works
    bool opens_store = true;
    bool damaged = false;  // until the work is done
    // What is in the database besides rows and versions over them. Less is quicker.
    bool trained = false;
    bool layout = false;
    bool named = false;  // nodes have names, and Grow may be called; nothing else changes the graph
  };

  explicit SmallWorld(Spec spec) : spec_(std::move(spec)) {
    setenv("QUARRY_LOG", "error", 0);  // what is removed is not worth a line each time
    Expect(Make());
    if (spec_.prepare) {
      Expect(OpenStore());
      Expect(spec_.prepare(*this));
      Close();
    }
    prepared_state_ = state_;
    path_ = folder_.path() + "/db";
  }

  // All faults, and without one: what is there then is what must be there after each.
  void Run() {
    Fresh();
    Expect(Open());
    Expect(Work());
    Close();
    Expect(Open());
    names_.clear();
    if (!testing::Test::HasFailure()) Check(true);
    Close();
    names_ = NamesIn(path_);
    FaultMatrix(backend_, "/quarry-storage-").Run(*this);  // as ScratchFolders are called
  }

  void Fresh() override {
    std::filesystem::remove_all(path_);
    std::filesystem::copy(prepared_, path_, std::filesystem::copy_options::recursive);
    state_ = prepared_state_;
  }
  Status Open() override { return spec_.opens_store ? OpenStore() : Status::Ok(); }
  Status Work() override { return spec_.work(*this); }
  void Close() override {
    tables_.Close();
    store_.reset();
  }
  bool MayEndWell(const FaultPlan& fault) override { return spec_.may_end_well && spec_.may_end_well(fault); }
  bool MayEndWell(const CatalogFaultPlan& /*fault*/) override { return spec_.only_tidies; }
  bool Skips(const FaultPlan& fault) override { return spec_.skips && spec_.skips(fault); }
  bool Skips(const CatalogFaultPlan& fault) override {
    return (fault.kind == CatalogFault::kRead && !spec_.reads_catalog) ||
           (spec_.skips_of_catalog && spec_.skips_of_catalog(fault));
  }
  void Check(bool done) override {
    if (spec_.damaged && !done) return;
    if (store_ == nullptr) Expect(OpenStore());
    if (store_ == nullptr) return;
    EXPECT_THAT(FaultsOf(*store_), testing::IsEmpty());
    CheckRows();
    if (spec_.named) CheckGraph();
    CheckTrained();
    if (spec_.check) spec_.check(*this, done);
    EXPECT_EQ(budget_.used_bytes(), 0u);
    if (done && !names_.empty()) {
      Expect(store_->PrepareToWrite());  // removes what interrupted works left
      std::multiset<std::string> names = NamesIn(path_);
      if (names_.contains(spec_.may_be_missing) && !names.contains(spec_.may_be_missing)) {
        names.insert(spec_.may_be_missing);
      }
      EXPECT_EQ(names, names_) << "something is left over, or missing";
    }
  }

  // Another database holds the rows that this one must hold, and nothing is wrong with it.
  void ExpectCopy(const std::string& path) {
    const auto copy = Store::Open(backend_, path);
    ASSERT_OK(copy);
    EXPECT_THAT(FaultsOf(**copy), testing::IsEmpty());
    EXPECT_TRUE(RowsNow(**copy, "feature") == RowsAfter(state_.puts, state_.grown));
  }

  // What works are made of.

  Status OpenStore() {
    QUARRY_TRY(store_, Store::Open(backend_, path_));
    return Status::Ok();
  }
  Store& store() { return *store_; }
  FaultBackend& backend() { return backend_; }
  MemoryBudget& budget() { return budget_; }
  TrainedTables& tables() { return tables_; }
  const std::string& path() const { return path_; }
  std::string folder() const { return folder_.path(); }
  const TinyGraph& graph() const { return Graph(); }

  // Three rows get the number as their elements.
  Status Put(uint64_t number) {
    WriteBatch batch;
    for (const uint64_t row : RowsOfPut(number)) batch.Put("feature", row, RowOf(number));
    return Remember(number, store_->Write(batch));
  }
  // The same, but that each row is written ahead of the commit.
  Status PutInPieces(uint64_t number) { return Remember(number, WriteInPieces(number)); }
  // The number-th commit of the graph, from 1, unless it is there: two nodes come, with names, rows, labels and edges; an
  // edge goes, and a node.
  Status Grow(uint64_t number) {
    if (state_.grown >= number) return Status::Ok();
    const Growth growth = GrowthOf(state_.grown);
    Status status = CommitGrowth(growth);
    // Where it is there already, it is by a commit that failed, and happened.
    if (status.code() == Code::kBusy && store_->manifest()->node_count > growth.first) status = Status::Ok();
    state_.tried_growth = !status.ok();
    state_.grown += status.ok() ? 1 : 0;
    return status;
  }
  Status OpenTables() { return tables_.Open(*store_, pools_); }
  // Trains both tables from their checkpoint on, and makes one of them and of the run.
  Status Train(int64_t timestamp) {
    tables_.Close();
    QUARRY_RETURN_IF_ERROR(OpenTables());
    if (tables_[0].timestamp() >= timestamp) return Status::Ok();  // by a commit that failed, and happened
    for (int64_t now = tables_[0].timestamp() + 1; now <= timestamp; ++now) {
      QUARRY_RETURN_IF_ERROR(tables_.Train(now));
    }
    const std::array<StoredEmbeddings*, TrainedTables::kTables> tables = {&tables_[0], &tables_[1]};
    const auto commit = [&](const ManifestChange& change) {
      return CheckpointAll(*store_, tables, timestamp, [&](Manifest& manifest) {
        manifest.source = std::to_string(timestamp);
        return change(manifest);
      });
    };
    const auto state = RowOf(static_cast<uint64_t>(timestamp));
    const Status status =
        CheckpointTraining(*store_, {.name = "run", .timestamp = timestamp, .state = state}, commit);
    if (status.ok()) state_.checkpoints.clear();
    state_.checkpoints.push_back(timestamp);
    return status;
  }
  static LayoutSpec LayoutOf(std::string name) {
    return {.name = std::move(name),
            .road = {
                .fanouts = {3}, .batch_size = 16, .cache_bytes = 8 * Graph().dim * sizeof(float), .seed = 5}};
  }
  Status Build(const LayoutSpec& spec, bool resume = false, const ProgressFunction& progress = {}) {
    return BuildLayout(*store_, budget_, spec, resume, progress).status();
  }
  // All that a layout holds, verified.
  std::vector<std::byte> Regions(std::string_view name) {
    const auto layout = Layout::Open(*store_, name);
    EXPECT_OK(layout);
    if (!layout.ok()) return {};
    IoBuffer pages = IoBuffer::Allocate((*layout)->directory().regions_bytes).value();
    Expect((*layout)->ReadPages(backend_, 0, pages.span()));
    return {pages.span().begin(), pages.span().end()};
  }
  static void Expect(const Status& status) { EXPECT_OK(status); }

 private:
  // What must be there.
  struct State {
    std::vector<uint64_t> puts;
    uint64_t tried_put = 0;  // the first that failed: may be there
    uint64_t grown = 0;      // commits of the graph
    bool tried_growth = false;
    uint64_t timestamp = 0;  // of the last that was acknowledged
    // The last that succeeded, and what was tried after it.
    std::vector<int64_t> checkpoints = {kNeverWritten};
  };
  static const TinyGraph& Graph() {
    static const TinyGraph graph{.nodes = 60, .dim = 128};
    return graph;
  }
  Status Make() {
    Dataset dataset = TinyDataset(Graph());
    for (NodeId node = 0; spec_.named && node < Graph().nodes; ++node) {
      dataset.entity_names.push_back(NameOf(node));
    }
    QUARRY_RETURN_IF_ERROR(ImportDatabase(backend_, path_, std::move(dataset), {}));
    QUARRY_RETURN_IF_ERROR(OpenStore());
    QUARRY_RETURN_IF_ERROR(Put(1));  // the catalog stays open for writing from here on
    if (spec_.trained) {
      QUARRY_RETURN_IF_ERROR(tables_.Create(*store_));
      for (size_t i = 0; i < pools_.size(); ++i) pools_[i] = FewFrames(*store_, TrainedTables::kNames[i]);
      QUARRY_RETURN_IF_ERROR(Train(5));
    }
    if (spec_.layout) QUARRY_RETURN_IF_ERROR(Build(LayoutOf("default")));
    QUARRY_RETURN_IF_ERROR(Put(2));
    Close();
    return Status::Ok();
  }

  static std::vector<uint64_t> RowsOfPut(uint64_t number) { return {1, 2 + number % 7, 20 + number % 40}; }
  static std::vector<std::byte> RowOf(uint64_t number) {
    const std::vector<float> values(Graph().dim, static_cast<float>(number));
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
  }

  // What a commit of the graph does; no put writes to the node that goes.
  struct Growth {
    NodeId first = 0, gone = 0;
    std::vector<Edge> added;
    Edge removed = {};
  };
  static Growth GrowthOf(uint64_t number) {
    const NodeId first = static_cast<NodeId>(Graph().nodes + 2 * number);
    return {.first = first,
            .gone = static_cast<NodeId>(9 + number),
            .added = {{first, 3}, {40, first + 1}, {first + 1, first}, {41, 42}},
            .removed = Graph().Edges()[20 + number]};
  }
  static std::string NameOf(NodeId node) { return fmt::format("node {}", node); }
  Status CommitGrowth(const Growth& growth) {
    QUARRY_TRY(
        const auto change,
        GraphChange::Create(*store_, budget_,
                            {.nodes = 2, .first_node = growth.first, .memory_bytes = kGraphChangeBytesMin}));
    QUARRY_RETURN_IF_ERROR(change->RemoveNodes({&growth.gone, 1}));
    const std::string names[] = {NameOf(growth.first), NameOf(growth.first + 1)};
    QUARRY_RETURN_IF_ERROR(change->Name(names));
    WriteBatch rows;
    for (const NodeId node : {growth.first, growth.first + 1}) {
      rows.Put("feature", node, RowOf(node));
      rows.SetLabel(node, node % 5);
    }
    QUARRY_RETURN_IF_ERROR(change->Put(rows));
    QUARRY_RETURN_IF_ERROR(change->Remove({&growth.removed, 1}));
    QUARRY_RETURN_IF_ERROR(change->Add(growth.added));
    return change->Commit().status();
  }

  static TableRows RowsAfter(const std::vector<uint64_t>& puts, uint64_t grown) {
    TableRows rows;
    for (NodeId node = 0; node < Graph().nodes; ++node) rows.push_back(Graph().Row(node));
    for (const uint64_t number : puts) {
      for (const uint64_t row : RowsOfPut(number)) rows[row] = RowOf(number);
    }
    for (uint64_t number = 0; number < grown; ++number) {
      const Growth growth = GrowthOf(number);
      std::ranges::fill(rows[growth.gone], std::byte{0});
      for (const NodeId node : {growth.first, growth.first + 1}) rows.push_back(RowOf(node));
    }
    return rows;
  }

  Result<uint64_t> WriteInPieces(uint64_t number) {
    QUARRY_TRY(const std::unique_ptr<LargeWrite> write, store_->BeginLargeWrite());
    for (const uint64_t row : RowsOfPut(number)) {
      WriteBatch batch;
      batch.Put("feature", row, RowOf(number));
      QUARRY_RETURN_IF_ERROR(write->Add(batch));
    }
    return write->Commit();
  }
  Status Remember(uint64_t number, const Result<uint64_t>& written) {
    if (written.ok()) {
      state_.puts.push_back(number);
      state_.timestamp = *written;
    } else if (state_.tried_put == 0) {
      state_.tried_put = number;
    }
    return written.status();
  }

  void CheckRows() {
    const TableRows rows = RowsNow(*store_, "feature");
    if (std::exchange(state_.tried_growth, false) && rows.size() > Graph().nodes + 2 * state_.grown) {
      ++state_.grown;
    }
    std::vector<uint64_t> with_tried = state_.puts;
    with_tried.push_back(std::exchange(state_.tried_put, 0));
    if (with_tried.back() != 0 && rows == RowsAfter(with_tried, state_.grown)) state_.puts = with_tried;
    EXPECT_TRUE(rows == RowsAfter(state_.puts, state_.grown)) << "a batch is lost, or half there";
    EXPECT_GE(store_->TakeSnapshot().value()->timestamp, state_.timestamp);
  }
  // Names, labels, and edges by destination and source.
  void CheckGraph() {
    std::multiset<std::pair<uint64_t, uint64_t>> edges, found;
    for (const Edge& edge : Graph().Edges()) edges.emplace(edge.destination, edge.source);
    std::vector<int64_t> labels;
    for (NodeId node = 0; node < Graph().nodes; ++node) labels.push_back(Graph().Label(node));
    for (uint64_t number = 0; number < state_.grown; ++number) {
      const Growth growth = GrowthOf(number);
      std::erase_if(edges, [&](const auto& edge) {
        return edge.first == growth.gone || edge.second == growth.gone ||
               edge == std::pair(growth.removed.destination, growth.removed.source);
      });
      for (const Edge& edge : growth.added) edges.emplace(edge.destination, edge.source);
      labels[growth.gone] = -1;
      for (const NodeId node : {growth.first, growth.first + 1}) labels.push_back(node % 5);
    }
    for (NodeId node = 0; node < labels.size(); ++node) {
      EXPECT_EQ(store_->catalog()->IdOfName(NameKind::kEntity, NameOf(node)).value(), node);
    }
    const auto snapshot = store_->TakeSnapshot();
    ASSERT_OK(snapshot);
    const auto properties = LoadNodeProperties(*store_, labels.size(), *snapshot);
    ASSERT_OK(properties);
    EXPECT_EQ(properties->labels, labels);
    const auto topology = store_->OpenTopology("graph");
    ASSERT_OK(topology);
    ASSERT_EQ((*topology)->node_count(), labels.size());
    ASSERT_OK((*topology)->LoadIndices(backend_, Adjacency::kCsc));
    const auto indptr = (*topology)->indptr(Adjacency::kCsc);
    const auto indices = (*topology)->indices(Adjacency::kCsc);
    for (uint64_t node = 0; node < labels.size(); ++node) {
      for (uint64_t e = indptr[node]; e < indptr[node + 1]; ++e) found.emplace(node, indices[e]);
    }
    EXPECT_EQ(found, edges);
  }
  void CheckTrained() {
    if (store_->manifest()->FindEmbedding("nodes") == nullptr) return;
    tables_.Close();
    const Status opened = OpenTables();
    ASSERT_OK(opened);
    const int64_t timestamp = tables_[0].timestamp();
    ASSERT_THAT(state_.checkpoints, testing::Contains(timestamp));
    state_.checkpoints = {timestamp};
    tables_.ExpectState(*store_, timestamp, tables_.WritesUpTo(timestamp));
    tables_.Close();
    if (store_->manifest()->FindTraining("run") == nullptr) return;
    const auto state = ReadTrainingState(*store_, "run");
    ASSERT_OK(state);
    EXPECT_TRUE(*state == RowOf(static_cast<uint64_t>(timestamp)));
  }

  static constexpr uint64_t kSeed = 6;
  const Spec spec_;
  const ScratchFolder folder_{Medium::kMemory};
  const std::string prepared_ = folder_.path() + "/prepared";
  std::string path_ = prepared_;
  UnsyncedBackend unsynced_;
  FaultBackend backend_{unsynced_};
  MemoryBudget budget_{48 * kMiB};
  State state_, prepared_state_;
  std::unique_ptr<Store> store_;
  TrainedTables tables_{kSeed};
  std::array<BufferPoolOptions, TrainedTables::kTables> pools_;
  std::multiset<std::string> names_;
};

}  // namespace quarry::testing_util
