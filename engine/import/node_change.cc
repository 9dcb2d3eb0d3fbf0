#include "node_change.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "quarry/base/log.h"
#include "quarry/storage/node_properties.h"

namespace quarry {
namespace {

constexpr std::string_view kLabelTable = "label";

}  // namespace

NodeChange::~NodeChange() {
  if (named_ == 0 || committing_) return;  // a commit that failed may have happened
  if (const Status dropped = store_.DropNames(); !dropped.ok()) {
    LogInfo("{}: names that were not committed stay: {}", store_.path(), dropped.message());
  }
}

Status NodeChange::Begin() {
  if (rows_ != nullptr) return Status::Ok();
  QUARRY_TRY(rows_, store_.BeginGrowth(added(), node_type_));
  return Status::Ok();
}

Status NodeChange::Put(const WriteBatch& rows) {
  if (rows.empty()) return Status::Ok();
  QUARRY_RETURN_IF_ERROR(Begin());
  QUARRY_RETURN_IF_ERROR(rows_->Add(rows));
  for (const WriteBatch::Entry& entry : rows.entries()) {
    if (rows.tables()[entry.table] != kLabelTable) continue;
    int64_t label = 0;
    std::memcpy(&label, rows.value(entry).data(), sizeof(label));
    label_max_ = std::max(label_max_, label);
    if (entry.row < first_) continue;
    added_label_max_ = std::max(added_label_max_, label);
    labeled_.add(static_cast<uint32_t>(entry.row));
  }
  return Status::Ok();
}

Status NodeChange::Name(std::span<const std::string> names) {
  if (!after_.has_entity_names) {
    return MakeStatus(Code::kUnsupported, "{}: its nodes are numbers and have no names", store_.path());
  }
  if (names.size() > added() - named_) {
    return MakeStatus(Code::kInvalidArgument, "{} names or more for {} nodes", named_ + names.size(),
                      added());
  }
  std::unordered_set<std::string_view> together;
  for (const std::string& name : names) {
    QUARRY_TRY(const std::optional<uint64_t> id, store_.catalog()->IdOfName(NameKind::kEntity, name));
    const bool twice = !together.insert(name).second;
    if (!id && !twice && !name.empty()) continue;
    return MakeStatus(Code::kInvalidArgument, "the name \"{}\" of node {} {}", name,
                      first_ + named_ + static_cast<size_t>(&name - names.data()),
                      name.empty()             ? "is empty"
                      : twice || *id >= first_ ? "comes twice"
                                               : fmt::format("is that of node {}", *id));
  }
  const uint64_t next = first_ + named_;
  named_ += names.size();
  QUARRY_RETURN_IF_ERROR(store_.PutNames(next, names));
  return Status::Ok();
}

Status NodeChange::Complete(Store::GraphCommit& commit) {
  if (after_.has_entity_names && named_ < added()) {
    return MakeStatus(Code::kInvalidArgument, "{}: its nodes have names: {} of the {} added ones have none",
                      store_.path(), added() - named_, added());
  }
  if (added() > 0 && after_.FindTable(kLabelTable) != nullptr) {
    constexpr uint64_t kLabelsAtATime = 64 << 10;
    WriteBatch missing;
    for (uint64_t node = first_; node < after_.node_count; ++node) {
      if (!labeled_.contains(static_cast<uint32_t>(node))) missing.SetLabel(static_cast<NodeId>(node), -1);
      if (missing.entries().size() < kLabelsAtATime && node + 1 < after_.node_count) continue;
      if (missing.empty()) continue;
      QUARRY_RETURN_IF_ERROR(Begin());
      QUARRY_RETURN_IF_ERROR(rows_->Add(missing));
      missing.Clear();
    }
  }
  commit.first_node = first_;
  commit.node_count = added();
  commit.node_type = node_type_;
  commit.class_count = static_cast<uint64_t>(label_max_ + 1);
  commit.added_class_count = static_cast<uint64_t>(added_label_max_ + 1);
  commit.rows = rows_.get();
  committing_ = true;
  return Status::Ok();
}

}  // namespace quarry
