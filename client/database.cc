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

Result<LayoutRecord> Database::BuildLayout(const LayoutSpec& spec, bool resume,
                                           const ProgressFunction& progress, BuildReport* report) {
  return quarry::BuildLayout(*store_, budget_, spec, resume, progress, report);
}

Result<std::unique_ptr<PlannedRoad>> Database::OpenLayout(const PlannedRoadOptions& options) {
  return PlannedRoad::Open(*store_, budget_, options);
}

Result<std::unique_ptr<SuperbatchRoad>> Database::OpenSuperbatches(const SuperbatchRoadOptions& options) {
  return SuperbatchRoad::Open(*store_, budget_, options);
}

Result<std::unique_ptr<LiveRoad>> Database::OpenLiveRoad(const LiveRoadOptions& options) {
  return LiveRoad::Open(*store_, budget_, options);
}

Result<std::unique_ptr<sql::Connection>> Database::Connect(const sql::ConnectionOptions& options) {
  return sql::Connection::Open(*store_, budget_, options);
}

Result<sql::Rows> Database::Query(std::string_view sql, std::span<const sql::Value> parameters) {
  if (connection_ == nullptr) {
    QUARRY_TRY(connection_, Connect());
  }
  return connection_->Query(sql, parameters);
}

Result<sql::Rows> Database::Query(std::string_view sql, std::initializer_list<sql::Value> parameters) {
  return Query(sql, std::span(parameters.begin(), parameters.size()));
}

Result<DeviceRecord> Database::Calibrate(bool force) {
  if (!force && manifest()->device) return *manifest()->device;
  QUARRY_TRY(const Calibration calibration, Recalibrate());
  return calibration.device;
}

Result<Calibration> Database::Recalibrate() { return MeasureDevice(*store_, budget_); }

}  // namespace quarry
