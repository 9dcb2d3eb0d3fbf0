#include "catalog_threads.h"

#include <rocksdb/env.h>

#include "catalog_environment.h"
#include "quarry/base/thread.h"

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

}  // namespace quarry
