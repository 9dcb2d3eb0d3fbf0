#include "quarry/storage/run_merger.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "quarry/base/exhaustion.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/log.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/storage/growth_cost.h"
#include "quarry/storage/topology_compaction.h"
#include "quarry/storage/topology_run.h"

namespace quarry {
namespace {

constexpr uint64_t kMergeBytes = 16 * kMiB;  // a scanner's buffers, the writer's, and checksums

// The first of the last runs that become one.
size_t FirstToMerge(std::span<const TopologyRun> runs) {
  size_t first = runs.size() - 1;
  uint64_t behind = runs[first].added + runs[first].removed;
  while (first > 0) {
    const uint64_t edges = runs[first - 1].added + runs[first - 1].removed;
    if (edges > 4 * behind) break;
    behind += edges;
    --first;
  }
  return first + 1 < runs.size() ? first : 0;
}

// The runs that nobody folds.
std::span<const TopologyRun> FreeRuns(const Store& store, const TopologyRecord* topology) {
  if (topology == nullptr) return {};
  const std::span<const TopologyRun> runs = topology->runs;
  const uint64_t folded = store.FoldedUntil();
  return runs.subspan(static_cast<size_t>(
      std::ranges::count_if(runs, [&](const TopologyRun& run) { return run.timestamp <= folded; })));
}

size_t CountFreeRuns(const Store& store, const std::string& topology) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  return FreeRuns(store, manifest->FindTopology(topology)).size();
}

// One merge: of these runs, until it is told to give up.
class RunsMerge {
 public:
  RunsMerge(Store& store, const TopologyRecord& record, std::span<const TopologyRun> merged,
            const std::atomic<bool>* give_up)
      : store_(store), record_(record), merged_(merged), give_up_(give_up), run_(merged.back()) {
    // Commits that come meanwhile take the numbers after the last one's, and so this run is told apart by both ends.
    run_.file = fmt::format("topology/{}-{}-{}-{}.qtr", record.name, record.generation,
                            merged.front().generation, run_.generation);
    run_.edges_before = merged.front().edges_before;
    run_.lists = run_.commits = 0;
    for (const TopologyRun& one : merged) run_.commits += one.commits;
  }
  uint64_t MemoryBytes() const {
    TopologyRecord part = record_;
    part.runs.assign(merged_.begin(), merged_.end());
    return RunsResidentBytes(part) + kMergeBytes;
  }
  // Before memory is taken: others may reserve some under the latches that this needs.
  Status Clear() { return ClearTopologyFile(store_, run_.file); }
  Status Write() {
    const Result<TopologyRun> written = WriteRun();
    if (!written.ok()) Remove();
    QUARRY_RETURN_IF_ERROR(written.status());
    run_ = *written;
    return Status::Ok();
  }
  // Nothing to be named where the runs are not there any more, or a fold has begun to take them.
  Status Name() {
    KillPoint("topology: runs merged, not named");
    const Status named = store_.SwitchRuns(record_.name, merged_, run_);
    if (named.code() == Code::kBusy && !AreThere()) {  // after another error it may be named
      Remove();
      return Status::Ok();
    }
    QUARRY_RETURN_IF_ERROR(named);
    store_.growth().Add(record_.name, {.merge_bytes = run_.file_bytes});
    return Status::Ok();
  }

 private:
  bool AreThere() const {
    const std::shared_ptr<const Manifest> manifest = store_.manifest();
    const std::span<const TopologyRun> free = FreeRuns(store_, manifest->FindTopology(record_.name));
    return std::ranges::all_of(merged_, [&](const TopologyRun& run) {
      return std::ranges::find(free, run.file, &TopologyRun::file) != free.end();
    });
  }
  void Remove() { Discard(store_.backend(), store_.path() + "/" + run_.file); }
  Status GoOn() const {
    if (give_up_ == nullptr || !give_up_->load()) return Status::Ok();
    return {Code::kCancelled, "it was given up for others who need the memory, or for the end"};
  }
  Result<TopologyRun> WriteRun() {
    const std::shared_ptr<const Manifest> manifest = store_.manifest();
    QUARRY_TRY(const auto writer, TopologyRunWriter::Create(store_.backend(), store_.path(), record_, run_));
    for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
      if (side == Adjacency::kCsr && !record_.has_csr) continue;
      ListEdits edits;
      for (const TopologyRun& run : merged_) {
        QUARRY_RETURN_IF_ERROR(GoOn());
        QUARRY_TRY(ListEdits next,
                   LoadRun(store_.backend(), store_.path(), record_, run, manifest->database_id, side));
        // Layouts and partitionings of a time between the runs ask which lists came after.
        edits = edits.empty() ? std::move(next) : Compose(edits, next, UndoneLists::kKeep);
      }
      QUARRY_RETURN_IF_ERROR(writer->Add(side, edits));
      KillPoint("topology: runs merged in part");
    }
    QUARRY_RETURN_IF_ERROR(GoOn());
    return writer->Finish(manifest->database_id);
  }

  Store& store_;
  const TopologyRecord& record_;
  const std::span<const TopologyRun> merged_;
  const std::atomic<bool>* const give_up_;
  TopologyRun run_;
};

// With `give_up`, the memory is lent, and given back by giving up.
Result<bool> MergeRuns(Store& store, MemoryBudget& budget, const std::string& name,
                       std::atomic<bool>* give_up) {
  const auto held = store.HoldRuns(Store::RunsRight::kMerge);
  if (held == nullptr) return false;
  QUARRY_TRY(std::shared_ptr<const Snapshot> snapshot, store.TakeSnapshot());
  const TopologyRecord* const found = snapshot->FindTopology(name);
  if (FreeRuns(store, found).size() <= kTopologyRunsMax) return false;
  // The files of topologies stay, and those of tables, which stand before them, are nothing to a merge: they may be dropped.
  const TopologyRecord record = *found;
  const std::vector<std::shared_ptr<const void>> files(
      snapshot->files.begin() + static_cast<ptrdiff_t>(snapshot->tables.size()), snapshot->files.end());
  snapshot.reset();
  const std::span<const TopologyRun> free = FreeRuns(store, &record);
  if (free.size() <= kTopologyRunsMax) return false;
  const ScopedSpan span("merge runs");
  RunsMerge merge(store, record, free.subspan(FirstToMerge(free)), give_up);
  QUARRY_RETURN_IF_ERROR(merge.Clear());
  {
    constexpr std::string_view kWhat = "merging runs of edges";
    MemoryBudget::Loan loan;
    MemoryBudget::Reservation reservation;
    if (give_up != nullptr) {
      QUARRY_TRY(loan, budget.Borrow(merge.MemoryBytes(), kWhat, [give_up] { give_up->store(true); }));
    } else {
      QUARRY_TRY(reservation, budget.Reserve(merge.MemoryBytes(), kWhat));
    }
    QUARRY_RETURN_IF_ERROR(merge.Write());
  }
  QUARRY_RETURN_IF_ERROR(merge.Name());
  return true;
}

void LogNotMerged(const Store& store, const Status& why) {
  LogInfo("{}: runs of edges were not merged: {}", store.path(), why.message());
}

}  // namespace

Result<bool> MergeRuns(Store& store, MemoryBudget& budget, const std::string& topology) {
  return MergeRuns(store, budget, topology, nullptr);
}

void RunMerger::Start(MemoryBudget& budget) {
  Stop();
  MutexLock lock(mutex_);
  budget_ = &budget;
}

void RunMerger::Stop() {
  Thread ended;
  {
    MutexLock lock(mutex_);
    budget_ = nullptr;  // nobody starts another thread
    give_up_ = true;
    ended = std::move(thread_);
  }
  ended.Join();
}

void RunMerger::Finish() {
  Wait();
  Stop();
}

void RunMerger::Wait() {
  MutexLock lock(mutex_);
  while (merging_) idle_.Wait(mutex_);
}

void RunMerger::Committed(const std::string& topology, MemoryBudget& budget) {
  // The edges are there, whatever becomes of the merge: the next commit tries it again.
  const Result<bool> merged = CatchExhaustion("merging runs of edges", [&]() -> Result<bool> {
    if (CountFreeRuns(store_, topology) <= kTopologyRunsMax) return false;
    if (Ask(topology)) {
      if (CountFreeRuns(store_, topology) <= kTopologyRunsLimit) return false;
      const ScopedSpan span("wait for a merge of runs");
      Wait();
      if (CountFreeRuns(store_, topology) <= kTopologyRunsLimit) return false;
    }
    return MergeRuns(store_, budget, topology);
  });
  if (!merged.ok()) LogNotMerged(store_, merged.status());
}

bool RunMerger::Ask(const std::string& topology) {
  MutexLock lock(mutex_);
  if (budget_ == nullptr) return false;
  asked_.insert(topology);
  if (merging_) return true;
  thread_.Join();  // of a merge that has ended
  merging_ = true;
  give_up_ = false;
  auto thread = Thread::Start(
      "merge runs", [this, budget = budget_] { Merge(*budget); },
      [this](const Status& why) {
        LogNotMerged(store_, why);
        MutexLock failed(mutex_);
        End();
      });
  if (thread.ok()) {
    thread_ = std::move(thread).value();
    return true;
  }
  merging_ = false;
  asked_.clear();
  return false;
}

void RunMerger::Merge(MemoryBudget& budget) {
  std::optional<std::string> topology;
  while (true) {
    {
      MutexLock lock(mutex_);
      const bool stopped = budget_ == nullptr;
      if (!topology && !asked_.empty() && !stopped) topology = asked_.extract(asked_.begin()).value();
      if (!topology || stopped) return End();
      give_up_ = false;
    }
    const Result<bool> merged = MergeRuns(store_, budget, *topology, &give_up_);
    // Again while that helps: commits have gone on, or a fold has begun and taken runs away.
    if (merged.ok() && *merged) continue;
    if (!merged.ok()) LogNotMerged(store_, merged.status());
    topology.reset();
  }
}

// In one with finding nothing asked for: what is asked for behind it starts another thread.
void RunMerger::End() {
  merging_ = false;
  asked_.clear();
  idle_.NotifyAll();
}

}  // namespace quarry
