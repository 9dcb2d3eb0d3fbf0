#include "catalog_threads.h"

#include <rocksdb/env.h>

#include "catalog_environment.h"
#include "quarry/base/process_limits.h"
#include "quarry/base/thread.h"
#include "quarry/base/units.h"

namespace quarry {

Status CheckRocksThreads(const std::string& path, std::string_view what) {
  rocksdb::Env* const environment = CatalogEnvironment();
  constexpr unsigned kTimer = 1;
  unsigned needed = kTimer;
  for (const auto pool : {rocksdb::Env::Priority::LOW, rocksdb::Env::Priority::HIGH}) {
    if (environment->GetBackgroundThreads(pool) == 0) ++needed;
  }
  const unsigned there = ProbeThreads(needed);
  if (there == needed) return Status::Ok();
  return MakeStatus(
      Code::kOutOfBudget,
      "{}: cannot {}: it takes {} more threads, and the system starts {}: raise the limit of processes "
      "(ulimit -u, the cgroup's pids.max) or of memory",
      path, what, needed, there);
}

Status CheckRoomForWrite(const std::string& path, std::string_view what) {
  // A batch of a mebibyte as it grows, memtables of four families, and what a flush or a compaction beside it takes.
  constexpr uint64_t kRoom = 96 * kMiB;
  const uint64_t left = AddressSpaceLeft();
  if (left >= kRoom) return Status::Ok();
  return MakeStatus(
      Code::kOutOfBudget,
      "{}: cannot {}: it takes {} of address space, and the limit leaves {}: raise it (ulimit -v)", path,
      what, FormatBytes(kRoom), FormatBytes(left));
}

}  // namespace quarry
