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
  QUARRY_RETURN_IF_ERROR(EnsureDirectory(store.backend(), place.building));
  return place;
}

// The layout becomes visible with the commit of the manifest; what it replaces goes afterwards.
Status CommitLayout(Store& store, const LayoutPlace& place, LayoutRecord& record) {
  IoBackend& backend = store.backend();
  record.directory = fmt::format("layouts/{}-{}", record.name, place.generation);
  KillPoint("layout: whole, folder not renamed");
  QUARRY_RETURN_IF_ERROR(backend.Rename(place.building, store.path() + "/" + record.directory));
  QUARRY_RETURN_IF_ERROR(backend.SyncDirectory(store.path() + "/layouts"));
  KillPoint("layout: folder renamed, not named");
  QUARRY_RETURN_IF_ERROR(store.UpdateManifest([&](Manifest& manifest) {
    std::erase_if(manifest.layouts, [&](const LayoutRecord& old) { return old.name == record.name; });
    manifest.layouts.push_back(record);
    return Status::Ok();
  }));
  KillPoint("layout: named, old folder there");
  if (!place.replaced.empty()) Discard(backend, place.replaced);
  return Status::Ok();
}

}  // namespace quarry
