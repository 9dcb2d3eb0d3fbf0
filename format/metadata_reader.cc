#include "metadata_reader.h"

#include <yaml-cpp/yaml.h>

#include <cctype>
#include <charconv>
#include <filesystem>

#include "byte_source.h"

namespace quarry {
namespace {

constexpr size_t kTextBytesMax = 1 << 20;

Status ParseMetadata(const std::string& path, const std::string& text, Metadata* metadata) {
  const std::pair<const char*, std::optional<uint64_t>*> keys[] = {{"num_nodes", &metadata->num_nodes},
                                                                   {"num_edges", &metadata->num_edges},
                                                                   {"feature_dim", &metadata->feature_dim},
                                                                   {"num_classes", &metadata->num_classes}};
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) return MakeStatus(Code::kInvalidArgument, "{}: holds no YAML map", path);
    for (const auto& [key, value] : keys) {
      const YAML::Node node = root[key];
      if (!node.IsDefined() || node.IsNull()) continue;
      const std::string scalar = node.IsScalar() ? node.Scalar() : "";
      uint64_t number = 0;
      const char* end = scalar.data() + scalar.size();
      const auto [rest, error] = std::from_chars(scalar.data(), end, number);
      if (error != std::errc() || rest != end) {
        return MakeStatus(Code::kInvalidArgument, "{}: line {}: {} is '{}', not a count", path,
                          node.Mark().line + 1, key, scalar);
      }
      *value = number;
    }
  } catch (const YAML::Exception& error) {  // the library reports by throwing; it ends at this door
    return MakeStatus(Code::kInvalidArgument, "{}: line {}: {}", path, error.mark.line + 1, error.msg);
  }
  return Status::Ok();
}

}  // namespace

Result<Metadata> ReadMetadata(const std::string& path) {
  Metadata metadata;
  if (!std::filesystem::exists(path)) return metadata;
  QUARRY_TRY(const std::string text, ReadPrefix(path, kTextBytesMax));
  QUARRY_RETURN_IF_ERROR(ParseMetadata(path, text, &metadata));
  return metadata;
}

Result<std::optional<uint64_t>> StatedColumns(const std::string& readme_path) {
  if (!std::filesystem::is_regular_file(readme_path)) return std::optional<uint64_t>();
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
