#include <filesystem>
#include <set>

#include "quarry/storage/layout_files.h"
#include "quarry/storage/partition_files.h"
#include "quarry/verify/verify.h"
#include "verify_scan.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

// Calls visit(entry) for what `folder` holds; a folder that is missing holds nothing.
template <typename Visit>
Status ForEachEntry(const std::string& folder, Visit visit) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    QUARRY_RETURN_IF_ERROR(visit(*entry));
  }
  if (!error || error == std::errc::no_such_file_or_directory) return Status::Ok();
  return ErrnoStatus(error.value(), "list", folder);
}

void AddStray(Verification& run, const std::string& folder, const fs::directory_entry& entry) {
  std::error_code ignored;
  run.SetSubject(Damage::Kind::kStray, folder + "/" + entry.path().filename().string());
  AddFault(run, "{}: the catalog names no such {}: remove it", entry.path().string(),
           entry.is_directory(ignored) ? "folder" : "file");
}

// A folder of derived data, each in a folder of its own that a record names.
struct DerivedFolder {
  std::string folder;           // "layouts"
  std::string_view noun;        // "layout"
  std::string_view verb;        // of `quarry VERB drop`
  std::set<std::string> named;  // folders that records name, relative to the database
  std::set<std::string> files;  // their files
};

Status FindDerivedStrays(Verification& run, const Store& store, const DerivedFolder& derived) {
  for (const std::string& directory : derived.named) {
    QUARRY_RETURN_IF_ERROR(
        ForEachEntry(store.path() + "/" + directory, [&](const fs::directory_entry& entry) {
          if (!derived.files.contains(directory + "/" + entry.path().filename().string())) {
            AddStray(run, directory, entry);
          }
          return Status::Ok();
        }));
  }
  return ForEachEntry(store.path() + "/" + derived.folder, [&](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    const std::string file = derived.folder + "/" + name;
    std::error_code ignored;
    if (derived.named.contains(file)) return Status::Ok();
    if (NoteLeftover(run, store, file) || NoteOnlyCopy(run, store, file)) return Status::Ok();
    // In use: it was not there when the database was opened.
    if (name.ends_with(kPassingSuffix) && entry.is_directory(ignored)) return Status::Ok();
    if (name.ends_with(kBuildingSuffix) && entry.is_directory(ignored)) {
      run.report().AddDamage({Damage::Kind::kLeftover, file});
      const std::string subject = name.substr(0, name.size() - kBuildingSuffix.size());
      Mention(run,
              "{}: an interrupted build of {} \"{}\" takes space there: build it again, or remove it "
              "with `quarry {} drop {} {}`",
              entry.path().string(), derived.noun, subject, derived.verb, store.path(), subject);
      return Status::Ok();
    }
    AddStray(run, derived.folder, entry);
    return Status::Ok();
  });
}

}  // namespace

Status VerifySections(Verification& run, const DataFile& data) {
  std::set<std::string_view> arrays;
  for (const Section& section : data.footer.sections) arrays.insert(section.checked_by);
  for (const Section& section : data.footer.sections) {
    if (section.checked_by.empty()) {
      if (arrays.contains(section.name)) continue;  // read beside what it covers
      AddFault(run, "{}: footer: section \"{}\" has no checksums", data.file.path(), section.name);
      continue;
    }
    QUARRY_TRY(PageScan scan, PageScan::Make(run, data, section, [&](uint64_t page) {
                 return fmt::format("page {} of section \"{}\"", page, section.name);
               }));
    while (true) {
      QUARRY_TRY(const PageScan::Piece piece, scan.Next());
      if (piece.bytes.empty()) break;
    }
  }
  return Status::Ok();
}

Status FindLayoutStrays(Verification& run, const Store& store) {
  DerivedFolder layouts{.folder = "layouts", .noun = "layout", .verb = "layout", .named = {}, .files = {}};
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const LayoutRecord& layout : manifest->layouts) {
    layouts.named.insert(layout.directory);
    for (const LayoutFile& file : FilesOf(layout)) layouts.files.insert(file.path);
  }
  return FindDerivedStrays(run, store, layouts);
}

Status FindPartitioningStrays(Verification& run, const Store& store) {
  DerivedFolder partitionings{.folder = std::string(kPartitionsFolder),
                              .noun = "partitioning",
                              .verb = "partition",
                              .named = {},
                              .files = {}};
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const PartitioningRecord& record : manifest->partitionings) {
    partitionings.named.insert(record.directory);
    for (const LayoutFile& file : FilesOf(record)) partitionings.files.insert(file.path);
  }
  return FindDerivedStrays(run, store, partitionings);
}

}  // namespace quarry
