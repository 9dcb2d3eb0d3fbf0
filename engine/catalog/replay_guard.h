// ReplayGuard: stops RocksDB's replay of its log in front of a commit that does not follow on the last one.
//
// RocksDB takes zeros in a log for room that nobody wrote to, and goes on behind them. After a power failure
// they may be sectors of unsynced commits that never came, in front of others that did: these are no part of
// any state that there was. The marks are numbered, and replay ends where one is missing: what is left of
// unsynced commits is a prefix. Private to this room.
#pragma once

#include <rocksdb/wal_filter.h>
#include <rocksdb/write_batch.h>

#include <optional>
#include <string>

#include "commit_mark.h"

namespace quarry {

class ReplayGuard final : public rocksdb::WalFilter {
 public:
  const char* Name() const override { return "ReplayGuard"; }
  // Batches from before there were marks come first, if at all.
  WalProcessingOption LogRecordFound(unsigned long long /*log*/, const std::string& /*name*/,  // NOLINT
                                     const rocksdb::WriteBatch& batch, rocksdb::WriteBatch* /*other*/,
                                     bool* /*changed*/) override {
    const std::optional<CommitMark> mark = MarkAtEnd(batch.Data());
    if (!mark) return WalProcessingOption::kContinueProcessing;
    if (last_ != 0 && mark->commit != last_ + 1) return WalProcessingOption::kStopReplay;
    last_ = mark->commit;
    return WalProcessingOption::kContinueProcessing;
  }

 private:
  uint64_t last_ = 0;
};

}  // namespace quarry
