#include "quarry/storage/layout_files.h"

#include <fmt/format.h>

namespace quarry {
namespace {

constexpr std::string_view kBasePrefix = "base-";
constexpr std::string_view kBaseSuffix = ".qlc";

}  // namespace

std::string LayoutBaseFile(uint64_t generation) {
  return fmt::format("{}{}{}", kBasePrefix, generation, kBaseSuffix);
}

std::string BuildingFolder(std::string_view layout) {
  return fmt::format("layouts/{}{}", layout, kBuildingSuffix);
}

std::string PassingFolder(std::string_view layout) {
  return fmt::format("layouts/{}{}", layout, kPassingSuffix);
}

std::vector<LayoutFile> FilesOf(const LayoutRecord& record) {
  const auto path = [&](std::string_view file) { return fmt::format("{}/{}", record.directory, file); };
  std::vector<LayoutFile> files = {
      {path(kLayoutFile), FileKind::kLayout, record.generation, record.file_bytes}};
  for (const LayoutBase& base : record.bases) {
    files.push_back(
        {path(LayoutBaseFile(base.generation)), FileKind::kLayout, base.generation, base.file_bytes});
  }
  files.push_back({path(kTraceFile), FileKind::kTrace, record.trace_generation, record.trace_bytes});
  return files;
}

bool IsLayoutFile(std::string_view name) {
  if (name == kLayoutFile || name == kTraceFile) return true;
  if (!name.starts_with(kBasePrefix) || !name.ends_with(kBaseSuffix)) return false;
  const std::string_view digits =
      name.substr(kBasePrefix.size(), name.size() - kBasePrefix.size() - kBaseSuffix.size());
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace quarry
