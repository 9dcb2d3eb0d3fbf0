// quarry info s3://..., quarry verify s3://...: what a place in an object store holds, and whether it is whole.
#include "objects.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "cli.h"
#include "fault_json.h"
#include "option_values.h"
#include "print_json.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/objects/access.h"
#include "quarry/objects/push.h"

namespace quarry::cli {

Result<OpenedObjects> OpenObjects(const std::string& address, const std::string& memory) {
  QUARRY_TRY(const ObjectPlace place, ParseObjectPlace(address));
  QUARRY_TRY(const ObjectAccess access, ResolveObjectAccess(place));
  QUARRY_TRY(const uint64_t bytes, ParseSize("--memory", memory, MemoryLimitBytes()));
  OpenedObjects opened;
  opened.budget = std::make_unique<MemoryBudget>(bytes);
  // Pauses before requests are made again differ from one process to another: that is what their seed is for.
  QUARRY_TRY(opened.store,
             ObjectStore::Open(place, access, *opened.budget, {.seed = std::random_device()()}));
  return opened;
}

Status CheckNoObjects(std::string_view verb, std::string_view address) {
  if (!IsObjectAddress(address)) return Status::Ok();
  return MakeStatus(Code::kUsage,
                    "{}: {} is a place in an object store: quarry pull {} DB makes a database of it", verb,
                    address, address);
}

Status InfoOfObjects(const std::string& address, bool json) {
  QUARRY_TRY(const OpenedObjects opened, OpenObjects(address));
  QUARRY_TRY(const PublishedManifest published, ReadPublished(*opened.store));
  const RemoteManifest& manifest = published.manifest;
  if (json) {
    nlohmann::ordered_json files = nlohmann::ordered_json::array();
    for (const RemoteFile& file : manifest.files) {
      files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"object", file.Key()}});
    }
    PrintJson({{"path", address},
               {"database_id", manifest.database_id},
               {"timestamp", manifest.timestamp},
               {"published_utc", manifest.published_utc},
               {"publication", manifest.publication},
               {"bytes", manifest.bytes()},
               {"files", std::move(files)}});
    return Status::Ok();
  }
  Print("place      {}\nid         {}\ncommit     {}\npublished  {}\nsize       {} in {} files\n\n", address,
        manifest.database_id, manifest.timestamp, manifest.published_utc, FormatBytes(manifest.bytes()),
        manifest.files.size());
  size_t width = 4;
  for (const RemoteFile& file : manifest.files) width = std::max(width, file.name.size());
  Print("{:<{}}  {:>10}\n", "file", width, "size");
  for (const RemoteFile& file : manifest.files) {
    Print("{:<{}}  {:>10}\n", file.name, width, FormatBytes(file.bytes));
  }
  return Status::Ok();
}

Status VerifyObjects(const std::string& address, bool json) {
  const double start = MonotonicSeconds();
  QUARRY_TRY(const OpenedObjects opened, OpenObjects(address));
  QUARRY_TRY(const PublishedManifest published, ReadPublished(*opened.store));
  ProgressBar bar;
  QUARRY_TRY(const RemoteVerification found,
             VerifyPublished(*opened.store, *opened.budget, published.manifest, bar.AsFunction()));
  bar.Clear();
  const double seconds = MonotonicSeconds() - start;
  if (json) {
    PrintJson({{"path", address},
               {"sound", found.faults.empty()},
               {"files", found.files},
               {"bytes", found.bytes},
               {"seconds", seconds},
               {"faults", FaultsJson(address, found.faults)}});
  } else if (found.faults.empty()) {
    Print("{}: sound: {} files, {} in {:.1f} s\n", address, found.files, FormatBytes(found.bytes), seconds);
  } else {
    for (const Status& fault : found.faults) Print("{}\n", fault.message());
  }
  if (found.faults.empty()) return Status::Ok();
  return MakeStatus(Code::kCorruption, "{}: {} found in {}; the first: {}", address,
                    found.faults.size() == 1 ? "1 fault" : fmt::format("{} faults", found.faults.size()),
                    FormatBytes(found.bytes), found.faults.front().message());
}

}  // namespace quarry::cli
