#include "quarry/storage/put.h"

#include <algorithm>
#include <vector>

#include "quarry/base/units.h"
#include "row_converter.h"

namespace quarry {
namespace {

constexpr size_t kReadInts = 64 << 10;
constexpr uint64_t kReadBytes = 4 * kMiB;

Result<std::vector<uint64_t>> ReadIds(IntReader& ids, uint64_t row_count) {
  std::vector<uint64_t> all;
  std::vector<bool> seen(row_count);
  std::vector<int64_t> piece(kReadInts);
  for (;;) {
    QUARRY_TRY(const size_t count, ids.Read(piece));
    if (count == 0) return all;
    for (const int64_t id : std::span(piece).first(count)) {
      const auto refuse = [&](std::string_view why) {
        return MakeStatus(Code::kInvalidArgument, "{}: node id {} {}", ids.Position(all.size()), id, why);
      };
      if (id < 0 || static_cast<uint64_t>(id) >= row_count) {
        return refuse(fmt::format("is out of range; there are {} nodes", row_count));
      }
      const auto row = static_cast<uint64_t>(id);
      if (seen[row]) return refuse("occurs twice");
      seen[row] = true;
      all.push_back(row);
    }
  }
}

Status CheckMemory(const WriteBatch& batch, const PutOptions& options) {
  if (batch.memory_bytes() <= options.memory_bytes) return Status::Ok();
  return MakeStatus(Code::kOutOfBudget,
                    "--memory {} cannot hold the rows of one commit: put them in several, or raise it",
                    FormatBytes(options.memory_bytes));
}

Status AddFeatures(const TableRecord& table, const std::vector<uint64_t>& ids, RowReader& rows,
                   const PutOptions& options, WriteBatch& batch) {
  if (rows.dim() != table.dim) {
    return MakeStatus(Code::kInvalidArgument, "{}: {} columns, table \"{}\" has {}", rows.Position(0),
                      rows.dim(), table.name, table.dim);
  }
  if (rows.row_count() != ids.size()) {
    return MakeStatus(Code::kInvalidArgument, "{}: {} rows for {} ids", rows.Position(0), rows.row_count(),
                      ids.size());
  }
  const uint64_t from_bytes = RowBytes(rows.element_type(), rows.dim());
  const uint64_t row_bytes = RowBytes(table.element_type, table.dim);
  RowConverter converter(rows, table.element_type, options.allow_nan);
  std::vector<std::byte> piece(std::max<uint64_t>(1, kReadBytes / from_bytes) * from_bytes);
  for (uint64_t done = 0;;) {
    QUARRY_TRY(const size_t count, rows.Read(piece));
    if (count == 0) return Status::Ok();
    QUARRY_TRY(const auto converted, converter.Convert(std::span(piece).first(count * from_bytes), done));
    for (size_t i = 0; i < count; ++i) {
      batch.Put(table.name, ids[done + i], converted.subspan(i * row_bytes, row_bytes));
    }
    done += count;
    QUARRY_RETURN_IF_ERROR(CheckMemory(batch, options));
    if (options.progress) {
      QUARRY_RETURN_IF_ERROR(options.progress("reading", done, ids.size()));
    }
  }
}

Status AddLabels(const std::vector<uint64_t>& ids, IntReader& labels, WriteBatch& batch) {
  std::vector<int64_t> piece(kReadInts);
  for (uint64_t done = 0;;) {
    QUARRY_TRY(const size_t count, labels.Read(piece));
    for (size_t i = 0; i < count; ++i) {
      if (done + i >= ids.size()) break;
      if (piece[i] < -1 || piece[i] >= kLabelMax) {
        return MakeStatus(Code::kInvalidArgument, "{}: the label is {}; labels are 0 to {}, or -1 for none",
                          labels.Position(done + i), piece[i], kLabelMax - 1);
      }
      batch.SetLabel(static_cast<NodeId>(ids[done + i]), piece[i]);
    }
    done += count;
    if (count > 0 && done <= ids.size()) continue;
    if (done == ids.size()) return Status::Ok();
    return MakeStatus(Code::kInvalidArgument, "{} labels or more for {} ids", done, ids.size());
  }
}

}  // namespace

Result<uint64_t> FillBatch(const Manifest& manifest, const PutSource& source, const PutOptions& options,
                           WriteBatch& batch) {
  QUARRY_TRY(const std::vector<uint64_t> ids, ReadIds(*source.ids, manifest.node_count));
  const TableRecord* const table = manifest.FindTable(options.table);
  if ((source.features != nullptr || source.delete_features) && table == nullptr) {
    return MakeStatus(Code::kNotFound, "there is no table \"{}\"", options.table);
  }
  if (source.features != nullptr) {
    QUARRY_RETURN_IF_ERROR(AddFeatures(*table, ids, *source.features, options, batch));
  }
  if (source.labels != nullptr) QUARRY_RETURN_IF_ERROR(AddLabels(ids, *source.labels, batch));
  for (const uint64_t id : ids) {
    if (source.delete_features) batch.Delete(options.table, id);
    if (source.split) batch.SetSplit(static_cast<NodeId>(id), *source.split);
  }
  QUARRY_RETURN_IF_ERROR(CheckMemory(batch, options));
  return static_cast<uint64_t>(ids.size());
}

}  // namespace quarry
