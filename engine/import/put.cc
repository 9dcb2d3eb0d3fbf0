#include "quarry/import/put.h"

#include <algorithm>
#include <vector>

#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/storage/row_bitmap.h"
#include "row_converter.h"

namespace quarry {
namespace {

constexpr size_t kIdsAtATime = 64 << 10;
constexpr uint64_t kReadBytesMax = 4 * kMiB;
// The memory is this many times what is read at a time, and what a batch may have when it is written: vectors
// that grow take twice that, and the catalog's copies of a batch as much again.
constexpr uint64_t kBatchesInMemory = 8;

class Put {
 public:
  Put(const PutTarget& target, const PutSource& source, const PutOptions& options)
      : target_(target),
        source_(source),
        options_(options),
        batch_bytes_max_(options.memory_bytes / kBatchesInMemory),
        table_(target.manifest.FindTable(options.table)) {}

  Result<PutReport> Run() {
    QUARRY_RETURN_IF_ERROR(CheckTable());
    std::vector<int64_t> ids(std::min(kIdsAtATime, RowsAtATime()));
    for (;;) {
      QUARRY_TRY(const size_t count, source_.ids->Read(ids));
      if (count == 0) break;
      QUARRY_RETURN_IF_ERROR(AddPiece(std::span(ids).first(count)));
    }
    QUARRY_RETURN_IF_ERROR(CheckEnds());
    if (large_ == nullptr) {
      QUARRY_TRY(report_.timestamp, target_.write(batch_));
    } else {
      QUARRY_RETURN_IF_ERROR(large_->Add(batch_));
      QUARRY_TRY(report_.timestamp, large_->Commit());
    }
    return report_;
  }

 private:
  Status CheckTable() {
    if (source_.features == nullptr && !source_.delete_features) return Status::Ok();
    if (table_ == nullptr) {
      return MakeStatus(Code::kNotFound, "there is no table \"{}\"", options_.table);
    }
    if (source_.features == nullptr) return Status::Ok();
    const RowReader& rows = *source_.features;
    if (rows.dim() != table_->dim) {
      return MakeStatus(Code::kInvalidArgument, "{}: {} columns, table \"{}\" has {}", rows.Position(0),
                        rows.dim(), table_->name, table_->dim);
    }
    const uint64_t ids = source_.ids->count().value_or(rows.row_count());
    if (rows.row_count() != ids) return WrongRowCount(ids, "");
    converter_.emplace(rows, table_->element_type, options_.allow_nan);
    rows_.resize(RowsAtATime() * RowBytes(rows.element_type(), rows.dim()));
    return Status::Ok();
  }

  size_t RowsAtATime() const {
    if (source_.features == nullptr) return kIdsAtATime;
    const uint64_t row_bytes = RowBytes(source_.features->element_type(), source_.features->dim());
    return std::max<size_t>(1, std::min(kReadBytesMax, batch_bytes_max_) / row_bytes);
  }

  Status WrongRowCount(uint64_t ids, std::string_view or_more) const {
    const std::string first = source_.features->Position(0);  // "FILE: row 0"
    return MakeStatus(Code::kInvalidArgument, "{}: {} rows for {} ids{}", first.substr(0, first.rfind(": ")),
                      source_.features->row_count(), ids, or_more);
  }

  Status AddPiece(std::span<const int64_t> ids) {
    const ScopedSpan span("read and check");
    QUARRY_RETURN_IF_ERROR(CheckIds(ids));
    if (source_.features != nullptr) QUARRY_RETURN_IF_ERROR(AddFeatures(ids));
    if (source_.labels != nullptr) QUARRY_RETURN_IF_ERROR(AddLabels(ids));
    for (const int64_t id : ids) {
      if (source_.delete_features) batch_.Delete(options_.table, static_cast<uint64_t>(id));
      if (source_.split) batch_.SetSplit(static_cast<NodeId>(id), *source_.split);
    }
    report_.nodes += ids.size();
    report_.rows += batch_.entries().size() - counted_;
    counted_ = batch_.entries().size();
    if (options_.progress) {
      QUARRY_RETURN_IF_ERROR(options_.progress("reading", report_.nodes, source_.ids->count().value_or(0)));
    }
    return batch_.memory_bytes() > batch_bytes_max_ ? WriteAhead() : Status::Ok();
  }

  Status CheckIds(std::span<const int64_t> ids) {
    const uint64_t node_count = target_.manifest.node_count;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto refuse = [&](std::string_view why) {
        return MakeStatus(Code::kInvalidArgument, "{}: node id {} {}",
                          source_.ids->Position(report_.nodes + i), ids[i], why);
      };
      if (ids[i] < 0 || static_cast<uint64_t>(ids[i]) >= node_count) {
        return refuse(fmt::format("is out of range; there are {} nodes", node_count));
      }
      if (!seen_.addChecked(static_cast<uint32_t>(ids[i]))) return refuse("occurs twice");
    }
    return Status::Ok();
  }

  Status AddFeatures(std::span<const int64_t> ids) {
    const uint64_t from_bytes = RowBytes(source_.features->element_type(), table_->dim);
    const uint64_t row_bytes = RowBytes(table_->element_type, table_->dim);
    for (size_t done = 0; done < ids.size();) {
      const size_t wanted = std::min(ids.size() - done, rows_.size() / from_bytes);
      QUARRY_TRY(const size_t count, source_.features->Read(std::span(rows_).first(wanted * from_bytes)));
      if (count == 0) return WrongRowCount(report_.nodes + ids.size(), " or more");
      QUARRY_TRY(const auto converted,
                 converter_->Convert(std::span(rows_).first(count * from_bytes), report_.nodes + done));
      for (size_t i = 0; i < count; ++i) {
        batch_.Put(table_->name, static_cast<uint64_t>(ids[done + i]) - target_.first_row,
                   converted.subspan(i * row_bytes, row_bytes));
      }
      done += count;
    }
    return Status::Ok();
  }

  Status AddLabels(std::span<const int64_t> ids) {
    labels_.resize(ids.size());
    for (size_t done = 0; done < ids.size();) {
      QUARRY_TRY(const size_t count, source_.labels->Read(std::span(labels_).subspan(done)));
      if (count == 0) {
        return MakeStatus(Code::kInvalidArgument, "{} labels for {} ids or more", report_.nodes + done,
                          report_.nodes + ids.size());
      }
      for (size_t i = done; i < done + count; ++i) {
        if (labels_[i] < -1 || labels_[i] >= kLabelMax) {
          return MakeStatus(Code::kInvalidArgument, "{}: the label is {}; labels are 0 to {}, or -1 for none",
                            source_.labels->Position(report_.nodes + i), labels_[i], kLabelMax - 1);
        }
        batch_.SetLabel(static_cast<NodeId>(ids[i]), labels_[i]);
      }
      done += count;
    }
    return Status::Ok();
  }

  Status WriteAhead() {
    const ScopedSpan span("write ahead");
    if (large_ == nullptr) {
      QUARRY_TRY(large_, target_.begin_large_write());
    }
    QUARRY_RETURN_IF_ERROR(large_->Add(batch_));
    batch_.Clear();
    counted_ = 0;
    return Status::Ok();
  }

  // The ids are at their end; whatever belongs to them must be too.
  Status CheckEnds() {
    if (source_.features != nullptr && source_.features->row_count() != report_.nodes) {
      return WrongRowCount(report_.nodes, "");
    }
    if (source_.labels == nullptr) return Status::Ok();
    int64_t more = 0;
    QUARRY_TRY(const size_t count, source_.labels->Read({&more, 1}));
    if (count == 0) return Status::Ok();
    return MakeStatus(Code::kInvalidArgument, "{} labels or more for {} ids", report_.nodes + 1,
                      report_.nodes);
  }

  const PutTarget& target_;
  const PutSource& source_;
  const PutOptions& options_;
  const uint64_t batch_bytes_max_;
  const TableRecord* const table_;
  std::optional<RowConverter> converter_;
  RowBitmap seen_;  // ids
  std::vector<std::byte> rows_;
  std::vector<int64_t> labels_;
  WriteBatch batch_;
  size_t counted_ = 0;                 // its entries that the report counts
  std::unique_ptr<LargeWrite> large_;  // once a batch was full
  PutReport report_;
};

// The nodes that a change adds.
class AddedIds final : public IntReader {
 public:
  explicit AddedIds(const GraphChange& change)
      : next_(change.first_node()), end_(change.manifest().node_count), count_(end_ - next_) {}
  Result<size_t> Read(std::span<int64_t> out) override {
    size_t read = 0;
    for (; read < out.size() && next_ < end_; ++read) out[read] = static_cast<int64_t>(next_++);
    return read;
  }
  std::optional<uint64_t> count() const override { return count_; }
  std::string Position(uint64_t index) const override { return fmt::format("added node {}", index); }

 private:
  uint64_t next_;
  const uint64_t end_, count_;
};

// Rows that go into a change; who commits that commits them.
class ChangeWrite final : public LargeWrite {
 public:
  explicit ChangeWrite(GraphChange& change) : change_(change) {}
  Status Add(const WriteBatch& batch) override { return change_.Put(batch); }
  Result<uint64_t> Commit() override { return uint64_t{0}; }

 private:
  GraphChange& change_;
};

}  // namespace

Status PutAdded(GraphChange& change, PutSource source, const PutOptions& options) {
  AddedIds ids(change);
  const NodeTypes& types = change.types();
  PutOptions used = options;
  uint64_t first_row = 0;
  if (!types.empty() && source.features != nullptr) {
    const NodeTypes::Range& added = types.RangeOf(change.first_node());
    const NodeTypeRecord& type = change.manifest().node_types[added.type];
    if (options.table == PutOptions().table) used.table = type.feature_table;
    if (used.table.empty()) {
      return MakeStatus(Code::kInvalidArgument,
                        "nodes of type \"{}\" have no features: give the number of nodes instead of rows",
                        type.name);
    }
    if (used.table == type.feature_table) first_row = change.first_node() - added.RowOf(change.first_node());
  }
  source.ids = &ids;
  const PutTarget target = {.manifest = change.manifest(),
                            .write = [&](const WriteBatch& rows) -> Result<uint64_t> {
                              QUARRY_RETURN_IF_ERROR(change.Put(rows));
                              return uint64_t{0};
                            },
                            .begin_large_write = [&]() -> Result<std::unique_ptr<LargeWrite>> {
                              return std::unique_ptr<LargeWrite>(std::make_unique<ChangeWrite>(change));
                            },
                            .first_row = first_row};
  return PutRows(target, source, used).status();
}

Result<PutReport> PutRows(Store& store, const PutSource& source, const PutOptions& options) {
  return PutRows({.manifest = *store.manifest(),
                  .write = [&store](const WriteBatch& batch) { return store.Write(batch); },
                  .begin_large_write = [&store] { return store.BeginLargeWrite(); }},
                 source, options);
}

Result<PutReport> PutRows(const PutTarget& target, const PutSource& source, const PutOptions& options) {
  Put put(target, source, options);
  return put.Run();
}

}  // namespace quarry
