#include "table_needs.h"

#include <algorithm>

#include "quarry/storage/node_properties.h"
#include "quarry/storage/row_sources.h"
#include "quarry/storage/times.h"

namespace quarry {
namespace {

// Whether rows of some batches have the table's columns joined to them.
bool IsJoined(const Manifest& manifest, const TableRecord& table) {
  if (table.name != kPlaceColumns && table.name != kTimeColumns) return false;
  return std::ranges::any_of(manifest.topologies, [&](const TopologyRecord& topology) {
    return Times::Of(topology, manifest.node_count).any();
  });
}

}  // namespace

Status CheckNotNeeded(const Manifest& manifest, const TableRecord& table, const std::string& path) {
  const bool property = table.name == "label" || table.name == "split";
  const bool joined = IsJoined(manifest, table);
  for (const LayoutRecord& layout : manifest.layouts) {
    const bool joins = joined && TimesOf(manifest, layout.spec.topology).any();
    if (!property && !joins && !TakesRowsOf(manifest, layout.spec, table.name)) continue;
    return MakeStatus(Code::kInvalidArgument, "{}: layout \"{}\" needs table \"{}\": drop that first", path,
                      layout.name, table.name);
  }
  for (const PartitioningRecord& partitioning : manifest.partitionings) {
    if (partitioning.table != table.name) continue;
    return MakeStatus(Code::kInvalidArgument, "{}: partitioning \"{}\" needs table \"{}\": drop that first",
                      path, partitioning.name, table.name);
  }
  if (!joined || manifest.trainings.empty()) return Status::Ok();
  return MakeStatus(
      Code::kInvalidArgument,
      "{}: training run \"{}\" needs table \"{}\", whose columns its model has for inputs: drop that "
      "first",
      path, manifest.trainings.front().name, table.name);
}

}  // namespace quarry
