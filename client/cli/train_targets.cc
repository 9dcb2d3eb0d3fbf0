#include "train_targets.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "quarry/base/units.h"
#include "quarry/format/element_type.h"
#include "quarry/storage/times.h"

namespace quarry::cli {
namespace {

// A lag counts rows or, where nodes are places at several times, times.
uint64_t LagRows(const Manifest& manifest, uint64_t lag) {
  const Times times = TimesOf(manifest, RoadSpec().topology);
  if (!times.any()) return lag;
  return std::min(lag, times.count) * times.places;  // so many times on, there is nothing in any case
}

template <typename Integer>
void DecodeIntegers(std::span<const std::byte> row, bool labels, std::span<float> out) {
  for (size_t i = 0; i < out.size(); i++) {
    Integer value;
    std::memcpy(&value, row.data() + i * sizeof(Integer), sizeof(Integer));
    const bool none = labels && std::cmp_less(value, 0);
    out[i] = none ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(value);
  }
}

class StoreTargets final : public TargetRows {
 public:
  StoreTargets(client::Store& store, std::unique_ptr<client::Snapshot> snapshot, const TableRecord& table,
               uint64_t lag_rows, uint32_t ids_max)
      : store_(store), snapshot_(std::move(snapshot)), table_(table), lag_(lag_rows), ids_max_(ids_max) {}

  uint32_t dim() const override { return static_cast<uint32_t>(table_.dim); }

  Status Read(std::span<const NodeId> nodes, std::span<float> rows) override {
    return ReadBehind(lag_, nodes, rows);
  }

  Result<bool> ReadPresent(std::span<const NodeId> nodes, std::span<float> rows) override {
    if (lag_ == 0) return false;
    QUARRY_RETURN_IF_ERROR(ReadBehind(0, nodes, rows));
    return true;
  }

  std::string Place(NodeId node) const override {
    return fmt::format("table \"{}\", row {}", table_.name, node + lag_);
  }

 private:
  Status ReadBehind(uint64_t lag, std::span<const NodeId> nodes, std::span<float> rows) {
    for (size_t first = 0; first < nodes.size(); first += ids_max_) {
      const auto some = nodes.subspan(first, std::min<size_t>(ids_max_, nodes.size() - first));
      QUARRY_RETURN_IF_ERROR(ReadSome(lag, some, rows.subspan(first * dim(), some.size() * dim())));
    }
    return Status::Ok();
  }

  Status ReadSome(uint64_t lag, std::span<const NodeId> nodes, std::span<float> out) {
    std::vector<NodeId> ids;
    ids.reserve(nodes.size());
    for (const NodeId node : nodes) {
      if (node + lag >= table_.row_count) {
        return MakeStatus(
            Code::kInvalidArgument,
            "node {} has no target: it would be row {} of table \"{}\", which has {}: leave the "
            "node out of the splits",
            node, node + lag, table_.name, table_.row_count);
      }
      ids.push_back(static_cast<NodeId>(node + lag));
    }
    QUARRY_TRY(const std::unique_ptr<client::Rows> rows,
               store_.Lookup({.table = table_.name, .ids = std::move(ids), .snapshot = snapshot_->id()}));
    const uint64_t row_bytes = RowBytes(table_.element_type, table_.dim);
    if (rows->element_type() != table_.element_type || rows->bytes().size() != nodes.size() * row_bytes) {
      return MakeStatus(Code::kCorruption, "{} rows of table \"{}\" are {} bytes of {}, not {} of {}",
                        nodes.size(), table_.name, rows->bytes().size(),
                        ElementTypeName(rows->element_type()), nodes.size() * row_bytes,
                        ElementTypeName(table_.element_type));
    }
    for (size_t i = 0; i < nodes.size(); i++) {
      Decode(rows->bytes().subspan(i * row_bytes, row_bytes), out.subspan(i * dim(), dim()));
    }
    return Status::Ok();
  }

  void Decode(std::span<const std::byte> row, std::span<float> out) const {
    const bool labels = table_.name == "label";
    switch (table_.element_type) {
      case ElementType::kUint8:
        return DecodeIntegers<uint8_t>(row, labels, out);
      case ElementType::kInt32:
        return DecodeIntegers<int32_t>(row, labels, out);
      case ElementType::kInt64:
        return DecodeIntegers<int64_t>(row, labels, out);
      default:
        return DecodeRow(table_.element_type, row, out);
    }
  }

  client::Store& store_;
  const std::unique_ptr<client::Snapshot> snapshot_;
  const TableRecord table_;
  const uint64_t lag_;  // rows
  const uint32_t ids_max_;
};

}  // namespace

Result<TargetName> ParseTarget(const std::string& text) {
  constexpr std::string_view kLag = "@+";
  const size_t at = text.find(kLag);
  TargetName name{.table = text.substr(0, at)};
  if (at == std::string::npos) return name;
  const std::string_view number = std::string_view(text).substr(at + kLag.size());
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), name.lag);
  if (!name.table.empty() && error == std::errc() && end == number.data() + number.size()) return name;
  return MakeStatus(
      Code::kUsage,
      "--target '{}' is neither a table nor TABLE@+LAG, with a number of rows, or of times, such "
      "as feature@+100",
      text);
}

Status CheckTarget(NodeTask task, const std::string& target) {
  if (task == NodeTask::kClasses) {
    if (target.empty()) return Status::Ok();
    return Status(Code::kUsage, "--target is of --task regress and multilabel, and this is --task node");
  }
  if (target.empty()) {
    return MakeStatus(Code::kUsage, "--task {} learns the rows of a table: name it, as --target target",
                      quarry::NameOf(task));
  }
  return ParseTarget(target).status();
}

Result<std::shared_ptr<TargetRows>> OpenTargets(client::Store& store, const Manifest& manifest,
                                                const std::string& target) {
  QUARRY_TRY(const TargetName name, ParseTarget(target));
  const TableRecord* const table = manifest.FindTable(name.table);
  if (table == nullptr) {
    std::string names;
    for (const TableRecord& other : manifest.tables) names += (names.empty() ? "" : ", ") + other.name;
    return MakeStatus(Code::kNotFound, "there is no table \"{}\" of targets; there are {}", name.table,
                      names.empty() ? "none" : names);
  }
  QUARRY_TRY(const wire::Description description, store.Describe());
  QUARRY_TRY(std::unique_ptr<client::Snapshot> snapshot, store.TakeSnapshot());
  const uint64_t lag_rows = LagRows(manifest, name.lag);
  auto targets = std::make_shared<StoreTargets>(store, std::move(snapshot), *table, lag_rows,
                                                std::max(1U, description.limits.ids_max));
  // What stays open for a table's rows is opened here, before a road divides the memory that is left.
  if (table->row_count > lag_rows) {
    std::vector<float> row(table->dim);
    const NodeId first = 0;
    QUARRY_RETURN_IF_ERROR(targets->Read({&first, 1}, row));
  }
  return std::shared_ptr<TargetRows>(std::move(targets));
}

double TargetErrors::Rmse() const { return std::sqrt(squares / static_cast<double>(count)); }

Status TargetErrors::Add(TargetRows& targets, std::span<const NodeId> nodes, std::span<const float> rows) {
  std::vector<float> truths(rows.size());
  const Status read = targets.Read(nodes, truths);
  if (read.code() == Code::kInvalidArgument) return Status::Ok();
  QUARRY_RETURN_IF_ERROR(read);
  for (size_t i = 0; i < rows.size(); i++) {
    if (std::isnan(truths[i])) continue;
    const double error = double{rows[i]} - double{truths[i]};
    squares += error * error;
    count++;
  }
  return Status::Ok();
}

uint64_t TargetRoom(const Manifest& manifest, const std::string& target, uint32_t batch_size) {
  constexpr uint64_t kReadAtOnce = 4096;  // rows that are read where all training nodes' are
  const Result<TargetName> name = ParseTarget(target);
  const TableRecord* const table = name.ok() ? manifest.FindTable(name->table) : nullptr;
  if (table == nullptr) return 0;
  return std::max<uint64_t>(kReadAtOnce, batch_size) * RowBytes(table->element_type, table->dim);
}

}  // namespace quarry::cli
