#include "writer.h"

#include <algorithm>
#include <random>

#include "catalog_keys.h"
#include "commit_mark.h"
#include "doubts.h"
#include "proof.h"
#include "quarry/base/log.h"

namespace quarry {
namespace {

uint64_t NewCatalogId() {
  std::random_device device;  // the system's, not a seeded one: two catalogs must differ
  return uint64_t{device()} << 32 | device();
}

}  // namespace

// "Closed" is taken back, synced, before RocksDB may touch a file: a crash from here on finds an anchor that
// no longer vouches for CURRENT and MANIFEST, which change from now on.
Status CatalogWriter::TakeAnchor(bool anchored) {
  QUARRY_TRY(std::optional<AnchorRecord> record, ReadAnchor(database_path_));
  if (!record && anchored) {
    return MakeStatus(Code::kCorruption,
                      "{}{}: the file is missing: restore a checkpoint, or run `quarry repair`",
                      database_path_, kAnchorFile);
  }
  if (!record) {
    record = AnchorRecord{.catalog_id = NewCatalogId()};
    QUARRY_RETURN_IF_ERROR(CreateAnchor(database_path_, *record));
  }
  QUARRY_TRY(anchor_, Anchor::Open(database_path_, *record));
  if (!record->closed) return Status::Ok();
  record->closed = false;
  record->files_digest = 0;
  return anchor_->Write(*record, /*sync=*/true);
}

// A catalog that has no ledger yet is counted, and gets one: that is how a database of version 1 becomes one
// of today.
Status CatalogWriter::Load(const OpenDatabase& open) {
  QUARRY_TRY(const std::optional<LedgerHead> head, ReadHead(open, VerifiedRead(), path_));
  QUARRY_RETURN_IF_ERROR(CheckPromise(promised(), head, path_, open.logger->dropped()));
  if (!head) {
    head_ = LedgerHead{.catalog_id = promised().catalog_id};
    QUARRY_TRY(head_.timestamp, ReadTimestamp(open, path_));
    QUARRY_TRY(const Tallies counted, Recount(open, VerifiedRead(), path_));
    return Rewrite(open, counted);
  }
  QUARRY_RETURN_IF_ERROR(CheckHead(open, *head, path_));
  QUARRY_TRY(KeptTallies kept, ReadTallies(open, VerifiedRead(), path_));
  tallies_ = std::move(kept.tallies);
  unfolded_ = std::move(kept.unfolded);
  head_ = *head;
  // What was recovered from the log RocksDB has written to tables, synced, when it opened the catalog.
  synced_ = head_.commits;
  stale_ = false;
  return Status::Ok();
}

AnchorRecord CatalogWriter::Promise() const {
  AnchorRecord record = promised();
  record.catalog_id = head_.catalog_id;
  record.commits = head_.commits;
  record.timestamp = head_.timestamp;
  record.entries = head_.entries;
  record.hashes = head_.hashes;
  record.manifest_digest = head_.manifest_digest;
  return record;
}

void CatalogWriter::Apply(const Tallies& changes, const LedgerHead& head) {
  for (const auto& [key, difference] : changes) {
    Tally& tally = tallies_[key];
    tally.entries += difference.entries;
    tally.hashes += difference.hashes;
    unfolded_.push_back(key);
  }
  head_ = head;
  if (head.folded != head.commits) return;
  for (const std::string& key : unfolded_) {  // records of empty tallies are gone
    if (const auto tally = tallies_.find(key); tally != tallies_.end() && tally->second.empty())
      tallies_.erase(tally);
  }
  unfolded_.clear();
}

void CatalogWriter::AddTallies(const Tallies& changes, PendingWrite& write) const {
  Tallies whole = changes;
  for (const std::string& key : unfolded_) whole.try_emplace(key);
  for (auto& [key, tally] : whole) {
    if (const auto before = tallies_.find(key); before != tallies_.end()) {
      tally.entries += before->second.entries;
      tally.hashes += before->second.hashes;
    }
    const std::string record = std::string(kTallyPrefix) + key;
    tally.empty() ? write.Delete(kSchema, record) : write.Put(kSchema, record, EncodeTally(tally));
  }
  write.Delete(kSchema, kCommitKey);  // a head of version 2, which is in the tallies now
}

// Everything that the ledger says about the commit (its step, marks of the families, and tallies where it folds) goes into
// the commit's own write, so any prefix of the log agrees with itself. In memory the ledger moves on only after
// the write succeeded.
//
// After a failure the two kinds of errors are told apart: a failed sync leaves nobody knowing what is on
// disk, so writing ends for good; after any other error the catalog is stale, and the owner opens it anew to
// see what is there.
Status CatalogWriter::Commit(const OpenDatabase& open, PendingWrite& write, bool sync,
                             std::string_view what) {
  const bool full = head_.commits + 1 - head_.folded >= kSteps ||
                    unfolded_.size() + write.change().changes().size() > kStepChangesMax;
  return Commit(open, write, sync, /*fold=*/full, what);
}

Status CatalogWriter::Commit(const OpenDatabase& open, PendingWrite& write, bool sync, bool fold,
                             std::string_view what) {
  QUARRY_RETURN_IF_ERROR(broken_);
  QUARRY_RETURN_IF_ERROR(FromRocks(write.status(), what, path_));
  LedgerHead head = head_;
  ++head.commits;
  const Tallies& changes = write.change().changes();
  for (const auto& [key, difference] : changes) {
    head.entries += difference.entries;
    head.hashes += difference.hashes;
  }
  if (fold) {
    head.folded = head.commits;
    AddTallies(changes, write);
  }
  if (write.manifest_digest()) head.manifest_digest = *write.manifest_digest();
  for (const Family family : {kManifest, kDelta, kProperty}) {
    if (!write.touched(family)) continue;
    head.marks[family] = head.commits;
    write.Put(family, kCommitKey, EncodeMark(head.commits));
  }
  if (write.timestamp()) head.timestamp = *write.timestamp();
  write.Put(kSchema, StepKey(head.commits), EncodeStep(head, fold ? Tallies() : changes));
  rocksdb::Status status = write.status();
  if (status.ok()) {
    status = write.batch().PutLogData(EncodeCommitMark({head.catalog_id, head.commits, synced_}));
  }
  rocksdb::WriteOptions options;
  options.sync = sync;
  if (status.ok()) status = open.db->Write(options, &write.batch());
  if (!status.ok()) {
    const Status failed = FromRocks(status, what, path_);
    if (open.errors->sync_failed()) {
      broken_ = MakeStatus(failed.code(), "{}; nothing is written any more until it is opened anew",
                           failed.message());
      return broken_;
    }
    stale_ = true;
    return failed;
  }
  Apply(changes, head);
  if (!sync) return Status::Ok();
  synced_ = head_.commits;
  // The commit stands whatever becomes of the promise: without it, an older one holds.
  const Status promise = anchor_->Write(Promise(), /*sync=*/write.manifest_digest().has_value());
  if (!promise.ok()) LogInfo("{}", promise.message());
  return Status::Ok();
}

// Tallies are deleted and put back as they were counted, in one write: a crash leaves the old ledger or the
// new one.
Status CatalogWriter::Rewrite(const OpenDatabase& open, const Tallies& counted) {
  // Before anything is forgotten, since it may fail.
  QUARRY_TRY(const uint64_t digest, ReadManifestDigest(open, path_));
  Unload();
  head_.entries = head_.hashes = 0;
  PendingWrite write(open);
  write.DeleteAll(kSchema, std::string(kTallyPrefix));
  write.DeleteAll(kSchema, std::string(kDoubtPrefix));
  write.Delete(kSchema, kTimestampKey);  // the head has it
  for (const auto& [key, tally] : counted) write.change().Set(key, tally);
  write.SetManifestDigest(digest);
  for (const Family family : {kManifest, kDelta, kProperty}) write.Touch(family);
  return Commit(open, write, /*sync=*/true, /*fold=*/true, "write the ledger");
}

// The digest covers the files as RocksDB left them, so this comes after its own close.
Status CatalogWriter::Closed() {
  AnchorRecord record = Promise();
  QUARRY_TRY(record.files_digest, DigestOfFiles(path_));
  record.closed = true;
  return anchor_->Write(record, /*sync=*/true);
}

}  // namespace quarry
