// RunMerger: makes few runs of many (topology_run.h), beside readers, which keep what their snapshot names, and beside commits,
// whose runs stay behind the merged one. Every store has one, and whoever commits edges tells it.
//
//   not started: a commit that finds more than kTopologyRunsMax runs merges them itself
//   idle        --[a commit finds more]--> merging [the merger's thread, with memory that is free]
//   merging     --[the merged run is named, and there are few]--> idle
//               --[others need the memory, or it fails]--> idle: the next commit tries again
//               --Stop--> not started: what is not named yet is given up, and its file removed
//
// The thread is the merger's: it is started when there is work, and ends with it. A commit that finds more than kTopologyRunsLimit
// waits for it, and where it has not helped, or the system has no thread, merges by itself with its own memory; so readers
// have no more to compose that nobody folds, unless merging fails. No commit fails because of a merge.
//
// What is being folded into the topology's file (CompactTopology) is left alone, and what came since is merged beside it; a merge
// that a fold has begun under is not named, and done again for what is left. Which runs the edges are in is nobody's business who
// draws from them: lists are the same (topology.h).
//
// A process that lives for one commit would leave each merge to the next one, which ends as soon: so whoever closes a database
// lets it Finish. A server that is told to end does not wait: it Stops.
#pragma once

#include <atomic>
#include <cstddef>
#include <set>
#include <string>

#include "quarry/base/budget.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/base/thread.h"
#include "quarry/storage/store.h"

namespace quarry {

// Runs that a topology has before some are merged.
inline constexpr size_t kTopologyRunsMax = 8;
// Runs beyond which commits wait: a merge may take as long as two times what makes it necessary, and composing so many runs is
// still less work for whoever opens the graph than reading them.
inline constexpr size_t kTopologyRunsLimit = 3 * kTopologyRunsMax;

class RunMerger {
 public:
  // Made by the store.
  explicit RunMerger(Store& store) : store_(store) {}
  ~RunMerger() { Stop(); }
  RunMerger(const RunMerger&) = delete;
  RunMerger& operator=(const RunMerger&) = delete;

  // Merges go on beside commits from now on, with what is free of this budget, in place of one that it was started with.
  // The budget outlives Stop.
  void Start(MemoryBudget& budget) QUARRY_EXCLUDES(mutex_);
  // Gives up a merge that is under way, and waits until that is so.
  void Stop() QUARRY_EXCLUDES(mutex_);
  // Waits until nothing is to be merged that can be, and stops.
  void Finish() QUARRY_EXCLUDES(mutex_);

  // A commit of edges has been made: merges what there is too much of, on the thread or here within `budget`. By whoever has the
  // right to make runs.
  void Committed(const std::string& topology, MemoryBudget& budget) QUARRY_EXCLUDES(mutex_);

 private:
  bool Ask(const std::string& topology) QUARRY_EXCLUDES(mutex_);
  void Wait() QUARRY_EXCLUDES(mutex_);
  void Merge(MemoryBudget& budget) QUARRY_EXCLUDES(mutex_);
  void End() QUARRY_REQUIRES(mutex_);

  Store& store_;
  std::atomic<bool> give_up_ = false;  // the merge that is under way
  mutable Mutex mutex_;
  CondVar idle_;
  MemoryBudget* budget_ QUARRY_GUARDED_BY(mutex_) = nullptr;  // null: not started
  bool merging_ QUARRY_GUARDED_BY(mutex_) = false;            // there is a thread that will look at asked_
  std::set<std::string> asked_ QUARRY_GUARDED_BY(mutex_);     // topologies that have many runs
  Thread thread_ QUARRY_GUARDED_BY(mutex_);
};

// Makes one run of the last ones where there are more than kTopologyRunsMax that nobody folds: of those that are together no more
// than four times what comes behind them, so that an edge is written again a few times only, or else of all. False where there
// are no more, and where the right to it is somebody else's (Store::HoldRuns).
Result<bool> MergeRuns(Store& store, MemoryBudget& budget, const std::string& topology);

}  // namespace quarry
