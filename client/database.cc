#include "quarry/database.h"

#include "quarry/base/process.h"

namespace quarry {

Database::Database(std::unique_ptr<IoBackend> backend, std::unique_ptr<Store> store, uint64_t memory_bytes)
    : backend_(std::move(backend)), store_(std::move(store)), budget_(memory_bytes) {}

Result<std::unique_ptr<Database>> Database::Open(const std::string& path, DatabaseOptions options) {
  std::unique_ptr<IoBackend> backend = std::move(options.backend);
  if (!backend) backend = MakeDefaultBackend();
  QUARRY_TRY(std::unique_ptr<Store> store, Store::Open(*backend, path));
  const uint64_t memory_bytes =
      options.memory_bytes != 0 ? options.memory_bytes : MemoryLimitBytes() / 10 * 8;
  return std::unique_ptr<Database>(new Database(std::move(backend), std::move(store), memory_bytes));
}

Result<std::unique_ptr<LiveRoad>> Database::OpenLiveRoad(const LiveRoadOptions& options) {
  return LiveRoad::Open(*store_, budget_, options);
}

}  // namespace quarry
