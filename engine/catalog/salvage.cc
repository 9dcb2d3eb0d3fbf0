#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "anchor.h"
#include "catalog_files.h"
#include "catalog_keys.h"
#include "commit_mark.h"
#include "doubts.h"
#include "ledger.h"
#include "pending_write.h"
#include "proof.h"
#include "quarry/catalog/catalog.h"
#include "rocks.h"
#include "writer.h"

namespace quarry {

namespace fs = std::filesystem;

Result<uint64_t> ReadTimestamp(const OpenDatabase& open, const std::string& path) {
  QUARRY_TRY(const std::optional<LedgerHead> head, ReadHead(open, VerifiedRead(), path));
  if (head) return head->timestamp;
  QUARRY_TRY(const std::optional<std::string> value,
             ReadValue(open, VerifiedRead(), kSchema, kTimestampKey, "read the last timestamp", path));
  return value ? IdFromBytes(*value) : 0;
}

std::vector<Doubt> Differences(const Tallies& counted, const Tallies& expected) {
  std::set<std::string> keys;
  for (const auto& [key, tally] : counted) {
    const auto other = expected.find(key);
    if (other == expected.end() || other->second != tally) keys.insert(key);
  }
  for (const auto& [key, tally] : expected) {
    if (!counted.contains(key) && !tally.empty()) keys.insert(key);
  }
  std::vector<Doubt> doubts;
  for (const std::string& key : keys) {
    const std::optional<TallyRange> range = RangeOfTally(key);
    if (!range) {
      if (doubts.empty() || !doubts.back().table.empty()) doubts.push_back({});
      continue;
    }
    if (!doubts.empty() && doubts.back().table == range->table &&
        doubts.back().first_row + doubts.back().row_count == range->first_row) {
      doubts.back().row_count += kRowsPerTally;
    } else {
      doubts.push_back({range->table, range->first_row, kRowsPerTally});
    }
  }
  return doubts;
}

Result<std::vector<Doubt>> ReadDoubts(const OpenDatabase& open, const rocksdb::ReadOptions& options,
                                      const std::string& path) {
  QUARRY_TRY(const std::optional<LedgerHead> head, ReadHead(open, options, path));
  if (!head) return std::vector<Doubt>();
  QUARRY_TRY(const Tallies counted, Recount(open, options, path));
  QUARRY_TRY(const KeptTallies kept_tallies, ReadTallies(open, options, path));
  const Tallies& expected = kept_tallies.tallies;
  std::vector<Doubt> doubts = Differences(counted, expected);
  Tally sum;
  for (const auto& [key, tally] : expected) {
    sum.entries += tally.entries;
    sum.hashes += tally.hashes;
  }
  if (doubts.empty() && sum != Tally{head->entries, head->hashes}) doubts.push_back({});
  const std::unique_ptr<rocksdb::Iterator> kept = open.Entries(options, kSchema);
  for (kept->Seek(ToSlice(kDoubtPrefix)); kept->Valid() && kept->key().starts_with(ToSlice(kDoubtPrefix));
       kept->Next()) {
    const std::string_view key = kept->key().ToStringView().substr(kDoubtPrefix.size());
    if (key.size() < 1 + sizeof(uint64_t)) continue;
    const size_t table_bytes = key.size() - 1 - sizeof(uint64_t);
    doubts.push_back({std::string(key.substr(0, table_bytes)), IdFromBytes(key.substr(table_bytes + 1)),
                      IdFromBytes(kept->value().ToStringView())});
  }
  QUARRY_RETURN_IF_ERROR(FromRocks(kept->status(), "read what a repair could not prove", path));
  return doubts;
}

Status PromiseAll(const OpenDatabase& open, const std::string& database_path) {
  const std::string path = database_path + std::string(kCatalogFolder);
  QUARRY_TRY(const std::optional<LedgerHead> head, ReadHead(open, VerifiedRead(), path));
  if (!head) return MakeStatus(Code::kCorruption, "{}: the catalog has no ledger", path);
  QUARRY_TRY(const uint64_t timestamp, ReadTimestamp(open, path));
  return CreateAnchor(database_path, {.catalog_id = head->catalog_id,
                                      .commits = head->commits,
                                      .timestamp = timestamp,
                                      .entries = head->entries,
                                      .hashes = head->hashes,
                                      .manifest_digest = head->manifest_digest});
}

namespace {

// RocksDB's repair of a copy, in the folder `path`, without the tables `left_out`. Returns the tables of which it made
// nothing.
Result<std::vector<std::string>> RepairCopy(const std::string& from, const std::string& path,
                                            const std::set<std::string>& left_out) {
  // An error of the disk may pass: what could not be read is tried again before it is given up for lost.
  constexpr int kTriesMax = 2;
  bool disk_failed = true;
  std::error_code error;
  for (int i = 0; disk_failed && i < kTriesMax; ++i) {
    RemoveFiles(path);
    QUARRY_RETURN_IF_ERROR(
        CopyFiles(from, path, [&](const fs::path& file) { return !left_out.contains(file.filename()); }));
    QUARRY_RETURN_IF_ERROR(RepairRocks(path, disk_failed));
  }
  std::vector<std::string> lost;
  for (fs::directory_iterator entry(path + "/lost", error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == kTableSuffix) lost.push_back(entry->path().filename().string());
  }
  RemoveFiles(path + "/lost");  // the catalog that this was copied from has them
  return lost;
}

// What the MANIFEST of a damaged catalog knows.
struct Named {
  std::set<uint64_t> tables;   // their numbers
  uint64_t last_sequence = 0;  // of all entries when it was written
};

// Nothing where the MANIFEST in the folder `from` cannot be read. Read from a copy without logs, which would be replayed.
Result<std::optional<Named>> ReadNamed(const std::string& from, const std::string& to_path) {
  const std::string path = to_path + ".named";
  RemoveFiles(path);
  Status status = CopyFiles(from, path, [](const fs::path& file) { return file.extension() != kLogSuffix; });
  std::optional<Named> named;
  if (status.ok()) {
    const Result<OpenDatabase> open = OpenRocks(path, OpenAs::kTablesUnread);
    status = open.status();
    if (open.ok()) {
      named.emplace().last_sequence = open->db->GetLatestSequenceNumber();
      std::vector<rocksdb::LiveFileMetaData> tables;
      open->db->GetLiveFilesMetaData(&tables);
      for (const auto& table : tables) named->tables.insert(table.file_number);
    }
  }
  RemoveFiles(path);
  // What is damaged or unreadable is not known; without memory or threads there is no repair either.
  if (status.code() == Code::kOutOfBudget) return status;
  return named;
}

// Tables that a compaction has replaced, and that were not removed when the process was killed. RocksDB's repair takes in
// all that there are, and an entry of a replaced table would hide the newer one, whose number compaction has set to 0. What
// may be newer than the MANIFEST stays.
std::set<std::string> ReplacedTables(const OpenDatabase& open, const Named& named) {
  std::vector<rocksdb::LiveFileMetaData> tables;
  open.db->GetLiveFilesMetaData(&tables);
  std::set<std::string> replaced;
  for (const auto& table : tables) {
    const bool older = !named.tables.empty() && table.file_number < *named.tables.rbegin() &&
                       table.largest_seqno <= named.last_sequence;
    if (older && !named.tables.contains(table.file_number)) replaced.insert(table.relative_filename);
  }
  return replaced;
}

// Where tables of a family have entries without a number in the same range of keys, one is made of them: an iterator that
// met one key twice would end the process. Which of two entries it keeps is not known, and the ledger finds out what is wrong
// then.
Status MergeEntriesWithoutNumber(const OpenDatabase& open, const std::string& path) {
  std::vector<rocksdb::LiveFileMetaData> tables;
  open.db->GetLiveFilesMetaData(&tables);
  for (rocksdb::ColumnFamilyHandle* const family : open.handles) {
    std::vector<std::pair<std::string, std::string>> ranges;  // first and last key
    for (const auto& table : tables) {
      if (table.column_family_name == family->GetName() && table.smallest_seqno == 0) {
        ranges.emplace_back(table.smallestkey, table.largestkey);
      }
    }
    std::ranges::sort(ranges);
    for (size_t i = 0; i < ranges.size();) {
      auto [first, last] = ranges[i];
      size_t end = i + 1;
      for (; end < ranges.size() && ranges[end].first <= last; ++end)
        last = std::max(last, ranges[end].second);
      if (end - i > 1) {
        const rocksdb::Slice from(first), to(last);
        QUARRY_RETURN_IF_ERROR(
            FromRocks(open.db->CompactRange({}, family, &from, &to), "merge tables", path));
      }
      i = end;
    }
  }
  return Status::Ok();
}

// The catalog that RocksDB can make of the tables and logs in the folder `from`, in the folder `path`.
Result<OpenDatabase> OpenCopy(const std::string& from, const std::string& path,
                              std::vector<std::string>& lost_tables) {
  QUARRY_TRY(const std::optional<Named> named, ReadNamed(from, path));
  QUARRY_TRY(lost_tables, RepairCopy(from, path, {}));
  QUARRY_TRY(OpenDatabase open, OpenRocks(path, OpenAs::kRepaired));
  const std::set<std::string> replaced = named ? ReplacedTables(open, *named) : std::set<std::string>();
  if (!replaced.empty()) {
    QUARRY_RETURN_IF_ERROR(FromRocks(open.Close(), "close the catalog", path));
    QUARRY_TRY(lost_tables, RepairCopy(from, path, replaced));
    QUARRY_TRY(open, OpenRocks(path, OpenAs::kRepaired));
  }
  QUARRY_RETURN_IF_ERROR(MergeEntriesWithoutNumber(open, path));
  return open;
}

// What the anchor and the logs of the damaged catalog still promise, if anything.
struct Promised {
  std::optional<AnchorRecord> anchor;
  uint64_t synced = 0;
};

Result<Promised> ReadPromises(const std::string& database_path, const std::optional<LedgerHead>& head) {
  Promised promised;
  const auto anchor = ReadAnchor(database_path);
  if (anchor.ok()) promised.anchor = *anchor;
  // What the disk does not give now it may give later; what is damaged stays so.
  if (!anchor.ok() && anchor.status().code() != Code::kCorruption) return anchor.status();
  if (head) {
    QUARRY_TRY(promised.synced, SyncedByLogs(database_path + std::string(kCatalogFolder), head->catalog_id));
  }
  return promised;
}

// True when nothing is missing at the end: the last commit is at least the one that was promised.
bool HasLastCommit(const OpenDatabase& open, const std::optional<LedgerHead>& head, const Promised& promised,
                   const std::string& path) {
  if (!head || !promised.anchor || promised.anchor->catalog_id != head->catalog_id) return false;
  AnchorRecord anchor = *promised.anchor;
  anchor.closed = false;  // the files are others now
  return CheckPromise(anchor, head, path, "").ok() && promised.synced <= head->commits &&
         CheckHead(open, *head, path).ok();
}

// All rows of all tables, and whatever has no rows.
std::vector<Doubt> DoubtAll(const Manifest& manifest) {
  std::vector<Doubt> doubts(1);
  for (const TableRecord& table : manifest.tables) doubts.push_back({table.name, 0, table.row_count});
  return doubts;
}

Status CutToTables(const Manifest& manifest, std::vector<Doubt>& doubts) {
  for (Doubt& doubt : doubts) {
    const TableRecord* const table = manifest.FindTable(doubt.table);
    if (table == nullptr) {
      doubt = {};  // of a table that was dropped, or never was
    } else {
      doubt.row_count =
          std::min(doubt.row_count, table->row_count - std::min(doubt.first_row, table->row_count));
    }
  }
  return Status::Ok();
}

Status KeepDoubts(const OpenDatabase& open, std::span<const Doubt> doubts, const std::string& path) {
  rocksdb::WriteBatch batch;
  for (const Doubt& doubt : doubts) {
    std::string key(kDoubtPrefix);
    key.append(doubt.table).push_back('\0');
    key.append(IdBytes(doubt.first_row));
    QUARRY_RETURN_IF_ERROR(
        FromRocks(batch.Put(open[kSchema], key, IdBytes(doubt.row_count)), "keep what is in doubt", path));
  }
  return FromRocks(open.db->Write(rocksdb::WriteOptions(), &batch), "keep what is in doubt", path);
}

}  // namespace

Result<SalvagedCatalog> Catalog::Salvage(const std::string& database_path, const std::string& to_path) {
  const std::string path = to_path + std::string(kCatalogFolder);
  SalvagedCatalog salvaged;
  QUARRY_TRY(OpenDatabase open,
             OpenCopy(database_path + std::string(kCatalogFolder), path, salvaged.lost_tables));
  std::string bytes;
  const rocksdb::Status status = open.db->Get(VerifiedRead(), open[kManifest], ToSlice(kManifestKey), &bytes);
  if (status.IsNotFound()) {
    return MakeStatus(Code::kCorruption,
                      "{}{}: what can be read of it holds no manifest: restore it or import again",
                      database_path, kCatalogFolder);
  }
  QUARRY_RETURN_IF_ERROR(FromRocks(status, "read the manifest", path));
  QUARRY_TRY(const Manifest manifest, DecodeManifest(std::as_bytes(std::span(bytes)), path));
  QUARRY_TRY(const std::optional<LedgerHead> head, ReadHead(open, VerifiedRead(), path));
  QUARRY_TRY(const Promised promised, ReadPromises(database_path, head));
  QUARRY_TRY(const Tallies counted, Recount(open, VerifiedRead(), path));
  // The ledger proves what it counts, and the anchor that it is the newest ledger.
  QUARRY_TRY(std::vector<Doubt> earlier, ReadDoubts(open, VerifiedRead(), path));
  salvaged.doubts = HasLastCommit(open, head, promised, path) ? std::move(earlier) : DoubtAll(manifest);
  QUARRY_RETURN_IF_ERROR(CutToTables(manifest, salvaged.doubts));
  // The timestamps of commits that are missing are not handed out again: layouts may have their rows.
  QUARRY_TRY(salvaged.timestamp, ReadTimestamp(open, path));
  uint64_t timestamp = salvaged.timestamp;
  if (promised.anchor) timestamp = std::max(timestamp, promised.anchor->timestamp);
  QUARRY_RETURN_IF_ERROR(FromRocks(
      open.db->Put(rocksdb::WriteOptions(), open[kSchema], ToSlice(kTimestampKey), IdBytes(timestamp)),
      "write the last timestamp", path));
  // A ledger of its own: under another id, no anchor and no log of the old one are taken for its own.
  std::string behind(kCommitKey);
  ++behind.back();
  QUARRY_RETURN_IF_ERROR(
      FromRocks(open.db->DeleteRange(rocksdb::WriteOptions(), open[kSchema], ToSlice(kCommitKey), behind),
                "write the ledger", path));
  {
    CatalogWriter writer(to_path, path);
    QUARRY_RETURN_IF_ERROR(writer.TakeAnchor(/*anchored=*/false));
    QUARRY_RETURN_IF_ERROR(writer.Load(open));
    QUARRY_RETURN_IF_ERROR(KeepDoubts(open, salvaged.doubts, path));
    QUARRY_RETURN_IF_ERROR(FromRocks(open.db->Flush(rocksdb::FlushOptions(), open.handles), "flush", path));
    QUARRY_RETURN_IF_ERROR(FromRocks(open.Close(), "close the catalog", path));
    QUARRY_RETURN_IF_ERROR(writer.Closed());
  }
  return salvaged;
}

}  // namespace quarry
