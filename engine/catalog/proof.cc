#include "proof.h"

#include "commit_mark.h"

namespace quarry {

// The ledger may be ahead of the anchor (the promise of the last commit need not have reached the disk), but
// never behind it: then commits are missing. Where both are at the same commit they must also agree on what
// it left. A catalog that was closed has nothing in flight, so there even the files that RocksDB starts from
// must be the same bytes.
Status CheckPromise(const AnchorRecord& anchor, const std::optional<LedgerHead>& head,
                    const std::string& catalog_path, const std::string& heard) {
  const std::string left_out = heard.empty() ? "" : fmt::format(" (RocksDB, opening it: {})", heard);
  const uint64_t commits = head ? head->commits : 0;
  if (head && head->catalog_id != anchor.catalog_id) {
    return MakeStatus(Code::kCorruption, "{}: not the catalog that {} beside it belongs to: {}", catalog_path,
                      kAnchorFile.substr(1), kRemedy);
  }
  if (commits < anchor.commits) {
    return MakeStatus(Code::kCorruption, "{}: {} of {} commits are missing, up to timestamp {}{}: {}",
                      catalog_path, anchor.commits - commits, anchor.commits, anchor.timestamp, left_out,
                      kRemedy);
  }
  const bool same = commits == anchor.commits;
  if (head && same &&
      (head->entries != anchor.entries || head->hashes != anchor.hashes ||
       head->manifest_digest != anchor.manifest_digest)) {
    return MakeStatus(Code::kCorruption, "{}: commit {} is not the one that was made: {}", catalog_path,
                      commits, kRemedy);
  }
  if (!anchor.closed) return Status::Ok();
  QUARRY_TRY(const uint64_t files_digest, DigestOfFiles(catalog_path));
  if (same && files_digest == anchor.files_digest) return Status::Ok();
  return MakeStatus(
      Code::kCorruption,
      "{}: CURRENT or the MANIFEST that it names has changed since the catalog was closed{}: {}",
      catalog_path, left_out, kRemedy);
}

// Without an anchor nothing was promised: so it is for databases from before there were anchors, which have
// no ledger either. The logs are only searched for marks when the catalog was not closed, since a clean close
// leaves nothing in them that counts.
Status CheckReader(const std::string& database_path, const std::string& path, const OpenDatabase& open,
                   bool anchored) {
  QUARRY_TRY(const std::optional<AnchorRecord> anchor, ReadAnchor(database_path));
  QUARRY_TRY(const std::optional<LedgerHead> head, ReadHead(open, VerifiedRead(), path));
  if (!anchor) {
    if (!anchored && !head) return Status::Ok();
    return MakeStatus(Code::kCorruption,
                      "{}{}: the file is missing: restore a checkpoint, or run `quarry repair`",
                      database_path, kAnchorFile);
  }
  QUARRY_RETURN_IF_ERROR(CheckPromise(*anchor, head, path, open.logger->dropped()));
  if (!head) return Status::Ok();
  if (!anchor->closed) {
    QUARRY_TRY(const uint64_t synced, SyncedByLogs(path, head->catalog_id));
    if (synced > head->commits) {
      return MakeStatus(
          Code::kCorruption,
          "{}: the log is damaged behind commit {}, and {} were synced{}: restore a checkpoint, "
          "or run `quarry repair`",
          path, head->commits, synced,
          open.logger->dropped().empty() ? ""
                                         : fmt::format(" (RocksDB, opening it: {})", open.logger->dropped()));
    }
  }
  return CheckHead(open, *head, path);
}

}  // namespace quarry
