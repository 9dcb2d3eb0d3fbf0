#include "pending_write.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace quarry {

Status RemoveEntry(const OpenDatabase& open, const std::string& path, Family family, const std::string& key,
                   size_t skipped, const std::string& tally, PendingWrite& write) {
  QUARRY_TRY(const std::optional<std::string> value,
             ReadValue(open, VerifiedRead(), family, key, "read what is replaced", path));
  if (value) {
    const std::string_view counted = std::string_view(*value).substr(std::min(skipped, value->size()));
    write.change().Remove(tally, EntryHash(key, counted));
  }
  return Status::Ok();
}

uint64_t AddVersions(std::span<const RowVersion> versions, PendingWrite& write) {
  const auto place = [](const RowVersion& version) {
    return std::tuple(version.timestamp, version.table, version.row);
  };
  bool ascending = true;
  for (size_t i = 1; ascending && i < versions.size(); ++i) {
    ascending = place(versions[i - 1]) < place(versions[i]);
  }
  std::unordered_map<std::string, uint64_t> hashes;  // where a row may come twice
  uint64_t newest = 0;
  for (const RowVersion& version : versions) {
    const std::string key = KeyOf(version);
    const std::string tally = TallyOfRows(version.table, version.row);
    const std::string_view row{reinterpret_cast<const char*>(version.value.data()), version.value.size()};
    write.PutVersion(key, version.deleted() ? kDeletedValue : kRowValue, row, tally);
    newest = std::max(newest, version.timestamp);
    if (ascending) continue;
    const auto [before, first] = hashes.try_emplace(key, 0);
    if (!first) write.change().Remove(tally, before->second);
    before->second = EntryHash(key, row);
  }
  return newest;
}

}  // namespace quarry
