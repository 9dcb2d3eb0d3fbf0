#include "table_needs.h"

namespace quarry {

Status CheckNotNeeded(const Manifest& manifest, const TableRecord& table, const std::string& path) {
  const bool property = table.name == "label" || table.name == "split";
  for (const LayoutRecord& layout : manifest.layouts) {
    if (!property && layout.spec.feature_table != table.name) continue;
    return MakeStatus(Code::kInvalidArgument, "{}: layout \"{}\" needs table \"{}\": drop that first", path,
                      layout.name, table.name);
  }
  for (const PartitioningRecord& partitioning : manifest.partitionings) {
    if (partitioning.table != table.name) continue;
    return MakeStatus(Code::kInvalidArgument, "{}: partitioning \"{}\" needs table \"{}\": drop that first",
                      path, partitioning.name, table.name);
  }
  return Status::Ok();
}

}  // namespace quarry
