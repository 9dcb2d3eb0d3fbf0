#include "partition_place.h"

#include <filesystem>

#include "quarry/base/kill_point.h"
#include "quarry/storage/partition_files.h"

namespace quarry {

Result<PartitioningPlace> PreparePartitioning(Store& store, std::string_view name) {
  QUARRY_RETURN_IF_ERROR(store.PrepareToWrite());
  IoBackend& backend = store.backend();
  const auto path_of = [&](std::string_view relative) {
    return fmt::format("{}/{}", store.path(), relative);
  };
  PartitioningPlace place{.building = path_of(PartitioningBuildingFolder(name))};
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  if (const PartitioningRecord* const old = manifest->FindPartitioning(name)) {
    place.generation = old->generation + 1;
    place.replaced = path_of(old->directory);
  }
  QUARRY_RETURN_IF_ERROR(EnsureSyncedDirectory(backend, path_of(kPartitionsFolder)));
  // Left behind between rename and commit. A commit that failed may be on disk and name it: behind another one
  // nothing does.
  const std::string leftover = path_of(PartitioningFolder(name, place.generation));
  std::error_code error;
  if (std::filesystem::exists(leftover, error)) {
    QUARRY_RETURN_IF_ERROR(store.UpdateManifest([](Manifest&) { return Status::Ok(); }));
    QUARRY_RETURN_IF_ERROR(RemoveTree(backend, leftover));
  }
  QUARRY_RETURN_IF_ERROR(RemoveTree(backend, place.building));
  QUARRY_RETURN_IF_ERROR(backend.CreateDirectory(place.building));
  return place;
}

// The partitioning becomes visible with the commit of the manifest; what it replaces goes afterwards.
Status CommitPartitioning(Store& store, const PartitioningPlace& place, const PartitioningRecord& record) {
  IoBackend& backend = store.backend();
  KillPoint("partition: whole, folder not renamed");
  QUARRY_RETURN_IF_ERROR(
      backend.Rename(place.building, fmt::format("{}/{}", store.path(), record.directory)));
  QUARRY_RETURN_IF_ERROR(backend.SyncDirectory(fmt::format("{}/{}", store.path(), kPartitionsFolder)));
  KillPoint("partition: folder renamed, not named");
  QUARRY_RETURN_IF_ERROR(store.UpdateManifest([&](Manifest& manifest) {
    std::erase_if(manifest.partitionings,
                  [&](const PartitioningRecord& old) { return old.name == record.name; });
    manifest.partitionings.push_back(record);
    return Status::Ok();
  }));
  KillPoint("partition: named, old folder there");
  if (!place.replaced.empty()) Discard(backend, place.replaced);
  return Status::Ok();
}

}  // namespace quarry
