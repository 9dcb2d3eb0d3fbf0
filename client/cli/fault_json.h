// What `quarry verify` and `quarry repair` find, as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "quarry/verify/verify.h"

namespace quarry::cli {

// An object for each fault: the file (in the database) and page that it names, null where it names none, and
// its sentence.
nlohmann::ordered_json FaultsJson(const std::string& database_path, std::span<const Status> faults);

// An object for each: what is damaged, and of a table which rows, null for something else than rows.
nlohmann::ordered_json DamagesJson(std::span<const Damage> damages);

}  // namespace quarry::cli
