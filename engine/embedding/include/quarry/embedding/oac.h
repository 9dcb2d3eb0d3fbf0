// Optimistic asynchrony control (dissertation §3.2.2): batches of parameters are read and written in
// parallel, and yet the result is, bit for bit, that of processing one after the other in the order in which
// they computed.
//
//   Begin      just before a batch's parameters are read: its MFCT, and the safe-to-evict timestamp
//   Validate   just before it computes: rows that the cache has newer are replaced
//   compute    ; the batch gets the next timestamp of the computation order
//   Insert     its updates enter the cache
//   Write      to the table, larger timestamps win; then Finish
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>

#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/embedding/embedding_table.h"

namespace quarry {

// Knows which batches are under way, and up to which timestamp all have arrived. Thread-safe.
class CommitTracker {
 public:
  struct Ticket {
    uint64_t id = 0;
    // All updates up to this timestamp were in the table when the batch began to read: it needs none of them
    // from the cache (maximum finished consecutive timestamp).
    int64_t mfct = kNeverWritten;
    // No batch under way needs a cached row of this timestamp or less: the least MFCT of all of them.
    int64_t safe_to_evict = kNeverWritten;
  };
  // `last_finished` is the timestamp of the checkpoint that training resumes from.
  explicit CommitTracker(int64_t last_finished = kNeverWritten) : mfct_(last_finished) {}
  Ticket Begin();
  // The updates that this batch computed as `timestamp` are in the table.
  void Finish(const Ticket& ticket, int64_t timestamp);
  // The batch ends without an update.
  void Abandon(const Ticket& ticket);
  int64_t mfct() const;
  size_t outstanding() const;

 private:
  mutable Mutex mutex_;
  int64_t mfct_ QUARRY_GUARDED_BY(mutex_);
  std::set<int64_t> finished_ QUARRY_GUARDED_BY(mutex_);               // beyond mfct_ + 1
  std::map<uint64_t, int64_t> outstanding_ QUARRY_GUARDED_BY(mutex_);  // id -> MFCT
  uint64_t next_id_ QUARRY_GUARDED_BY(mutex_) = 0;
};

// The newest versions of the rows that batches under way may have missed. In front of the computation, and
// used by its one thread; behind an interface so that it can lie where the computation is (a GPU's memory).
class ValidationCache {
 public:
  virtual ~ValidationCache() = default;
  // Replaces each row of the block that the cache has with a larger timestamp. Rows of timestamps up to
  // ticket.mfct are not looked for. Evicts what is safe. Returns how many were replaced.
  virtual uint64_t Validate(const CommitTracker::Ticket& ticket, RowBlock& block) = 0;
  // Puts the block's rows in with its timestamps; older versions of them go.
  virtual void Insert(const RowBlock& block) = 0;
  virtual size_t row_count() const = 0;
  virtual uint64_t memory_bytes() const = 0;
};
std::unique_ptr<ValidationCache> MakeValidationCache(const EmbeddingSpec& spec);

}  // namespace quarry
