// What verbs say of stored partitionings.
#pragma once

#include <nlohmann/json.hpp>

#include "quarry/format/manifest.h"

namespace quarry::cli {

// The share of its edges that lie between parts; 0 of none.
double CutShare(const PartitioningRecord& record);

nlohmann::ordered_json PartitioningJson(const Manifest& manifest, const PartitioningRecord& record);

}  // namespace quarry::cli
