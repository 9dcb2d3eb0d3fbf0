// What roads that read scattered rows say of a database whose files are in an object store. Private to this room.
#pragma once

#include "quarry/base/units.h"
#include "quarry/io/backend.h"

namespace quarry {

// kUnsupported, with what to do instead, unless everything is on a disk here.
inline Status CheckGivesScatteredRows(const IoBackend& backend) {
  const RemoteFiles* const remote = backend.remote_files();
  if (remote == nullptr) return Status::Ok();
  return MakeStatus(
      Code::kUnsupported,
      "the live road reads scattered rows, 80 thousand a second from an NVMe disk, and from {} each would "
      "fetch {}: train with --road planned from a layout that was built before the push (quarry layout "
      "build), or with --road partitioned, or bring the database here (quarry pull {} DB)",
      remote->address, FormatBytes(remote->block_bytes), remote->address);
}

}  // namespace quarry
