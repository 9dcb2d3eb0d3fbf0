#include "fault_json.h"

#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>

namespace quarry::cli {
namespace {

using Json = nlohmann::ordered_json;

// By Damage::Kind.
constexpr std::string_view kKinds[] = {"catalog",      "old_rows", "version",   "folder",   "stray",
                                       "foreign",      "leftover", "table",     "topology", "layout",
                                       "partitioning", "training", "embeddings"};
static_assert(std::size(kKinds) == static_cast<size_t>(Damage::Kind::kEmbedding) + 1);

// A fault of a file begins with its path: "db/features/feature-1.qft: page 7: ...".
Json FileOf(const std::string& database_path, std::string_view fault) {
  const std::string folder = database_path + "/";
  const size_t end = fault.find(": ", folder.size());
  if (!fault.starts_with(folder) || end == std::string_view::npos) return nullptr;
  return std::string(fault.substr(folder.size(), end - folder.size()));
}

Json PageOf(std::string_view fault) {
  constexpr std::string_view kPage = ": page ";
  const size_t at = fault.find(kPage);
  if (at == std::string_view::npos) return nullptr;
  uint64_t page = 0;
  const char* const digits = fault.data() + at + kPage.size();
  const bool parsed = std::from_chars(digits, fault.data() + fault.size(), page).ec == std::errc();
  return parsed ? Json(page) : Json();
}

}  // namespace

Json FaultsJson(const std::string& database_path, std::span<const Status> faults) {
  Json json = Json::array();
  for (const Status& fault : faults) {
    json.push_back({{"file", FileOf(database_path, fault.message())},
                    {"page", PageOf(fault.message())},
                    {"fault", fault.message()}});
  }
  return json;
}

Json DamagesJson(std::span<const Damage> damages) {
  Json json = Json::array();
  for (const Damage& damage : damages) {
    const bool rows = damage.row_count > 0;
    json.push_back({{"kind", kKinds[static_cast<size_t>(damage.kind)]},
                    {"name", damage.name},
                    {"first_row", rows ? Json(damage.first_row) : Json()},
                    {"row_count", rows ? Json(damage.row_count) : Json()}});
  }
  return json;
}

}  // namespace quarry::cli
