// What verbs say of stored partitionings.
#pragma once

#include <nlohmann/json.hpp>

#include "quarry/format/manifest.h"

namespace quarry::cli {

nlohmann::ordered_json PartitioningJson(const Manifest& manifest, const PartitioningRecord& record);

}  // namespace quarry::cli
