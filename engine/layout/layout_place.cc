#include "layout_place.h"

#include <filesystem>

#include "quarry/base/kill_point.h"

namespace quarry {

namespace fs = std::filesystem;

Result<LayoutPlace> PrepareLayout(Store& store, const std::string& name, const std::string& folder) {
  QUARRY_RETURN_IF_ERROR(store.PrepareToWrite());
  const std::string layouts = store.path() + "/layouts";
  LayoutPlace place{.folder = folder, .building = store.path() + "/" + folder};
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  if (const LayoutRecord* old = manifest->FindLayout(name)) {
    place.generation = old->generation + 1;
    place.replaced = store.path() + "/" + old->directory;
  }
  QUARRY_RETURN_IF_ERROR(EnsureSyncedDirectory(store.backend(), layouts));
  // A folder that no record names was left behind between rename and commit. A commit that failed may be on
  // disk and name it: behind another one nothing does.
  const std::string leftover = fmt::format("{}/{}-{}", layouts, name, place.generation);
  std::error_code error;
  if (fs::exists(leftover, error)) {
    QUARRY_RETURN_IF_ERROR(store.UpdateManifest([](Manifest&) { return Status::Ok(); }));
    Discard(store.backend(), leftover);
  }
  return place;
}

// The layouts become visible with the commit of the manifest; what they replace goes afterwards.
Status CommitLayouts(Store& store, std::span<const LayoutPlace> places, std::span<LayoutRecord> records) {
  IoBackend& backend = store.backend();
  KillPoint("layout: whole, folder not renamed");
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].directory = fmt::format("layouts/{}-{}", records[i].name, places[i].generation);
    QUARRY_RETURN_IF_ERROR(backend.Rename(places[i].building, store.path() + "/" + records[i].directory));
  }
  QUARRY_RETURN_IF_ERROR(backend.SyncDirectory(store.path() + "/layouts"));
  KillPoint("layout: folder renamed, not named");
  QUARRY_RETURN_IF_ERROR(store.UpdateManifest([&](Manifest& manifest) {
    for (const LayoutRecord& record : records) {
      std::erase_if(manifest.layouts, [&](const LayoutRecord& old) { return old.name == record.name; });
      manifest.layouts.push_back(record);
    }
    return Status::Ok();
  }));
  KillPoint("layout: named, old folder there");
  for (const LayoutPlace& place : places) {
    if (!place.replaced.empty()) Discard(backend, place.replaced);
  }
  return Status::Ok();
}

Status CommitLayout(Store& store, const LayoutPlace& place, LayoutRecord& record) {
  return CommitLayouts(store, {&place, 1}, {&record, 1});
}

}  // namespace quarry
