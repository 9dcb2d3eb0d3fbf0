// Versions of rows as the catalog's entries have them. Private to this room.
#pragma once

#include <rocksdb/iterator.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "catalog_keys.h"
#include "quarry/base/status.h"
#include "quarry/catalog/catalog.h"

namespace quarry {

// To the first entry at `key` or behind it; it was before. Rows that are next to each other are a step or
// two apart, which costs a tenth of a search.
inline void SeekForward(rocksdb::Iterator& entries, const std::string& key) {
  constexpr int kStepsMax = 4;
  for (int step = 0; step < kStepsMax && entries.Valid(); ++step, entries.Next()) {
    if (entries.key().compare(key) >= 0) return;
  }
  if (!entries.Valid() || entries.key().compare(key) < 0) entries.Seek(key);
}

inline bool IsVersionOf(const rocksdb::Slice& key, const std::string& prefix) {
  return key.size() == prefix.size() + kVersionTailBytes && key.starts_with(prefix);
}

inline Result<RowVersion> ToVersion(std::string_view table, size_t prefix_bytes,
                                    const rocksdb::Iterator& entry, const std::string& path) {
  const std::string_view tail = entry.key().ToStringView().substr(prefix_bytes);
  RowVersion version{.table = table,
                     .row = IdFromBytes(tail.substr(0, sizeof(uint64_t))),
                     .timestamp = ~IdFromBytes(tail.substr(sizeof(uint64_t)))};
  const std::string_view value = entry.value().ToStringView();
  if (value.empty() || (value[0] == kDeletedValue) != (value.size() == 1)) {
    return MakeStatus(Code::kCorruption, "{}: the version {} of row {} of table \"{}\" has {} bytes", path,
                      version.timestamp, version.row, table, value.size());
  }
  version.value = std::as_bytes(std::span(value).subspan(1));
  return version;
}

}  // namespace quarry
