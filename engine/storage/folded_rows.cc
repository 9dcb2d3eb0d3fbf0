#include "folded_rows.h"

namespace quarry {

Result<RowBitmap> FoldedSince(Catalog& catalog, const TableRecord& table, const TableVersion& base,
                              const std::string& path) {
  RowBitmap rows;
  if (base.generation > table.generation) {
    return MakeStatus(Code::kUnsupported,
                      "{}: table \"{}\" of generation {} is newer than the snapshot's, {}", path, table.name,
                      base.generation, table.generation);
  }
  for (uint64_t generation = base.generation + 1; generation <= table.generation; ++generation) {
    QUARRY_TRY(const std::optional<std::string> folded,
               catalog.ReadFolded(table.name, generation, base.timestamp));
    if (!folded) {
      return MakeStatus(Code::kUnsupported,
                        "{}: it is not known what changed in table \"{}\" from generation {}", path,
                        table.name, base.generation);
    }
    QUARRY_TRY(const RowBitmap more,
               DecodeRows(std::as_bytes(std::span(*folded)),
                          fmt::format("{}: rows folded into generation {} of table \"{}\"", path, generation,
                                      table.name)));
    rows |= more;
  }
  return rows;
}

}  // namespace quarry
