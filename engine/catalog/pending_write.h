// PendingWrite: one atomic write to the catalog while it is put together: RocksDB's batch, and what it
// changes in the ledger. Private to this room.
#pragma once

#include <rocksdb/write_batch.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "catalog_keys.h"
#include "ledger.h"
#include "quarry/catalog/catalog.h"
#include "rocks.h"

namespace quarry {

class PendingWrite {
 public:
  explicit PendingWrite(const OpenDatabase& open) : open_(open) {}

  void Put(Family family, std::string_view key, std::string_view value) {
    Keep(batch_.Put(open_[family], ToSlice(key), ToSlice(value)), family);
  }
  void Delete(Family family, std::string_view key) {
    Keep(batch_.Delete(open_[family], ToSlice(key)), family);
  }
  // All keys under `prefix`, of which some byte is not the largest.
  void DeleteAll(Family family, const std::string& prefix) {
    std::string end = prefix;
    while (end.back() == '\xff') end.pop_back();  // as that of a generation may be
    end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
    Keep(batch_.DeleteRange(open_[family], prefix, end), family);
  }
  // Entries, which the ledger counts.
  void PutVersion(const std::string& key, char kind, std::string_view row, const std::string& tally) {
    const rocksdb::Slice key_parts[] = {key};
    const rocksdb::Slice value_parts[] = {{&kind, 1}, ToSlice(row)};
    Keep(batch_.Put(open_[kDelta], {key_parts, 1}, {value_parts, 2}), kDelta);
    change_.Add(tally, EntryHash(key, row));
  }
  void PutEntry(Family family, std::string_view key, std::string_view value, const std::string& tally) {
    Put(family, key, value);
    change_.Add(tally, EntryHash(key, value));
  }
  void Touch(Family family) { touched_[family] = true; }  // its mark is written
  void SetTimestamp(uint64_t timestamp) { timestamp_ = timestamp; }
  void SetManifestDigest(uint64_t digest) { manifest_digest_ = digest; }

  LedgerChange& change() { return change_; }
  rocksdb::WriteBatch& batch() { return batch_; }
  const rocksdb::Status& status() const { return status_; }
  bool touched(Family family) const { return touched_[family]; }
  std::optional<uint64_t> timestamp() const { return timestamp_; }
  std::optional<uint64_t> manifest_digest() const { return manifest_digest_; }
  size_t bytes() const { return batch_.GetDataSize(); }
  bool empty() const { return batch_.Count() == 0; }
  void Clear() {
    batch_.Clear();
    change_ = {};
    touched_ = {};
    timestamp_.reset();
    manifest_digest_.reset();
  }

 private:
  void Keep(const rocksdb::Status& status, Family family) {
    if (status_.ok()) status_ = status;
    touched_[family] = true;
  }

  const OpenDatabase& open_;
  rocksdb::WriteBatch batch_;
  LedgerChange change_;
  rocksdb::Status status_;  // first operation that failed
  std::array<bool, kFamilyCount> touched_{};
  std::optional<uint64_t> timestamp_, manifest_digest_;
};

// Takes an entry that is to be replaced out of the ledger; nothing when there is none. `skipped`: bytes of
// the value that its hash leaves out.
Status RemoveEntry(const OpenDatabase& open, const std::string& path, Family family, const std::string& key,
                   size_t skipped, const std::string& tally, PendingWrite& write);

inline std::string KeyOf(const RowVersion& version) {
  return VersionKey(version.table, version.row, version.timestamp);
}
// Adds versions to `write`, of a row that comes twice the later one; returns their newest timestamp.
uint64_t AddVersions(std::span<const RowVersion> versions, PendingWrite& write);

}  // namespace quarry
