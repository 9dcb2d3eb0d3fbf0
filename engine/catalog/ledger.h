// Ledger: what a catalog must hold, counted and hashed with every commit, so that whatever gets lost shows.
//
//   step    one record in `schema` for every commit, in kSteps slots that are used in turn: the head, which is how many
//           commits there were, the newest timestamp, the sum of all entries' hashes, the digest of the manifest, and
//           for each family the last commit that wrote to it; and what the commit added to tallies
//   mark    one record in every other family: the last commit that wrote to it
//   tally   records in `schema`, for each table and range of rows: its versions and the sum of their hashes;
//           also for names, and for what compactions folded. They are as of the last commit that folded the steps
//           before it into them, since one record for each range of rows would double what a small commit writes
//
// All of them are part of the commit's own write, so any prefix of the log agrees with itself. RocksDB may
// lose the end of its log or of its MANIFEST and call the rest whole: then the head is older than the anchor
// promises (anchor.h), or a mark is older than the head says. Recounting finds whatever else is missing. Sums
// of hashes, because they can be maintained when entries are dropped; a chain of hashes could not.
//
// Private to this room.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "rocks.h"

namespace quarry {

// The key of the marks, and the beginning of those of steps: of no table, since no table's name is empty. In version
// 2 it was the key of the head in `schema`, too: a step that added nothing.
inline constexpr std::string_view kCommitKey{"\0commit", 7};
inline constexpr uint64_t kSteps = 1024;
// Changes of tallies that steps hold together; a commit that passes them folds. A bound of what opening reads.
inline constexpr uint64_t kStepChangesMax = 4096;
inline constexpr std::string_view kTallyPrefix = "ledger/";
// Rows that share a tally: so exactly a repair can say which rows may be old.
inline constexpr uint64_t kRowsPerTally = uint64_t{1} << 14;

struct LedgerHead {
  uint64_t catalog_id = 0;
  uint64_t commits = 0;
  uint64_t timestamp = 0;  // the newest
  uint64_t entries = 0;
  uint64_t hashes = 0;  // the sum over all entries, modulo 2^64
  uint64_t manifest_digest = 0;
  std::array<uint64_t, kFamilyCount> marks{};
  uint64_t folded = 0;  // the last commit that the tallies' records have
  bool operator==(const LedgerHead&) const = default;
};
std::string EncodeMark(uint64_t commits);
std::optional<uint64_t> DecodeMark(std::string_view bytes);

struct Tally {
  uint64_t entries = 0;
  uint64_t hashes = 0;
  bool operator==(const Tally&) const = default;
  bool empty() const { return entries == 0 && hashes == 0; }
};
std::string EncodeTally(const Tally& tally);

// Keys of tallies, without kTallyPrefix.
std::string TallyOfRows(std::string_view table, uint64_t row);
std::string TallyPrefixOfTable(std::string_view table);
inline const std::string kTallyOfNames = "names";
inline const std::string kTallyOfFolded = "folded";
// The table and its first row; nothing for the tallies that are of no table.
struct TallyRange {
  std::string table;
  uint64_t first_row = 0;
};
std::optional<TallyRange> RangeOfTally(std::string_view key);

using Tallies = std::map<std::string, Tally, std::less<>>;

struct LedgerStep {
  LedgerHead head;
  Tallies changes;  // differences, modulo 2^64; none for a commit that folded
};
inline constexpr size_t kStepKeyBytes = kCommitKey.size() + 2;
std::string StepKey(uint64_t commit);
std::string EncodeStep(const LedgerHead& head, const Tallies& changes);
std::optional<LedgerStep> DecodeStep(std::string_view bytes);

// The hash of an entry: of its key and its value; for a version, its row without the byte that says what it
// is.
uint64_t EntryHash(std::string_view key, std::string_view value);

// What one commit does to the ledger.
class LedgerChange {
 public:
  void Add(const std::string& tally, uint64_t hash);
  void Remove(const std::string& tally, uint64_t hash);
  void Empty(const Tally& all, const std::string& tally);                        // takes `all` of it away
  void Set(const std::string& tally, const Tally& to) { changes_[tally] = to; }  // `tally` is empty before
  const Tallies& changes() const { return changes_; }

 private:
  Tallies changes_;  // differences, modulo 2^64
};

// What the catalog's entries amount to, by reading all of them.
Result<Tallies> Recount(const OpenDatabase& open, const rocksdb::ReadOptions& options,
                        const std::string& path);
// What its records say, with the steps that came since.
struct KeptTallies {
  Tallies tallies;                    // a tally that became empty since is here, too
  std::vector<std::string> unfolded;  // those that steps have changed; one may come several times
};
Result<KeptTallies> ReadTallies(const OpenDatabase& open, const rocksdb::ReadOptions& options,
                                const std::string& path);
// Nothing when the catalog has none: it was made before there were ledgers, or has had no commit yet.
Result<std::optional<LedgerHead>> ReadHead(const OpenDatabase& open, const rocksdb::ReadOptions& options,
                                           const std::string& path);
// kCorruption when a family is older than the head says, the manifest another, or a step is missing.
Status CheckHead(const OpenDatabase& open, const LedgerHead& head, const std::string& path);
Result<uint64_t> ReadManifestDigest(const OpenDatabase& open, const std::string& path);

}  // namespace quarry
