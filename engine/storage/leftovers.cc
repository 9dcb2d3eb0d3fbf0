#include "quarry/storage/leftovers.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/kill_point.h"
#include "quarry/base/log.h"
#include "quarry/storage/compaction_progress.h"
#include "quarry/storage/layout_files.h"
#include "quarry/storage/partition_files.h"
#include "quarry/storage/topology_run.h"

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

// The topology of "NAME-2.qtp", of what a compaction that writes it has beside it, or of "NAME-2-7.qtr" or "NAME-2-3-7.qtr",
// which are runs'; null for what is none.
const TopologyRecord* TopologyOfFile(const Manifest& manifest, std::string_view file) {
  std::optional<std::string_view> name;
  for (const std::string_view suffix : {".qtp", ".progress", ".progress.new"}) {
    name = NameOfFile(file, suffix);
    if (name) return manifest.FindTopology(*name);
  }
  for (name = NameOfFile(file, ".qtr"); name;) {
    name = NameOfGeneration(*name);
    if (name && manifest.FindTopology(*name) != nullptr) return manifest.FindTopology(*name);
  }
  return nullptr;
}

// True for features/NAME-<gen>.qft of a table, of a topology and its runs, training/<number>.qts, and layouts/NAME-<gen> or
// partitions/NAME-<gen> with the files of such, which the manifest does not name; but not for those of a
// compaction that can go on.
bool IsLeftover(IoBackend& backend, const std::string& database_path, const Manifest& manifest,
                std::string_view folder, const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  const std::string path = fmt::format("{}/{}", folder, name);
  if (folder == "features") {
    for (const std::string_view suffix : {".qft", ".progress", ".progress.new"}) {
      const std::optional<std::string_view> table = NameOfFile(name, suffix);
      const TableRecord* const record = table ? manifest.FindTable(*table) : nullptr;
      if (record != nullptr) {
        return path != record->file && IsDeadCompactionFile(backend, database_path, manifest, *record, path);
      }
      if (table) return true;  // the table was dropped
    }
    return false;
  }
  if (folder == "topology") {
    // A file of an external sort that was killed before it had lost its name.
    if (name.starts_with("sort-") && name.ends_with(".tmp")) return true;
    const TopologyRecord* const record = TopologyOfFile(manifest, name);
    return record != nullptr && std::ranges::count(FilesOf(*record), path) == 0 &&
           IsDeadCompactionFile(backend, database_path, manifest, *record, path);
  }
  if (folder == "training") {
    return IsTrainingFile(name) &&
           std::ranges::find(manifest.trainings, path, &TrainingRecord::file) == manifest.trainings.end();
  }
  std::error_code error;
  if (!entry.is_directory(error) || !NameOfGeneration(name)) return false;
  const auto names = [&](const auto& record) { return record.directory == path; };
  if (std::ranges::any_of(manifest.layouts, names) || std::ranges::any_of(manifest.partitionings, names)) {
    return false;
  }
  for (fs::directory_iterator file(entry.path(), error), end; !error && file != end; file.increment(error)) {
    const std::string inside = file->path().filename().string();
    const bool known =
        folder == kPartitionsFolder ? inside == kPartsFile || inside == kBucketsFile : IsLayoutFile(inside);
    if (!known) return false;
  }
  return !error;
}

}  // namespace

bool MayBeOnlyCopy(const std::string& database_path, const Manifest& manifest, std::string_view file) {
  const std::string_view folder = file.substr(0, file.find('/'));
  const std::string name(file.substr(std::min(file.size(), folder.size() + 1)));
  const auto missing = [&](const std::string& named) {
    std::error_code error;
    return !fs::exists(database_path + "/" + named, error);
  };
  if (folder == "features") {
    const std::optional<std::string_view> table = NameOfFile(name, ".qft");
    const TableRecord* const record = table ? manifest.FindTable(*table) : nullptr;
    return record != nullptr && missing(record->file);
  }
  if (folder == "topology") {
    const TopologyRecord* const record = TopologyOfFile(manifest, name);
    return record != nullptr && std::ranges::any_of(FilesOf(*record), missing);
  }
  if (folder == "layouts") {
    const std::optional<std::string_view> layout = NameOfGeneration(name);
    const LayoutRecord* const record = layout ? manifest.FindLayout(*layout) : nullptr;
    return record != nullptr && missing(record->directory);
  }
  if (folder == kPartitionsFolder) {
    const std::optional<std::string_view> partitioning = NameOfGeneration(name);
    const PartitioningRecord* const record =
        partitioning ? manifest.FindPartitioning(*partitioning) : nullptr;
    return record != nullptr && missing(record->directory);
  }
  return folder == "training" && std::ranges::any_of(manifest.trainings, missing, &TrainingRecord::file);
}

std::vector<std::string> FindLeftovers(IoBackend& backend, const std::string& database_path,
                                       const Manifest& manifest) {
  std::vector<std::string> leftovers;
  std::error_code error, ignored;
  for (const std::string_view folder :
       {std::string_view("features"), std::string_view("topology"), std::string_view("layouts"),
        kPartitionsFolder, std::string_view("training")}) {
    for (fs::directory_iterator entry(fmt::format("{}/{}", database_path, folder), error), end;
         !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      const std::string file = fmt::format("{}/{}", folder, name);
      const bool passing =
          folder == "layouts" && name.ends_with(kPassingSuffix) && entry->is_directory(ignored);
      if (passing || (IsLeftover(backend, database_path, manifest, folder, *entry) &&
                      !MayBeOnlyCopy(database_path, manifest, file))) {
        leftovers.push_back(file);
      }
    }
  }
  std::ranges::sort(leftovers);
  return leftovers;
}

void RemoveLeftovers(Store& store, const std::vector<std::string>& leftovers) {
  if (leftovers.empty()) return;
  const Status settled = store.UpdateManifest([](Manifest&) { return Status::Ok(); });
  if (!settled.ok()) {
    LogInfo("{}: what interrupted commands left over stays: {}", store.path(), settled.message());
    return;
  }
  KillPoint("open: leftovers there");
  for (const std::string& leftover : leftovers) {
    const std::string path = store.path() + "/" + leftover;
    if (const Status removed = RemoveTree(store.backend(), path); !removed.ok()) {
      LogInfo("{}: left over from a command that was interrupted; it stays: {}", path, removed.message());
    } else {
      LogInfo("{}: removed, left over from a command that was interrupted", path);
    }
  }
}

}  // namespace quarry
