// The child: puts, compacts, trains and builds, all at once, until it is killed.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <thread>

#include "compaction_pace.h"
#include "crash/crash_work.h"
#include "embedding/trained_tables.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/units.h"
#include "quarry/layout/rebuild.h"
#include "quarry/storage/checkpoint.h"
#include "quarry/storage/run_merger.h"
#include "quarry/storage/topology_compaction.h"
#include "quarry/storage/training_state.h"
#include "support/killing_backend.h"

namespace quarry::crash {
namespace {

using testing_util::KillingBackend;
using testing_util::TrainedTables;

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "the child failed: %s\n", status.ToString().c_str());
  _exit(3);
}

template <typename T>
T Check(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}

// Rows of a table of 125 kB, synced after every third piece.
constexpr CompactionPace kPace{
    .piece_bytes = 16 << 10, .sync_bytes_min = 40 << 10, .sync_bytes_max = 40 << 10};

class Child {
 public:
  explicit Child(const Orders& orders) : orders_(orders) {}

  void Run() {
    if ((orders_.work & kImport) != 0) {
      Check(ImportTinyGraph(backend_, Graph(), orders_.imported()));
      Tell({.kind = Message::kImported});
      return;
    }
    store_ = Check(Store::Open(backend_, orders_.database()));
    store_->merger().Start(merging_);
    std::vector<std::thread> threads;
    if ((orders_.work & kTypes) != 0) {
      const uint64_t there = Check(testing_util::GrowingGraph::CommitsIn(*store_));
      while (types_.commits() < there) types_.Take(types_.Next());
      Tell({.kind = Message::kEdged, .number = there});
      threads.emplace_back([this] { ChangeTypes(); });
    }
    if ((orders_.work & kPut) != 0) {
      const std::vector<Bytes> rows = Check(ReadFeatures(*store_, Check(store_->TakeSnapshot())));
      for (uint64_t writer = 0; writer < kWriters; ++writer) {
        const uint64_t done = AuthorOf(rows[writer], Graph().Row(static_cast<NodeId>(writer))).second;
        threads.emplace_back([this, writer, done] { Put(writer, done); });
      }
    }
    if ((orders_.work & kCompact) != 0) threads.emplace_back([this] { Compact(); });
    if ((orders_.work & kEdges) != 0) {
      edge_commits_ = Check(ReadEdges(*store_)).commits;
      Tell({.kind = Message::kEdged, .number = edge_commits_});
      threads.emplace_back([this] { ChangeEdges(); });
    }
    if ((orders_.work & kBuild) != 0) threads.emplace_back([this] { Build(); });
    if ((orders_.work & kTrain) != 0) threads.emplace_back([this] { Train(); });
    if ((orders_.work & kCopy) != 0) threads.emplace_back([this] { Copy(); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  void Tell(const Message& message) const {
    if (write(orders_.tell, &message, sizeof(message)) != sizeof(message)) _exit(5);
  }

  // The generator of a thread.
  Rng RngOf(uint64_t thread) const { return Rng(MixSeed(orders_.seed, orders_.round, thread)); }

  void Put(uint64_t writer, uint64_t done) {
    Rng rng = RngOf(writer);
    for (uint64_t number = done;; ++number) {
      Tell({.kind = Message::kBatch, .writer = static_cast<uint32_t>(writer), .number = number});
      const WriterBatch rows = BatchOf(orders_.seed, writer, number + 1);
      WriteBatch batch;
      for (const auto& [row, value] : rows.rows) batch.Put("feature", row, value);
      WriteBatch labels;
      for (const auto& [node, label] : rows.labels) labels.SetLabel(node, label);
      if (rng.Below(4) == 0) {
        WriteInPieces(batch, labels);
      } else {
        for (const auto& [node, label] : rows.labels) batch.SetLabel(node, label);
        Check(store_->Write(batch).status());
      }
      usleep(static_cast<useconds_t>(rng.Below(2'000)));
    }
  }

  void WriteInPieces(const WriteBatch& rows, const WriteBatch& labels) {
    const std::lock_guard<std::mutex> one_at_a_time(pieces_);
    {  // one that is given up
      const std::unique_ptr<LargeWrite> large = Check(store_->BeginLargeWrite());
      Check(large->Add(labels));
    }
    const std::unique_ptr<LargeWrite> large = Check(store_->BeginLargeWrite());
    Check(large->Add(rows));
    Check(large->Add(labels));
    Check(large->Commit().status());
  }

  void Compact() {
    Rng rng = RngOf(kWriters);
    MemoryBudget budget(kGiB);
    std::shared_ptr<const Snapshot> held;
    for (;;) {
      held = rng.Below(3) == 0 ? Check(store_->TakeSnapshot()) : nullptr;
      if ((orders_.work & (kEdges | kTypes)) != 0 && rng.Below(3) == 0) {
        Check(CompactTopology(*store_, budget, "graph", false, {}).status());
        continue;
      }
      const bool types = (orders_.work & kTypes) != 0;
      const char* const table = rng.Below(4) == 0   ? "label"
                                : !types            ? "feature"
                                : rng.Below(2) == 0 ? "paper.feature"
                                                    : "author.feature";
      const CompactionReport report = Check(CompactTable(*store_, budget, table, false, {}, kPace));
      Tell({.kind = Message::kCompacted, .number = report.generation});
      usleep(static_cast<useconds_t>(rng.Below(3'000)));
    }
  }

  void ChangeEdges() {
    Rng rng = RngOf(kWriters + 4);
    for (;;) {
      {
        const std::lock_guard<std::mutex> alone(edges_);
        CommitNextEdges();
      }
      usleep(static_cast<useconds_t>(rng.Below(3'000)));
    }
  }

  void ChangeTypes() {
    Rng rng = RngOf(kWriters + 5);
    MemoryBudget budget(kGiB);
    for (;;) {
      const testing_util::GrowingGraph::Commit next = types_.Next();
      Check(types_.CommitTo(*store_, budget, next));
      types_.Take(next);
      Tell({.kind = Message::kEdged, .number = types_.commits()});
      usleep(static_cast<useconds_t>(rng.Below(3'000)));
    }
  }

  // REQUIRES: edges_ is held.
  void CommitNextEdges() {
    MemoryBudget budget(kGiB);
    const EdgeBatch batch = EdgeBatchOf(orders_.seed, edge_commits_ + 1);
    std::unique_lock<std::mutex> one_at_a_time(pieces_, std::defer_lock);
    if (batch.node || batch.removed_node) one_at_a_time.lock();  // their rows are those of a large write
    Check(CommitEdges(*store_, budget, batch));
    Tell({.kind = Message::kEdged, .number = ++edge_commits_});
  }

  // The layout behind a commit that few of its batches notice, and the partitioning `number` with the edges of that. Others
  // commit no edges meanwhile.
  LayoutRecord Mend(uint64_t number) {
    const std::lock_guard<std::mutex> alone(edges_);
    MemoryBudget budget(kGiB);
    while (!EdgeBatch::IsSmall(edge_commits_ + 1)) CommitNextEdges();
    Check(RebuildLayout(*store_, budget, "default", {}, {}));
    Partition(number);
    CommitNextEdges();
    Check(MakePartitioning(*store_, budget, {.table = "feature"},
                           {.method = PartitionMethod::kKept, .parts = 0, .seed = number}, {})
              .status());
    return Check(RebuildLayout(*store_, budget, "default", {}, {}));
  }

  void Build() {
    Rng rng = RngOf(kWriters + 1);
    MemoryBudget budget(kGiB);
    for (;;) {
      if (rng.Below(2) == 0) Partition(rng());
      const std::shared_ptr<const Manifest> newest = store_->manifest();
      const bool built = newest->FindLayout("default") != nullptr;
      const bool mends = built && (orders_.work & kEdges) != 0 && rng.Below(2) == 0;
      const LayoutRecord layout =
          mends ? Mend(rng())
          : built && rng.Below(2) == 0
              ? Check(RebuildLayout(*store_, budget, "default", {}, {}))
              : Check(BuildLayout(*store_, budget, LayoutToBuild(), rng.Below(2) == 0, {}));
      Tell({.kind = Message::kBuilt, .number = layout.generation});
      usleep(static_cast<useconds_t>(rng.Below(10'000)));
    }
  }

  void Partition(uint64_t number) {
    MemoryBudget budget(kGiB);
    const uint64_t nodes = Check(store_->TakeSnapshot())->node_count;
    const auto record = BuildPartitioning(*store_, budget, {.table = "feature", .seed = number},
                                          PartsToBuild(number, nodes), {});
    if (!record.ok() && Check(store_->TakeSnapshot())->node_count > nodes)
      return;  // nodes came between the two
    Check(record.status());
    Tell({.kind = Message::kPartitioned, .number = record->generation});
  }

  // One, at some time of the child's life.
  void Copy() {
    usleep(static_cast<useconds_t>(RngOf(kWriters + 3).Below(30'000)));
    MemoryBudget budget(kGiB);
    if (std::filesystem::exists(orders_.copy())) return;  // of a child before, not looked at yet
    const CheckpointReport report = Check(CheckpointStore(*store_, budget, orders_.copy(), {}));
    Tell({.kind = Message::kCopied, .number = report.timestamp});
  }

  void Train() {
    Rng rng = RngOf(kWriters + 2);
    Check(tables_.Open(*store_));
    for (int64_t now = tables_[0].timestamp();; ++now) {
      Tell({.kind = Message::kTrained, .number = static_cast<uint64_t>(now)});
      for (uint64_t steps = rng.Below(20); steps > 0; --steps) Check(tables_.Train(++now));
      Check(tables_.Train(now + 1));
      Check(Checkpoint(now + 1));
    }
  }

  // Both tables, and the training state, as one.
  Status Checkpoint(int64_t now) {
    const std::array<StoredEmbeddings*, TrainedTables::kTables> tables = {&tables_[0], &tables_[1]};
    const auto commit = [&](const ManifestChange& change) {
      return CheckpointAll(*store_, tables, now, [&](Manifest& manifest) {
        manifest.source = std::to_string(now);
        return change(manifest);
      });
    };
    const Bytes state = TrainingStateOf(orders_.seed, now);
    return CheckpointTraining(*store_, {.name = "run", .timestamp = now, .state = state}, commit);
  }

  const Orders& orders_;
  const std::unique_ptr<IoBackend> real_ = MakeDefaultBackend();
  KillingBackend backend_{*real_, orders_.operation};
  MemoryBudget merging_{kGiB};
  std::unique_ptr<Store> store_;
  TrainedTables tables_{orders_.seed};
  std::mutex pieces_;  // of a large write
  std::mutex edges_;   // whoever holds it commits edges
  uint64_t edge_commits_ = 0;
  testing_util::GrowingGraph types_ = TypesOf(orders_.seed);
};

}  // namespace

void RunChild(const Orders& orders) {
  alarm(60);  // for when the parent dies first
  if (orders.kill_point >= 0) ArmKillPoint(static_cast<size_t>(orders.kill_point), orders.passages);
  Child(orders).Run();
  for (;;) pause();
}

}  // namespace quarry::crash
