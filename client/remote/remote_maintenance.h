// What keeps a server's database in order. Private to this library.
#pragma once

#include <cstddef>
#include <vector>

#include "link.h"
#include "quarry/base/progress.h"
#include "quarry/format/wire_maintenance.h"

namespace quarry::client {

// As Store::Maintain. Asked once: what became of a task of a server that went away is not known.
Result<wire::MaintenanceReport> RemoteMaintain(Link& link, const wire::MaintenanceTask& task,
                                               const ProgressFunction& progress);

// As Store::ReadManifest.
Result<std::vector<std::byte>> ReadRemoteManifest(Link& link);

}  // namespace quarry::client
