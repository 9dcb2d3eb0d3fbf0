#include "quarry/service/put_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "quarry/format/element_type.h"
#include "quarry/storage/record_names.h"

namespace quarry {
namespace {

// Why these bytes are no row of the table; empty when they are.
std::string FaultOf(const TableRecord& table, std::span<const std::byte> row, std::span<float> scratch) {
  if (table.name == "label" && table.element_type == ElementType::kInt64) {
    int64_t label = 0;
    std::memcpy(&label, row.data(), sizeof(label));
    if (label >= -1 && label < kLabelMax) return {};
    return fmt::format("label {}; labels are 0 to {}, or -1 for none", label, kLabelMax - 1);
  }
  if (!IsFloatType(table.element_type)) return {};
  DecodeRow(table.element_type, row, scratch);
  const auto bad = std::ranges::find_if(scratch, [](float value) { return !std::isfinite(value); });
  if (bad == scratch.end()) return {};
  return fmt::format("element {} is {}", bad - scratch.begin(), *bad);
}

}  // namespace

Status AddPutRows(const Manifest& manifest, const wire::PutRows& rows, std::span<const std::byte> block,
                  WriteBatch& batch) {
  const TableRecord* const table = manifest.FindTable(rows.table);
  if (table == nullptr) {
    return Status(Code::kNotFound, ThereIsNo("table", rows.table, "tables", manifest.tables));
  }
  const uint64_t row_bytes = RowBytes(table->element_type, table->dim);
  if (rows.row_bytes != 0 && rows.row_bytes != row_bytes) {
    return MakeStatus(Code::kInvalidArgument, "table \"{}\": rows of {} bytes, they have {}", rows.table,
                      rows.row_bytes, row_bytes);
  }
  std::vector<float> scratch(rows.row_bytes == 0 ? 0 : table->dim);
  const std::span<const std::byte> values = block.subspan(rows.rows * sizeof(uint64_t));
  for (uint64_t i = 0; i < rows.rows; ++i) {
    uint64_t id = 0;
    std::memcpy(&id, block.data() + i * sizeof(id), sizeof(id));
    if (id >= table->row_count) {
      return MakeStatus(Code::kInvalidArgument, "table \"{}\": row {} is beyond its {}", rows.table, id,
                        table->row_count);
    }
    const std::span<const std::byte> row = values.subspan(i * rows.row_bytes, rows.row_bytes);
    if (!row.empty()) {
      if (const std::string fault = FaultOf(*table, row, scratch); !fault.empty()) {
        return MakeStatus(Code::kInvalidArgument, "table \"{}\", row {}: {}", rows.table, id, fault);
      }
    }
    batch.Put(rows.table, id, row);
  }
  return Status::Ok();
}

}  // namespace quarry
