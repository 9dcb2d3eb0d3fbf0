#include "quarry/database.h"

#include <filesystem>
#include <random>

#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/objects/push.h"
#include "quarry/objects/thin_database.h"
#include "quarry/storage/lock.h"
#include "quarry/storage/run_merger.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr const char* kViewPrefix = "quarry-view-";

// Pauses before requests are made again differ from one process to another: that is what their seed is for.
uint64_t AnySeedOfPauses() { return std::random_device()(); }

// What the environment says of the cache, where the caller says nothing.
Status TakeCacheOfEnvironment(DatabaseOptions& options) {
  if (!options.cache_folder.empty()) return Status::Ok();
  const auto folder = ProcessEnvironment("QUARRY_CACHE_DIR"), size = ProcessEnvironment("QUARRY_CACHE_SIZE");
  if (!folder && !size) return Status::Ok();
  if (!folder || !size) {
    return MakeStatus(Code::kUsage, "{} is set in the environment, and {} is not",
                      folder ? "QUARRY_CACHE_DIR" : "QUARRY_CACHE_SIZE",
                      folder ? "QUARRY_CACHE_SIZE" : "QUARRY_CACHE_DIR");
  }
  options.cache_folder = *folder;
  const auto bytes = ParseBytes(*size, 0);
  if (!bytes.ok()) return MakeStatus(Code::kUsage, "QUARRY_CACHE_SIZE: {}", bytes.status().message());
  options.cache_bytes = *bytes;
  return Status::Ok();
}

}  // namespace

// Made by one process, which has it locked, and removed by it; or by the next one, if it was killed.
struct Database::View {
  static Result<std::unique_ptr<View>> Make() {
    std::error_code error;
    const fs::path parent = fs::temp_directory_path(error);
    if (error) return ErrnoStatus(error.value(), "find the folder for temporary files", "TMPDIR");
    RemoveDead(parent);
    auto view = std::make_unique<View>();
    std::string folder = (parent / (std::string(kViewPrefix) + "XXXXXX")).string();
    if (mkdtemp(folder.data()) == nullptr) return ErrnoStatus(errno, "make the folder", folder);
    view->folder = folder;
    QUARRY_TRY(FolderLock lock, FolderLock::Acquire(folder));
    view->lock.emplace(std::move(lock));
    return view;
  }
  static void RemoveDead(const fs::path& parent) {
    std::error_code error;
    for (fs::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
      const std::string path = entry->path().string();
      // One without LOCK is being made, or removed.
      if (!entry->path().filename().string().starts_with(kViewPrefix) || !fs::exists(path + "/LOCK", error))
        continue;
      const auto dead = FolderLock::Acquire(path);
      std::error_code ignored;
      if (dead.ok() && dead->Holds(path)) fs::remove_all(path, ignored);
    }
  }
  ~View() {
    std::error_code ignored;
    if (!folder.empty()) fs::remove_all(folder, ignored);
  }
  std::string path() const { return folder + "/db"; }

  std::string folder;
  std::optional<FolderLock> lock;
};

Database::Database(std::unique_ptr<View> view, std::unique_ptr<IoBackend> backend,
                   std::unique_ptr<Store> store, uint64_t memory_bytes)
    : view_(std::move(view)), backend_(std::move(backend)), store_(std::move(store)), budget_(memory_bytes) {
  store_->merger().Start(budget_);
}

// The budget goes before the store.
Database::~Database() { store_->merger().Finish(); }

Result<std::unique_ptr<Database>> Database::Open(const std::string& address, DatabaseOptions options) {
  std::unique_ptr<IoBackend> backend = std::move(options.backend);
  if (!backend) backend = MakeDefaultBackend();
  uint64_t memory_bytes = options.memory_bytes != 0 ? options.memory_bytes : MemoryLimitBytes() / 10 * 8;
  std::string path = address;
  std::unique_ptr<View> view;
  const bool published = IsObjectAddress(address);
  if (published || IsThin(path)) {
    ThinOptions thin{.read_only = published, .store = {.seed = AnySeedOfPauses()}};
    QUARRY_TRY(thin.memory_bytes, ThinMemoryBytes(memory_bytes));
    QUARRY_RETURN_IF_ERROR(TakeCacheOfEnvironment(options));
    thin.cache_folder = options.cache_folder;
    thin.cache_bytes = options.cache_bytes;
    if (published) {
      QUARRY_TRY(const ObjectPlace place, ParseObjectPlace(address));
      QUARRY_TRY(const ObjectAccess access, ResolveObjectAccess(place));
      QUARRY_TRY(view, View::Make());
      path = view->path();
      MemoryBudget transfers(thin.memory_bytes);
      ObjectStoreOptions few = thin.store;
      few.in_flight_max = kThinBlocksMin;
      QUARRY_TRY(const auto store, ObjectStore::Open(place, access, transfers, few));
      QUARRY_RETURN_IF_ERROR(PullDatabase(*store, *backend, transfers, path, {}, /*thin=*/true).status());
    }
    QUARRY_TRY(backend, OpenThin(std::move(backend), path, thin));
    memory_bytes -= thin.memory_bytes;
  }
  QUARRY_TRY(std::unique_ptr<Store> store, Store::Open(*backend, path));
  return std::unique_ptr<Database>(
      new Database(std::move(view), std::move(backend), std::move(store), memory_bytes));
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
