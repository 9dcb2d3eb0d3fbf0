// Pushing and pulling databases: folders at rest on one side, a place in an object store on the other.
//
//   push   files that the place has by content -> left out; others -> uploaded, large ones by parts; then one
//          conditional write of the manifest, against the one that was there when the push began
//   pull   DB.pulling/db: blocks that are there already -> left out; others -> fetched, verified, written; all synced;
//          then one rename to DB
//
// What a killed push or pull brought over is there for the next: a part of an upload, a block of a file. Two pushes to
// one place bring their files side by side, and one of them is published; the other is told (kBusy), and changed
// nothing that anybody reads. Nothing is ever removed from a place.
//
// Each function runs on its caller's thread and the store's; `progress` is called on the caller's. Any error leaves
// the store cancelled (ObjectStore::Cancel), since requests that are under way use the function's buffers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/objects/object_store.h"
#include "quarry/objects/remote_manifest.h"

namespace quarry {

struct PushSpec {
  std::string folder;  // of a database that nobody changes meanwhile
  std::string database_id;
  uint64_t timestamp = 0;   // of its last commit
  std::string publication;  // a name that no other push has
  // What is there may be of another database, or have a later commit, and is replaced.
  bool replace = false;
};

struct TransferReport {
  uint64_t files = 0, bytes = 0;
  uint64_t files_moved = 0, bytes_moved = 0;  // part of them that was not there
  uint64_t requests = 0, retries = 0;
  double seconds = 0;
};

// A manifest as it lies in the store, and what a conditional write says of it.
struct PublishedManifest {
  RemoteManifest manifest;
  std::string etag;
};
// kNotFound when nothing was published there; kCorruption, kUnsupported.
Result<PublishedManifest> ReadPublished(ObjectStore& store);

// kAlreadyExists when the place has another database, or a later commit of this one, and not `replace`; kBusy when
// another push was published meanwhile; errors of the store, of reading, and of `progress`.
Result<TransferReport> PushDatabase(ObjectStore& store, IoBackend& backend, MemoryBudget& budget,
                                    const PushSpec& spec, const ProgressFunction& progress);

// Makes the database `path`. kAlreadyExists when it is there, kBusy while another pull makes it, kNotFound,
// kCorruption when a block does not verify however often it is fetched, kNoSpace. `thin`: large files stay in the store
// (thin_database.h).
Result<TransferReport> PullDatabase(ObjectStore& store, IoBackend& backend, MemoryBudget& budget,
                                    const std::string& path, const ProgressFunction& progress,
                                    bool thin = false);

struct RemoteVerification {
  uint64_t files = 0, bytes = 0;
  std::vector<Status> faults;  // blocks that do not verify, and objects that are missing or of another size
};
// Fetches every block of every file, and keeps none. Errors of requests other than those faults are returned.
Result<RemoteVerification> VerifyPublished(ObjectStore& store, MemoryBudget& budget,
                                           const RemoteManifest& manifest, const ProgressFunction& progress);

}  // namespace quarry
