// What a database must hold, by the functions of crash_work.h alone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "crash/crash_work.h"
#include "embedding/trained_tables.h"

namespace quarry::crash {

// Follows one database (or checkpoints of it, from earlier ones to later ones) as it grows: a check expects
// everything that was there at the one before, and what may have come since.
class Oracle {
 public:
  explicit Oracle(uint64_t seed);

  // Expects every batch of every writer up to some number, whole, and none after it; the embedding tables and
  // the training state of one checkpoint; and that all of it verifies. Fails the test otherwise.
  void Check(Store& store);
  // The layout that is there serves the rows and labels that the last check has found.
  void CheckLayout(Store& store) const;
  // The partitioning that is there has the graph's edges, and the rows that the last check has found, but for
  // those that are newer than it.
  void CheckPartitioning(Store& store) const;

  // As the last check has found it.
  uint64_t batches(uint64_t writer) const { return batches_[writer]; }
  uint64_t timestamp() const { return timestamp_; }
  int64_t trained() const { return trained_; }
  uint64_t edge_commits() const { return edge_commits_; }

 private:
  uint64_t batches() const;  // of all writers
  void CheckWriters(Store& store, const std::shared_ptr<const Snapshot>& snapshot);
  void Advance(uint64_t writer, uint64_t number);
  void CheckSharedRow(const Bytes& found);
  void CheckTraining(Store& store);
  void CheckEdges(Store& store);

  const uint64_t seed_;
  EdgeLists edges_;
  uint64_t edge_commits_ = 0;
  std::vector<Bytes> rows_;
  std::vector<int64_t> labels_;
  std::array<uint64_t, kWriters> batches_{};
  uint64_t timestamp_ = 0;  // of the last of them
  testing_util::TrainedTables tables_;
  testing_util::TrainedTables::LastWrites writes_;
  int64_t trained_ = kNeverWritten;
};

}  // namespace quarry::crash
