// Databases on a disk whose power is cut: all that makes something durable is done to them once, on a
// PowerCutDisk, and what it acknowledged is noted with the operation of the disk that it was acknowledged at.
// Then the power may go at any operation, as often as one likes, and what is left is held against that, by
// the oracle of tests/crash: everything acknowledged is there, whole commits or none, all of it verifies, and
// it goes on.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "crash/crash_oracle.h"
#include "crash/crash_work.h"
#include "embedding/trained_tables.h"
#include "quarry/base/budget.h"
#include "quarry/base/mutex.h"
#include "quarry/base/units.h"
#include "quarry/storage/store.h"
#include "support/power_cut_disk.h"
#include "support/unsynced_backend.h"

namespace quarry::powercut {

// What is promised: a state after a cut must have all of it, and may have what was begun.
struct Promises {
  // Batches of each writer: begun; acknowledged without a sync, so that the next synced one holds them; on
  // disk.
  std::array<uint64_t, crash::kWriters> begun{}, loose{}, written{};
  int64_t trained = kNeverWritten;               // both tables and the run, up to this timestamp
  uint64_t saving = 0, saved = 0;                // states of the run "served"
  std::optional<bool> has_layout = true;         // "default"; unknown while it changes
  std::optional<bool> has_partitioning = false;  // "default", as above
  uint64_t edges_begun = 0, edges_written = 0;   // commits of nodes and edges
  uint64_t types_begun = 0, types_written = 0;   // commits to the graph with types
  bool imported = false;
  bool restored = false;
  std::optional<uint64_t> copied;  // the timestamp of the copy
  bool dropped = false;            // the table "split" of the other database
  bool repaired = false;           // the damaged one
  bool catalog_repaired = false;   // the one without a catalog
};

// The databases: the one that most works are done to, and four small ones.
inline constexpr std::string_view kDatabase = "/db", kOther = "/other", kDamaged = "/damaged",
                                  kBroken = "/broken", kTypes = "/types";

// Makes all of them in the folder.
Status PrepareWorld(const std::string& folder, uint64_t seed);

class World;

struct Work {
  const char* name;
  Status (*run)(World& world);
  std::set<std::string_view> databases = {kDatabase};  // that it needs
};
// All of them.
std::vector<Work> AllWorks();

// What one work is done to.
class World {
 public:
  // In `folder`, with a copy of what PrepareWorld made in `prepared`, or a cut has left there (Leave).
  World(const Work& work, const std::string& prepared, std::string folder, uint64_t seed);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void IgnoreSyncs(testing_util::PowerCutDisk::Ignored ignored) { disk_->IgnoreSyncs(std::move(ignored)); }
  // Fails the test when the work fails, or goes past the disk.
  void Run();

  uint64_t operations() const { return disk_->now(); }
  // Cuts the power at some operation, and checks what is left. Fails the test.
  void CutAndCheck(uint64_t seed);
  // Cuts the power, and leaves what is there of the database in a folder for another world.
  void Leave(uint64_t seed, const std::string& folder);

  // For works.

  Status Open();  // the database
  void Close();
  Store& store() { return *store_; }
  IoBackend& backend() { return *backend_; }
  MemoryBudget& budget() { return budget_; }
  std::string path(std::string_view name = kDatabase) const { return live_ + std::string(name); }
  std::string folder() const { return folder_; }  // for what is of no disk
  uint64_t seed() const { return seed_; }
  testing_util::TrainedTables& tables() { return tables_; }

  Promises promises() const;
  // What is promised from now on.
  template <typename Change>
  void Promise(const Change& change) {
    MutexLock lock(mutex_);
    change(promises_);
    history_.emplace_back(disk_->now(), promises_);
  }
  // Does what writes the next batch of a writer, and notes it.
  template <typename Write>
  Status WriteBatchBy(uint64_t writer, const Write& write) {
    uint64_t number = 0;
    Promise([&](Promises& p) { number = ++p.begun[writer]; });
    const std::array<uint64_t, crash::kWriters> loose = promises().loose;
    QUARRY_RETURN_IF_ERROR(write(crash::BatchOf(seed_, writer, number)));
    Promise([&](Promises& p) {
      p.written[writer] = number;
      for (uint64_t i = 0; i < crash::kWriters; ++i) p.written[i] = std::max(p.written[i], loose[i]);
    });
    return Status::Ok();
  }
  Status Put(uint64_t writer);
  Status PutUnsynced(uint64_t writer);
  Status PutInPieces(uint64_t writer);
  Status Train(int64_t steps);
  // Does what makes the next commit of nodes and edges, and notes it. One at a time.
  template <typename Change>
  Status ChangeGraphBy(const Change& change) {
    uint64_t number = 0;
    Promise([&](Promises& p) { number = ++p.edges_begun; });
    QUARRY_RETURN_IF_ERROR(change(crash::EdgeBatchOf(seed_, number)));
    Promise([&](Promises& p) { p.edges_written = number; });
    return Status::Ok();
  }
  Status ChangeGraph();
  // The same of the graph with types.
  template <typename Change>
  Status ChangeTypesBy(const Change& change) {
    Promise([&](Promises& p) { p.types_begun = types_.commits() + 1; });
    const testing_util::GrowingGraph::Commit next = types_.Next();
    QUARRY_RETURN_IF_ERROR(change(types_, next));
    types_.Take(next);
    Promise([&](Promises& p) { p.types_written = types_.commits(); });
    return Status::Ok();
  }

 private:
  uint64_t SomeOperation(uint64_t seed) const;
  Promises PromisesAt(uint64_t at) const;
  void PromiseWhatIsThere();
  void CheckDatabase(const std::string& state, const Promises& promises, uint64_t seed);
  void CheckServed(Store& store, const Promises& promises);
  void CheckTypes(const std::string& state, const Promises& promises, uint64_t seed);
  void CheckImported(const std::string& state, const Promises& promises);
  void CheckCopies(const std::string& state, const Promises& promises);
  void CheckOther(const std::string& state, const Promises& promises);
  void CheckBroken(const std::string& state, const Promises& promises);
  void CheckRepaired(const std::string& state, const Promises& promises);

  const Work work_;
  const std::string folder_, live_;
  const uint64_t seed_;
  testing_util::UnsyncedBackend plain_;
  std::unique_ptr<testing_util::PowerCutDisk> disk_;
  std::unique_ptr<CatalogWatch> watch_;
  std::unique_ptr<testing_util::PowerCutBackend> backend_;
  MemoryBudget budget_{kGiB};
  std::unique_ptr<Store> store_;
  testing_util::TrainedTables tables_;
  testing_util::GrowingGraph types_;  // what the database with types has
  mutable Mutex mutex_;
  Promises promises_ QUARRY_GUARDED_BY(mutex_);
  std::vector<std::pair<uint64_t, Promises>> history_ QUARRY_GUARDED_BY(mutex_);
};

// What the run "served" has saved the number-th time.
crash::Bytes ServedStateOf(uint64_t number);

}  // namespace quarry::powercut
