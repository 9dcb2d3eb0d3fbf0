#include "import_tables.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "label_codes.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/storage/feature_table.h"
#include "quarry/storage/node_properties.h"
#include "row_converter.h"

namespace quarry {
namespace {

constexpr uint64_t kBatchBytes = 4 * kMiB;
constexpr size_t kBatchInts = 64 << 10;

// A table that is being written; finished, it is entered into the manifest.
class TableOutput {
 public:
  static Result<TableOutput> Create(ImportTarget& target, std::string_view name, ElementType type,
                                    uint64_t dim, std::optional<uint64_t> row_count = {}) {
    QUARRY_TRY(const FeatureGeometry geometry,
               FeatureGeometry::Make(type, dim, row_count.value_or(target.manifest.node_count)));
    TableOutput output;
    output.record_ = {.name = std::string(name),
                      .file = fmt::format("features/{}-1.qft", name),
                      .element_type = type,
                      .row_count = geometry.row_count,
                      .dim = dim};
    QUARRY_TRY(output.writer_,
               FeatureTableWriter::Create(target.backend, target.database_path + "/" + output.record_.file,
                                          geometry, target.manifest.database_id, output.record_.generation));
    return output;
  }
  Status Append(std::span<const std::byte> rows) { return writer_->Append(rows); }
  Status Finish(ImportTarget& target) {
    QUARRY_TRY(record_.file_bytes, writer_->Finish());
    target.manifest.tables.push_back(std::move(record_));
    return Status::Ok();
  }

 private:
  TableOutput() = default;
  TableRecord record_;
  std::unique_ptr<FeatureTableWriter> writer_;
};

// One row of an integer table after another, in batches.
template <typename T>
Status AppendInts(TableOutput& output, std::span<const T> values) {
  return output.Append(std::as_bytes(values));
}

// Makes the labels 0, 1, ... of what they are numbered by, and keeps that beside them.
Status WriteRelabeled(ImportTarget& target, LabelNumbers& numbers) {
  const std::vector<int64_t> codes = numbers.Order();
  QUARRY_TRY(TableOutput output, TableOutput::Create(target, "label", ElementType::kInt64, 1));
  std::vector<int64_t> batch(kBatchInts);
  for (uint64_t first = 0; first < numbers.size(); first += batch.size()) {
    const auto rows = std::span(batch).first(std::min<uint64_t>(batch.size(), numbers.size() - first));
    for (size_t i = 0; i < rows.size(); i++) rows[i] = numbers.NumberOf(first + i);
    QUARRY_RETURN_IF_ERROR(AppendInts(output, std::span<const int64_t>(rows)));
  }
  target.manifest.class_count = codes.size();
  QUARRY_RETURN_IF_ERROR(output.Finish(target));
  if (codes.empty()) return Status::Ok();
  QUARRY_TRY(TableOutput table,
             TableOutput::Create(target, kLabelCodeTable, ElementType::kInt64, 1, codes.size()));
  QUARRY_RETURN_IF_ERROR(AppendInts(table, std::span<const int64_t>(codes)));
  return table.Finish(target);
}

// Two bits a node.
class SplitMap {
 public:
  explicit SplitMap(uint64_t node_count) : quarters_((node_count + 3) / 4) {}
  Split Get(uint64_t node) const { return static_cast<Split>(quarters_[node / 4] >> (node % 4 * 2) & 3); }
  void Set(uint64_t node, Split split) {
    quarters_[node / 4] |= static_cast<uint8_t>(static_cast<unsigned>(split) << (node % 4 * 2));
  }

 private:
  std::vector<uint8_t> quarters_;
};

Status FillSplit(const ImportTarget& target, IntReader& ids, Split split, SplitMap& map) {
  constexpr std::string_view kNames[] = {"none", "train", "valid", "test"};
  const uint64_t node_count = target.manifest.node_count;
  std::vector<int64_t> batch(kBatchInts);
  uint64_t first = 0;
  while (true) {
    QUARRY_TRY(const size_t n, ids.Read(batch));
    if (n == 0) return Status::Ok();
    for (size_t i = 0; i < n; i++) {
      if (batch[i] < 0 || static_cast<uint64_t>(batch[i]) >= node_count) {
        return MakeStatus(Code::kInvalidArgument, "{}: node id {} is out of range; there are {} nodes",
                          ids.Position(first + i), batch[i], node_count);
      }
      const auto node = static_cast<uint64_t>(batch[i]);
      const Split before = map.Get(node);
      if (before != Split::kNone && before != split) {
        return MakeStatus(Code::kInvalidArgument,
                          "{}: node {} is in the {} split already; a node is in one split at most",
                          ids.Position(first + i), node, kNames[static_cast<size_t>(before)]);
      }
      map.Set(node, split);
    }
    first += n;
    QUARRY_RETURN_IF_ERROR(target.Progress("splits", first, ids.count().value_or(0)));
  }
}

Status ImportRows(ImportTarget& target, RowReader& rows, std::string_view table, ElementType type,
                  bool allow_nan, std::string_view phase, std::optional<uint64_t> row_count = {}) {
  QUARRY_TRY(TableOutput output, TableOutput::Create(target, table, type, rows.dim(), row_count));
  RowConverter converter(rows, type, allow_nan);
  const uint64_t row_bytes = RowBytes(rows.element_type(), rows.dim());
  std::vector<std::byte> batch(std::max<uint64_t>(1, kBatchBytes / row_bytes) * row_bytes);
  for (uint64_t done = 0;;) {
    QUARRY_TRY(const size_t n, rows.Read(batch));
    if (n == 0) break;
    QUARRY_TRY(const auto converted, converter.Convert(std::span(batch).first(n * row_bytes), done));
    QUARRY_RETURN_IF_ERROR(output.Append(converted));
    done += n;
    QUARRY_RETURN_IF_ERROR(target.Progress(phase, done * row_bytes, rows.row_count() * row_bytes));
  }
  return output.Finish(target);
}

}  // namespace

Status ImportFeatures(ImportTarget& target, RowReader& rows, std::string_view table,
                      std::optional<uint64_t> row_count) {
  const ScopedSpan span("import features");
  const ElementType type = target.options.feature_type.value_or(rows.element_type());
  return ImportRows(target, rows, table, type, target.options.allow_nan, "features", row_count);
}

Status ImportColumns(ImportTarget& target, RowReader& rows, std::string_view table) {
  const ScopedSpan span("import columns");
  const ElementType type = target.manifest.FindTable("feature")->element_type;
  if (type == ElementType::kInt8) {
    return MakeStatus(
        Code::kUsage,
        "{}: columns of places and times are not joined to features of int8, which have a scale a "
        "row: choose float32, float16 or bfloat16",
        rows.Position(0));
  }
  return ImportRows(target, rows, table, type, target.options.allow_nan, table, rows.row_count());
}

Status ImportTargets(ImportTarget& target, RowReader& rows) {
  const ScopedSpan span("import targets");
  return ImportRows(target, rows, "target", rows.element_type(), /*allow_nan=*/true, "targets");
}

Status ImportLabels(ImportTarget& target, IntReader& labels, std::optional<uint64_t> class_count) {
  const ScopedSpan span("import labels");
  const bool relabel = target.options.relabel;
  const auto stated = static_cast<int64_t>(std::min<uint64_t>(class_count.value_or(kLabelMax), kLabelMax));
  const int64_t bound = relabel ? std::numeric_limits<int64_t>::max() : stated;
  const uint64_t node_count = target.manifest.node_count;
  LabelValues values;
  std::optional<LabelNumbers> numbers;
  std::optional<TableOutput> output;
  if (relabel) {
    QUARRY_TRY(numbers, LabelNumbers::Make(target.options.memory_bytes, node_count));
  } else {
    QUARRY_TRY(output, TableOutput::Create(target, "label", ElementType::kInt64, 1));
  }
  std::vector<int64_t> batch(kBatchInts);
  uint64_t done = 0;
  while (true) {
    QUARRY_TRY(const size_t n, labels.Read(batch));
    if (n == 0) break;
    const std::span<const int64_t> read = std::span(batch).first(n);
    for (size_t i = 0; i < n; i++) {
      if (read[i] < -1 || read[i] >= bound) {
        return MakeStatus(Code::kInvalidArgument, "{}: the label is {}; labels are 0 to {}, or -1 for none",
                          labels.Position(done + i), read[i], bound - 1);
      }
    }
    if (done + n > node_count) {
      return MakeStatus(Code::kInvalidArgument, "{}: more labels than the {} nodes",
                        labels.Position(done + n - 1), node_count);
    }
    if (relabel) {
      QUARRY_RETURN_IF_ERROR(numbers->Add(read));
    } else {
      values.Add(read, labels, done);
      QUARRY_RETURN_IF_ERROR(AppendInts(*output, read));
    }
    done += n;
    QUARRY_RETURN_IF_ERROR(target.Progress("labels", done, node_count));
  }
  if (relabel) return WriteRelabeled(target, *numbers);
  QUARRY_RETURN_IF_ERROR(values.Check());
  target.manifest.class_count = values.class_count();
  return output->Finish(target);
}

Status ImportSplits(ImportTarget& target, IntReader* train, IntReader* valid, IntReader* test) {
  const ScopedSpan span("import splits");
  const uint64_t node_count = target.manifest.node_count;
  const uint64_t need_bytes = node_count / 4 + 1 + kImportBufferBytes;
  if (need_bytes > target.options.memory_bytes) {
    return MakeStatus(Code::kOutOfBudget,
                      "a memory budget of {} is too little for the splits of {} nodes; the least is {} bytes",
                      FormatBytes(target.options.memory_bytes), node_count, need_bytes);
  }
  SplitMap map(node_count);
  for (const auto& [ids, split] :
       {std::pair(train, Split::kTrain), std::pair(valid, Split::kValid), std::pair(test, Split::kTest)}) {
    if (ids != nullptr) QUARRY_RETURN_IF_ERROR(FillSplit(target, *ids, split, map));
  }
  QUARRY_TRY(TableOutput output, TableOutput::Create(target, "split", ElementType::kUint8, 1));
  std::vector<uint8_t> batch;
  for (uint64_t node = 0; node < node_count;) {
    batch.resize(std::min<uint64_t>(kBatchInts, node_count - node));
    for (uint8_t& value : batch) value = static_cast<uint8_t>(map.Get(node++));
    QUARRY_RETURN_IF_ERROR(AppendInts(output, std::span<const uint8_t>(batch)));
  }
  return output.Finish(target);
}

}  // namespace quarry
