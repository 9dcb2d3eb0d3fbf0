#include <filesystem>
#include <set>

#include "quarry/storage/layout_files.h"
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
  std::set<std::string> named;
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const LayoutRecord& layout : manifest->layouts) {
    named.insert(layout.directory);
    std::set<std::string> files;
    for (const LayoutFile& file : FilesOf(layout)) files.insert(file.path);
    QUARRY_RETURN_IF_ERROR(
        ForEachEntry(store.path() + "/" + layout.directory, [&](const fs::directory_entry& entry) {
          if (!files.contains(layout.directory + "/" + entry.path().filename().string())) {
            AddStray(run, layout.directory, entry);
          }
          return Status::Ok();
        }));
  }
  return ForEachEntry(store.path() + "/layouts", [&](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (named.contains("layouts/" + name)) return Status::Ok();
    const bool passing = name.ends_with(kPassingSuffix) && entry.is_directory(ignored);
    const std::string file = "layouts/" + name;
    if (NoteLeftover(run, store, file) || NoteOnlyCopy(run, store, file)) return Status::Ok();
    if (passing) return Status::Ok();  // in use: it was not there when the database was opened
    if (name.ends_with(kBuildingSuffix) && entry.is_directory(ignored)) {
      run.report().AddDamage({Damage::Kind::kLeftover, "layouts/" + name});
      const std::string layout = name.substr(0, name.size() - kBuildingSuffix.size());
      Mention(run,
              "{}: an interrupted build of layout \"{}\" takes space there: build it again, or remove it "
              "with `quarry layout drop {} {}`",
              entry.path().string(), layout, store.path(), layout);
      return Status::Ok();
    }
    AddStray(run, "layouts", entry);
    return Status::Ok();
  });
}

}  // namespace quarry
