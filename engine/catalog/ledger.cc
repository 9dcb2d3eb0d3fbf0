#include "ledger.h"

#include <algorithm>
#include <functional>
#include <span>

#include "anchor.h"
#include "catalog_keys.h"
#include "quarry/base/random.h"
#include "quarry/format/checksum.h"

namespace quarry {
namespace {

// Little-endian, as all of the format.
void AppendWord(std::string& bytes, uint64_t word) {
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(word >> (8 * i)));
}
uint64_t WordAt(std::string_view bytes, size_t index) {
  uint64_t word = 0;
  for (size_t i = 0; i < 8; ++i) {
    word |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[8 * index + i])) << (8 * i);
  }
  return word;
}

constexpr size_t kOldHeadWords = 6 + kFamilyCount;  // without what was folded
constexpr size_t kHeadWords = kOldHeadWords + 1;
constexpr size_t kHeadBytes = kHeadWords * sizeof(uint64_t);
constexpr std::string_view kRowsSection = "rows/";

// Calls `visit` for every step there is, in the order of slots.
Status ForEachStep(const OpenDatabase& open, const rocksdb::ReadOptions& options, const std::string& path,
                   const std::function<Status(LedgerStep)>& visit) {
  const std::unique_ptr<rocksdb::Iterator> records = open.Entries(options, kSchema);
  for (records->Seek(ToSlice(kCommitKey));
       records->Valid() && records->key().starts_with(ToSlice(kCommitKey)); records->Next()) {
    const std::string_view value = records->value().ToStringView();
    std::optional<LedgerStep> step = DecodeStep(value);
    if (!step) {
      return MakeStatus(Code::kCorruption,
                        "{}: a record of a commit in the ledger cannot be read: it has {} bytes", path,
                        value.size());
    }
    QUARRY_RETURN_IF_ERROR(visit(*std::move(step)));
  }
  return FromRocks(records->status(), "read the ledger", path);
}

void AddTo(Tally& tally, const Tally& difference) {
  tally.entries += difference.entries;
  tally.hashes += difference.hashes;
}

}  // namespace

std::string StepKey(uint64_t commit) {
  const uint64_t slot = commit % kSteps;
  std::string key(kCommitKey);
  key.push_back(static_cast<char>(slot >> 8));
  key.push_back(static_cast<char>(slot));
  return key;
}

std::string EncodeStep(const LedgerHead& head, const Tallies& changes) {
  std::string bytes;
  bytes.reserve(kHeadBytes + changes.size() * 64);
  for (const uint64_t word :
       {head.catalog_id, head.commits, head.timestamp, head.entries, head.hashes, head.manifest_digest}) {
    AppendWord(bytes, word);
  }
  for (const uint64_t mark : head.marks) AppendWord(bytes, mark);
  AppendWord(bytes, head.folded);
  for (const auto& [key, difference] : changes) {
    AppendWord(bytes, key.size());
    bytes.append(key);
    AppendWord(bytes, difference.entries);
    AppendWord(bytes, difference.hashes);
  }
  return bytes;
}

std::optional<LedgerStep> DecodeStep(std::string_view bytes) {
  constexpr size_t kOldHeadBytes = kOldHeadWords * sizeof(uint64_t);
  if (bytes.size() != kOldHeadBytes && bytes.size() < kHeadBytes) return std::nullopt;
  LedgerStep step{.head = {.catalog_id = WordAt(bytes, 0),
                           .commits = WordAt(bytes, 1),
                           .timestamp = WordAt(bytes, 2),
                           .entries = WordAt(bytes, 3),
                           .hashes = WordAt(bytes, 4),
                           .manifest_digest = WordAt(bytes, 5)}};
  for (size_t i = 0; i < kFamilyCount; ++i) step.head.marks[i] = WordAt(bytes, 6 + i);
  if (bytes.size() == kOldHeadBytes) {
    step.head.folded = step.head.commits;
    return step;
  }
  step.head.folded = WordAt(bytes, kOldHeadWords);
  bytes.remove_prefix(kHeadBytes);
  while (!bytes.empty()) {
    if (bytes.size() < sizeof(uint64_t)) return std::nullopt;
    const uint64_t key_bytes = WordAt(bytes, 0);
    bytes.remove_prefix(sizeof(uint64_t));
    if (bytes.size() < 2 * sizeof(uint64_t) || key_bytes > bytes.size() - 2 * sizeof(uint64_t))
      return std::nullopt;
    Tally& change = step.changes[std::string(bytes.substr(0, key_bytes))];
    bytes.remove_prefix(key_bytes);
    change = {.entries = WordAt(bytes, 0), .hashes = WordAt(bytes, 1)};
    bytes.remove_prefix(2 * sizeof(uint64_t));
  }
  return step;
}

std::string EncodeMark(uint64_t commits) {
  std::string bytes;
  AppendWord(bytes, commits);
  return bytes;
}

std::optional<uint64_t> DecodeMark(std::string_view bytes) {
  if (bytes.size() != sizeof(uint64_t)) return std::nullopt;
  return WordAt(bytes, 0);
}

std::string EncodeTally(const Tally& tally) {
  std::string bytes;
  AppendWord(bytes, tally.entries);
  AppendWord(bytes, tally.hashes);
  return bytes;
}

std::string TallyPrefixOfTable(std::string_view table) {
  std::string key(kRowsSection);
  key.append(table);
  key.push_back('\0');
  return key;
}

std::string TallyOfRows(std::string_view table, uint64_t row) {
  return TallyPrefixOfTable(table).append(IdBytes(row / kRowsPerTally));
}

std::optional<TallyRange> RangeOfTally(std::string_view key) {
  if (!key.starts_with(kRowsSection) || key.size() < kRowsSection.size() + 1 + sizeof(uint64_t)) {
    return std::nullopt;
  }
  key.remove_prefix(kRowsSection.size());
  const uint64_t range = IdFromBytes(key.substr(key.size() - sizeof(uint64_t)));
  key.remove_suffix(sizeof(uint64_t) + 1);
  return TallyRange{std::string(key), range * kRowsPerTally};
}

uint64_t EntryHash(std::string_view key, std::string_view value) {
  return MixSeed(Checksum64(std::as_bytes(std::span(key))), Checksum64(std::as_bytes(std::span(value))));
}

void LedgerChange::Add(const std::string& tally, uint64_t hash) {
  Tally& change = changes_[tally];
  ++change.entries;
  change.hashes += hash;
}

void LedgerChange::Remove(const std::string& tally, uint64_t hash) {
  Tally& change = changes_[tally];
  --change.entries;
  change.hashes -= hash;
}

void LedgerChange::Empty(const Tally& all, const std::string& tally) {
  Tally& change = changes_[tally];
  change.entries -= all.entries;
  change.hashes -= all.hashes;
}

Result<Tallies> Recount(const OpenDatabase& open, const rocksdb::ReadOptions& options,
                        const std::string& path) {
  Tallies counted;
  const auto count = [&](Family family, std::string_view prefix, size_t skipped,
                         const auto& tally_of) -> Status {
    const std::unique_ptr<rocksdb::Iterator> entries = open.Entries(options, family);
    for (entries->Seek(ToSlice(prefix)); entries->Valid() && entries->key().starts_with(ToSlice(prefix));
         entries->Next()) {
      const std::string_view key = entries->key().ToStringView();
      if (key == kCommitKey) continue;
      Tally& tally = counted[tally_of(key)];
      ++tally.entries;
      const std::string_view value = entries->value().ToStringView();
      tally.hashes += EntryHash(key, value.substr(std::min(skipped, value.size())));
    }
    return FromRocks(entries->status(), "recount its entries", path);
  };
  QUARRY_RETURN_IF_ERROR(count(kDelta, "", kVersionKindBytes, [](std::string_view key) {
    if (key.size() <= kVersionTailBytes)
      return TallyOfRows("", 0);  // a key of no table: counted nowhere else
    const std::string_view table = key.substr(0, key.size() - kVersionTailBytes - 1);
    return TallyOfRows(table, IdFromBytes(key.substr(table.size() + 1, sizeof(uint64_t))));
  }));
  QUARRY_RETURN_IF_ERROR(count(kProperty, "", 0, [](std::string_view) { return kTallyOfNames; }));
  QUARRY_RETURN_IF_ERROR(count(kSchema, kFoldedSection, 0, [](std::string_view) { return kTallyOfFolded; }));
  return counted;
}

Result<KeptTallies> ReadTallies(const OpenDatabase& open, const rocksdb::ReadOptions& options,
                                const std::string& path) {
  KeptTallies kept;
  const std::unique_ptr<rocksdb::Iterator> entries = open.Entries(options, kSchema);
  for (entries->Seek(ToSlice(kTallyPrefix));
       entries->Valid() && entries->key().starts_with(ToSlice(kTallyPrefix)); entries->Next()) {
    const std::string_view key = entries->key().ToStringView().substr(kTallyPrefix.size());
    const std::string_view value = entries->value().ToStringView();
    if (value.size() != 2 * sizeof(uint64_t)) {
      return MakeStatus(Code::kCorruption, "{}: a tally of the ledger has {} bytes instead of 16", path,
                        value.size());
    }
    kept.tallies.emplace(key, Tally{WordAt(value, 0), WordAt(value, 1)});
  }
  QUARRY_RETURN_IF_ERROR(FromRocks(entries->status(), "read the ledger", path));
  QUARRY_TRY(const std::optional<LedgerHead> head, ReadHead(open, options, path));
  if (!head) return kept;
  QUARRY_RETURN_IF_ERROR(ForEachStep(open, options, path, [&](const LedgerStep& step) {
    if (step.head.commits <= head->folded) return Status::Ok();
    for (const auto& [key, difference] : step.changes) {
      AddTo(kept.tallies[key], difference);
      kept.unfolded.push_back(key);
    }
    return Status::Ok();
  }));
  return kept;
}

Result<std::optional<LedgerHead>> ReadHead(const OpenDatabase& open, const rocksdb::ReadOptions& options,
                                           const std::string& path) {
  std::optional<LedgerHead> newest;
  QUARRY_RETURN_IF_ERROR(ForEachStep(open, options, path, [&](const LedgerStep& step) {
    if (!newest || step.head.commits > newest->commits) newest = step.head;
    return Status::Ok();
  }));
  return newest;
}

Result<uint64_t> ReadManifestDigest(const OpenDatabase& open, const std::string& path) {
  QUARRY_TRY(const std::optional<std::string> manifest,
             ReadValue(open, VerifiedRead(), kManifest, kManifestKey, "read the ledger", path));
  return manifest ? Checksum64(std::as_bytes(std::span(*manifest))) : 0;
}

Status CheckHead(const OpenDatabase& open, const LedgerHead& head, const std::string& path) {
  for (const Family family : {kManifest, kDelta, kProperty}) {
    QUARRY_TRY(const std::optional<std::string> value,
               ReadValue(open, VerifiedRead(), family, kCommitKey, "read the ledger", path));
    const std::optional<uint64_t> mark = value ? DecodeMark(*value) : 0;
    if (mark == head.marks[family]) continue;
    return MakeStatus(
        Code::kCorruption,
        "{}: the family \"{}\" ends with commit {} where the ledger says {}: commits are missing; "
        "restore a checkpoint, or run `quarry repair`",
        path, kFamilyNames[family], mark.value_or(0), head.marks[family]);
  }
  std::vector<bool> there(head.commits - std::min(head.folded, head.commits));
  if (there.size() > kSteps) {
    return MakeStatus(Code::kCorruption, "{}: the ledger ends with commit {} and was folded by commit {}: {}",
                      path, head.commits, head.folded, kRemedy);
  }
  QUARRY_RETURN_IF_ERROR(ForEachStep(open, VerifiedRead(), path, [&](const LedgerStep& step) {
    const uint64_t at = step.head.commits - head.folded - 1;  // of a commit before: behind all others
    if (at < there.size() && step.head.catalog_id == head.catalog_id) there[at] = true;
    return Status::Ok();
  }));
  if (const auto missing = std::ranges::find(there, false); missing != there.end()) {
    return MakeStatus(Code::kCorruption, "{}: what commit {} of {} added to the ledger is missing: {}", path,
                      head.folded + 1 + static_cast<uint64_t>(missing - there.begin()), head.commits,
                      kRemedy);
  }
  QUARRY_TRY(const uint64_t digest, ReadManifestDigest(open, path));
  if (digest == head.manifest_digest) return Status::Ok();
  return MakeStatus(Code::kCorruption,
                    "{}: the manifest is not the one of the last commit: restore a checkpoint, or run "
                    "`quarry repair`",
                    path);
}

}  // namespace quarry
