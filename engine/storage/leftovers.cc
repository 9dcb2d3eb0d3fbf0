#include "leftovers.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compaction_progress.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/log.h"
#include "quarry/storage/layout_files.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

// "NAME-7": the name, when `text` is one with a generation.
std::optional<std::string_view> NameOfGeneration(std::string_view text) {
  const size_t dash = text.rfind('-');
  if (dash == 0 || dash == std::string_view::npos || dash + 1 == text.size() ||
      text.find_first_not_of("0123456789", dash + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  return text.substr(0, dash);
}

// "NAME-7.qft": the name, when the suffix is this one.
std::optional<std::string_view> NameOfFile(std::string_view file, std::string_view suffix) {
  if (!file.ends_with(suffix)) return std::nullopt;
  return NameOfGeneration(file.substr(0, file.size() - suffix.size()));
}

// "7.qts", or "NAME-7.qts" as earlier versions had it.
bool IsTrainingFile(std::string_view file) {
  constexpr std::string_view kSuffix = ".qts";
  if (!file.ends_with(kSuffix)) return false;
  file.remove_suffix(kSuffix.size());
  return NameOfGeneration(file) ||
         (!file.empty() && file.find_first_not_of("0123456789") == std::string_view::npos);
}

// True for features/NAME-<gen>.qft of a table, training/<number>.qts, and layouts/NAME-<gen> with the files
// of a layout, which the manifest does not name; but not for those of a compaction that can go on.
bool IsLeftover(IoBackend& backend, const std::string& database_path, const Manifest& manifest,
                std::string_view folder, const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  const std::string path = fmt::format("{}/{}", folder, name);
  if (folder == "features") {
    for (const std::string_view suffix : {".qft", ".progress", ".progress.new"}) {
      const std::optional<std::string_view> table = NameOfFile(name, suffix);
      const TableRecord* const record = table ? manifest.FindTable(*table) : nullptr;
      if (record != nullptr) return IsDeadCompactionFile(backend, database_path, manifest, *record, path);
      if (table) return true;  // of a table that was dropped
    }
    return false;
  }
  if (folder == "training") {
    return IsTrainingFile(name) &&
           std::ranges::find(manifest.trainings, path, &TrainingRecord::file) == manifest.trainings.end();
  }
  std::error_code error;
  if (!entry.is_directory(error) || !NameOfGeneration(name)) return false;
  if (std::ranges::find(manifest.layouts, path, &LayoutRecord::directory) != manifest.layouts.end())
    return false;
  for (fs::directory_iterator file(entry.path(), error), end; !error && file != end; file.increment(error)) {
    const std::string inside = file->path().filename().string();
    if (!IsLayoutFile(inside)) return false;
  }
  return !error;
}

void Remove(const std::vector<fs::path>& leftovers) {
  for (const fs::path& leftover : leftovers) {
    std::error_code error;
    fs::remove_all(leftover, error);
    if (error) {
      LogInfo("{}: left over from a command that was interrupted; it stays: {}", leftover.string(),
              error.message());
    } else {
      LogInfo("{}: removed, left over from a command that was interrupted", leftover.string());
    }
  }
}

void RemovePassingLayouts(const Store& store) {
  std::vector<fs::path> leftovers;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(store.path() + "/layouts", error), end; !error && entry != end;
       entry.increment(error)) {
    const bool passing = entry->path().filename().string().ends_with(kPassingSuffix);
    if (passing && entry->is_directory(ignored)) leftovers.push_back(entry->path());
  }
  Remove(leftovers);
}

}  // namespace

void RemoveLeftovers(Store& store) {
  RemovePassingLayouts(store);
  std::vector<fs::path> leftovers;
  std::error_code error;
  for (const std::string_view folder : {"features", "layouts", "training"}) {
    for (fs::directory_iterator entry(fmt::format("{}/{}", store.path(), folder), error), end;
         !error && entry != end; entry.increment(error)) {
      if (IsLeftover(store.backend(), store.path(), store.manifest(), folder, *entry)) {
        leftovers.push_back(entry->path());
      }
    }
  }
  if (leftovers.empty()) return;
  const Status settled = store.UpdateManifest([](Manifest&) { return Status::Ok(); });
  if (!settled.ok()) {
    LogInfo("{}: what interrupted commands left over stays: {}", store.path(), settled.message());
    return;
  }
  KillPoint("open: leftovers there");
  Remove(leftovers);
}

}  // namespace quarry
