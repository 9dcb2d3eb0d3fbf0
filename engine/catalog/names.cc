#include "names.h"

#include <memory>

#include "catalog_keys.h"
#include "ledger.h"

namespace quarry {
namespace {

constexpr size_t kDeleteBytes = 1 << 20;  // of one write

}  // namespace

Result<std::optional<uint64_t>> IdOfName(const OpenDatabase& open, NameKind kind, std::string_view name,
                                         const std::string& path) {
  QUARRY_TRY(const std::optional<std::string> value,
             ReadValue(open, VerifiedRead(), kProperty, NameKey(kind, name), "read a name", path));
  if (!value) return std::optional<uint64_t>();
  if (value->size() != sizeof(uint64_t)) {
    return MakeStatus(Code::kCorruption, "{}: the id of name \"{}\" has {} bytes instead of 8", path, name,
                      value->size());
  }
  return std::optional<uint64_t>(IdFromBytes(*value));
}

void AddNames(NameKind kind, uint64_t first_id, std::span<const std::string> names, PendingWrite& write) {
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string id = IdBytes(first_id + i);
    write.PutEntry(kProperty, NameKey(kind, names[i]), id, kTallyOfNames);
    write.PutEntry(kProperty, IdPrefix(kind) + id, names[i], kTallyOfNames);
  }
}

Status DeleteNames(const OpenDatabase& open, NameKind kind, uint64_t first_id, const std::string& path,
                   PendingWrite& write) {
  const std::string prefix = IdPrefix(kind);
  const std::unique_ptr<rocksdb::Iterator> entries = open.Entries(VerifiedRead(), kProperty);
  for (entries->Seek(prefix + IdBytes(first_id)); entries->Valid() && entries->key().starts_with(prefix);
       entries->Next()) {
    const std::string id = entries->key().ToString(), name = NameKey(kind, entries->value().ToStringView());
    QUARRY_RETURN_IF_ERROR(RemoveEntry(open, path, kProperty, id, 0, kTallyOfNames, write));
    QUARRY_RETURN_IF_ERROR(RemoveEntry(open, path, kProperty, name, 0, kTallyOfNames, write));
    write.Delete(kProperty, id);
    write.Delete(kProperty, name);
    if (write.bytes() >= kDeleteBytes) break;
  }
  return FromRocks(entries->status(), "read names", path);
}

Result<uint64_t> CheckNames(const OpenDatabase& open, NameKind kind, const std::string& path) {
  const std::string prefix = IdPrefix(kind);
  const std::unique_ptr<rocksdb::Iterator> entries = open.Entries(VerifiedRead(), kProperty);
  uint64_t count = 0;
  for (entries->Seek(prefix); entries->Valid() && entries->key().starts_with(prefix);
       entries->Next(), ++count) {
    const uint64_t id = IdFromBytes(entries->key().ToStringView().substr(prefix.size()));
    if (id != count) return MakeStatus(Code::kCorruption, "{}: the name of id {} is missing", path, count);
    const std::string_view name = entries->value().ToStringView();
    QUARRY_TRY(const std::optional<uint64_t> back, IdOfName(open, kind, name, path));
    if (back != id) {
      return MakeStatus(Code::kCorruption, "{}: id {} has the name \"{}\", which leads to {}", path, id, name,
                        back ? fmt::format("id {}", *back) : "no id");
    }
  }
  QUARRY_RETURN_IF_ERROR(FromRocks(entries->status(), "read names", path));
  return count;
}

}  // namespace quarry
