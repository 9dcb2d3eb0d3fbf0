#include "metadata_reader.h"

#include <yaml-cpp/yaml.h>

#include <cctype>
#include <charconv>
#include <filesystem>
#include <span>

#include "byte_source.h"
#include "text_lines.h"

namespace quarry {
namespace {

constexpr size_t kTextBytesMax = 1 << 20;

using CountKey = std::pair<const char*, std::optional<uint64_t>*>;

// `unset`: what stands for a count that is not there.
Status ParseCounts(const std::string& path, const std::string& text, std::span<const CountKey> keys,
                   std::string_view unset) {
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) return MakeStatus(Code::kInvalidArgument, "{}: holds no YAML map", path);
    for (const auto& [key, value] : keys) {
      const YAML::Node node = root[key];
      if (!node.IsDefined() || node.IsNull()) continue;
      const std::string scalar = node.IsScalar() ? node.Scalar() : "";
      if (!unset.empty() && scalar == unset) continue;
      uint64_t number = 0;
      const char* end = scalar.data() + scalar.size();
      const auto [rest, error] = std::from_chars(scalar.data(), end, number);
      if (error != std::errc() || rest != end) {
        return MakeStatus(Code::kInvalidArgument, "{}: line {}: {} is '{}', not a count", path,
                          node.Mark().line + 1, key, Excerpt(scalar));
      }
      *value = number;
    }
  } catch (const YAML::Exception& error) {  // the library reports by throwing; it ends at this door
    return MakeStatus(Code::kInvalidArgument, "{}: line {}: {}", path, error.mark.line + 1,
                      Excerpt(error.msg));
  }
  return Status::Ok();
}

// REQUIRES: `text` is a YAML map.
Result<std::vector<std::string>> ParseNames(const std::string& path, const std::string& text,
                                            const char* key) {
  std::vector<std::string> names;
  const YAML::Node list = YAML::Load(text)[key];
  if (!list.IsDefined() || list.IsNull()) return names;
  bool sound = list.IsSequence();
  for (size_t i = 0; sound && i < list.size(); ++i) {
    sound = list[i].IsScalar();
    if (sound) names.push_back(list[i].Scalar());
  }
  if (sound) return names;
  return MakeStatus(Code::kInvalidArgument, "{}: line {}: {} is not a list of names", path,
                    list.Mark().line + 1, key);
}

}  // namespace

Result<Metadata> ReadMetadata(const std::string& path) {
  Metadata metadata;
  if (!IsThere(path)) return metadata;
  QUARRY_TRY(const std::string text, ReadPrefix(path, kTextBytesMax));
  const CountKey keys[] = {{"num_nodes", &metadata.num_nodes},
                           {"num_edges", &metadata.num_edges},
                           {"feature_dim", &metadata.feature_dim},
                           {"num_classes", &metadata.num_classes},
                           {"num_times", &metadata.num_times}};
  QUARRY_RETURN_IF_ERROR(ParseCounts(path, text, keys, ""));
  QUARRY_TRY(metadata.relations, ParseNames(path, text, "relations"));
  QUARRY_TRY(metadata.node_types, ParseNames(path, text, "node_types"));
  return metadata;
}

Result<MariusMetadata> ReadMariusMetadata(const std::string& path) {
  QUARRY_TRY(const std::string text, ReadPrefix(path, kTextBytesMax));
  MariusMetadata metadata;
  std::optional<uint64_t> feature_dim;  // the older name
  const CountKey keys[] = {{"num_nodes", &metadata.num_nodes},
                           {"num_edges", &metadata.num_edges},
                           {"num_relations", &metadata.num_relations},
                           {"num_train", &metadata.num_train},
                           {"num_valid", &metadata.num_valid},
                           {"num_test", &metadata.num_test},
                           {"feature_dim", &feature_dim},
                           {"node_feature_dim", &metadata.feature_dim},
                           {"num_classes", &metadata.num_classes}};
  QUARRY_RETURN_IF_ERROR(ParseCounts(path, text, keys, "-1"));
  if (!metadata.feature_dim.has_value()) metadata.feature_dim = feature_dim;
  return metadata;
}

Result<std::optional<uint64_t>> StatedColumns(const std::string& readme_path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(readme_path, error)) return std::optional<uint64_t>();
  QUARRY_TRY(const std::string text, ReadPrefix(readme_path, kTextBytesMax));
  constexpr std::string_view kStatement = "D = ";
  for (size_t at = text.find(kStatement); at != std::string::npos; at = text.find(kStatement, at + 1)) {
    if (at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0) continue;
    uint64_t columns = 0;
    const char* start = text.data() + at + kStatement.size();
    if (std::from_chars(start, text.data() + text.size(), columns).ec == std::errc())
      return std::optional(columns);
  }
  return std::optional<uint64_t>();
}

}  // namespace quarry
