#include "fault_json.h"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace quarry::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<Damage::Kind, std::string_view> kKinds[] = {{Damage::Kind::kCatalog, "catalog"},
                                                                {Damage::Kind::kOldRows, "old_rows"},
                                                                {Damage::Kind::kVersion, "version"},
                                                                {Damage::Kind::kFolder, "folder"},
                                                                {Damage::Kind::kStray, "stray"},
                                                                {Damage::Kind::kForeign, "foreign"},
                                                                {Damage::Kind::kLeftover, "leftover"},
                                                                {Damage::Kind::kTable, "table"},
                                                                {Damage::Kind::kTopology, "topology"},
                                                                {Damage::Kind::kLayout, "layout"},
                                                                {Damage::Kind::kPartitioning, "partitioning"},
                                                                {Damage::Kind::kTraining, "training"},
                                                                {Damage::Kind::kEmbedding, "embeddings"}};

consteval bool EachKindHasItsPlace() {
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    if (static_cast<size_t>(kKinds[i].first) != i) return false;
  }
  return std::size(kKinds) == static_cast<size_t>(Damage::Kind::kEmbedding) + 1;
}
static_assert(EachKindHasItsPlace());

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
    json.push_back({{"kind", kKinds[static_cast<size_t>(damage.kind)].second},
                    {"name", damage.name},
                    {"first_row", rows ? Json(damage.first_row) : Json()},
                    {"row_count", rows ? Json(damage.row_count) : Json()}});
  }
  return json;
}

}  // namespace quarry::cli
