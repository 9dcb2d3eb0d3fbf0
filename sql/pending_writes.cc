#include "pending_writes.h"

#include <algorithm>

#include "quarry/base/units.h"

namespace quarry::sql {
namespace {

constexpr uint64_t kTransactionBytesMax = 64 * kMiB;
constexpr uint64_t kEntryBytes = 256;  // an entry beside its row

}  // namespace

Status PendingWrites::Put(std::string_view table, uint64_t row, std::vector<std::byte> bytes) {
  if (log_.empty()) {
    // The rows, and the batch that they are committed by.
    QUARRY_TRY(reservation_, budget_.Reserve(2 * kTransactionBytesMax, "a transaction's writes"));
  }
  bytes_ += bytes.size() + kEntryBytes;
  if (bytes_ > kTransactionBytesMax) {
    bytes_ -= bytes.size() + kEntryBytes;
    return MakeStatus(Code::kOutOfBudget, "one transaction writes at most {}: commit in between",
                      FormatBytes(kTransactionBytesMax));
  }
  const auto [place, added] = places_.try_emplace(Key(table, row));
  place->second.push_back(log_.size());
  log_.push_back({place->first, std::move(bytes)});
  return Status::Ok();
}

std::span<const std::byte> PendingWrites::Find(std::string_view table, uint64_t row) const {
  const auto found = places_.find(Key(table, row));
  if (found == places_.end()) return {};
  return log_[found->second.back()].bytes;
}

Status PendingWrites::Commit(Store& store) {
  if (log_.empty()) return Status::Ok();
  WriteBatch batch;
  for (const auto& [key, entries] : places_) batch.Put(key.first, key.second, log_[entries.back()].bytes);
  Rollback();
  return store.Write(batch).status();
}

void PendingWrites::Rollback() {
  PopTo(0);
  marks_.clear();
}

void PendingWrites::Mark(int savepoint) {
  while (marks_.size() <= static_cast<size_t>(savepoint)) marks_.push_back(log_.size());
}

void PendingWrites::Release(int savepoint) {
  marks_.resize(std::min(marks_.size(), static_cast<size_t>(savepoint)));
}

void PendingWrites::RollbackTo(int savepoint) {
  const auto place = static_cast<size_t>(savepoint);
  if (place >= marks_.size()) return;
  marks_.resize(place + 1);
  PopTo(marks_[place]);
}

void PendingWrites::PopTo(size_t entries) {
  for (; log_.size() > entries; log_.pop_back()) {
    const Entry& last = log_.back();
    bytes_ -= last.bytes.size() + kEntryBytes;
    const auto place = places_.find(last.key);
    place->second.pop_back();
    if (place->second.empty()) places_.erase(place);
  }
  if (log_.empty()) reservation_.Release();
}

}  // namespace quarry::sql
