// The keys of the catalog's entries (docs/format.md "The catalog"). Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "quarry/catalog/catalog.h"

namespace quarry {

inline constexpr std::string_view kManifestKey = "manifest";
// Keys of `schema`: the largest timestamp ever committed, where there is no ledger whose head has it, and
// that of the versions that are written ahead of their commit, when there are any.
inline constexpr std::string_view kTimestampKey = "timestamp";
inline constexpr std::string_view kStagedKey = "staged";
// Prefix of records of `schema` about rows that a repair could not prove to be the newest: the table, a zero
// byte and the first row; the value is how many there are.
inline constexpr std::string_view kDoubtPrefix = "doubt/";

// Keys of `property`: kind, direction, then the name or the id (big-endian, so that ids come in order).
inline std::string NameKey(NameKind kind, std::string_view name) {
  std::string key(kind == NameKind::kEntity ? "en" : "rn");
  return key.append(name);
}
inline std::string IdBytes(uint64_t id) {
  std::string bytes(sizeof(id), '\0');
  for (size_t i = 0; i < sizeof(id); ++i) bytes[i] = static_cast<char>(id >> (56 - 8 * i));
  return bytes;
}
inline uint64_t IdFromBytes(std::string_view bytes) {
  uint64_t id = 0;
  for (const char c : bytes) id = id << 8 | static_cast<unsigned char>(c);
  return id;
}
// Keys of `delta`: table, a zero byte, row, and the complement of the timestamp, so that versions come by row
// and the newest first. Table names hold no zero byte.
inline constexpr size_t kVersionTailBytes = 2 * sizeof(uint64_t);
inline std::string VersionKey(std::string_view table, uint64_t row, uint64_t timestamp) {
  std::string key(table);
  key.push_back('\0');
  return key.append(IdBytes(row)).append(IdBytes(~timestamp));
}
inline std::string TablePrefix(std::string_view table) {
  std::string prefix(table);
  prefix.push_back('\0');
  return prefix;
}

// The timestamp in a key of `delta`; 0 for what is not one.
inline uint64_t TimestampOfKey(std::string_view key) {
  if (key.size() < kVersionTailBytes) return 0;
  return ~IdFromBytes(key.substr(key.size() - sizeof(uint64_t)));
}

// Keys of `schema` for what a compaction folded: the generation, and since when the rows have changed.
inline constexpr std::string_view kFoldedSection = "folded/";
inline std::string FoldedPrefix(std::string_view table) {
  return std::string(kFoldedSection).append(table).append("/");
}
inline std::string FoldedPrefix(std::string_view table, uint64_t generation) {
  return FoldedPrefix(table).append(IdBytes(generation));
}
inline std::string FoldedKey(std::string_view table, uint64_t generation, uint64_t timestamp) {
  return FoldedPrefix(table, generation).append(IdBytes(timestamp));
}

// Values of `delta`: a byte that says what follows, and the row.
inline constexpr size_t kVersionKindBytes = 1;
inline constexpr char kRowValue = 1;
inline constexpr char kDeletedValue = 0;

inline std::string IdPrefix(NameKind kind) { return kind == NameKind::kEntity ? "ei" : "ri"; }

}  // namespace quarry
