#include "server_core.h"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "quarry/base/process_limits.h"
#include "quarry/base/units.h"
#include "quarry/catalog/open_tables.h"
#include "quarry/layout/layout.h"

namespace quarry {
namespace {

constexpr unsigned kWriters = 4;
constexpr unsigned kSqlWorkers = 4;

// For io_uring's workers, helpers that copy and sample, and embedding tables that are opened.
constexpr uint64_t kSpareThreads = 8;

// For tables of the catalog, of which few are open when the server starts, logs that it starts, files of writes, tables
// that are opened, and the status page: half of what there is where that is little.
constexpr uint64_t kSpareDescriptorsMin = kTablesOpenOfFew + 12, kSpareDescriptorsMax = 128;
uint64_t SpareDescriptors(uint64_t left) {
  return std::clamp(left / 2, kSpareDescriptorsMin, kSpareDescriptorsMax);
}

// Tables' checksums, changed rows, a topology and the pools of embedding tables are open once for all.
uint64_t CommonBytes(uint64_t budget_bytes) { return budget_bytes / 4; }

std::array<std::byte, 16> RandomId() {
  std::random_device device;
  std::array<std::byte, 16> id{};
  for (std::byte& byte : id) byte = static_cast<std::byte>(device());
  return id;
}

std::vector<uid_t> UsersOf(const ServerOptions& options) {
  std::vector<uid_t> users = options.allow_uids;
  users.push_back(geteuid());
  return users;
}

// Nobody else shall take of it what sessions are promised.
MemoryBudget::Reservation ReserveAll(MemoryBudget& budget) {
  auto all = budget.Reserve(budget.available_bytes(), "the server");
  return all.ok() ? std::move(all).value() : MemoryBudget::Reservation();
}

}  // namespace

ServerCore::ServerCore(Store& the_store, MemoryBudget& budget, const ServerOptions& options)
    : store(the_store),
      server_id(RandomId()),
      reservation(ReserveAll(budget)),
      common(CommonBytes(reservation.bytes())),
      granted(reservation.bytes() - common.limit_bytes()),
      users(UsersOf(options)),
      sql_memory(reservation.bytes(), granted, admission, options.sql),
      tables(the_store, common),
      blocks(the_store, common),
      embeddings(the_store, common, common.limit_bytes() / 2),
      trainings(the_store, embeddings),
      maintenance(the_store, embeddings, tables),
      sql(options.sql),
      sql_disk(options.sql_temp_bytes, users),
      read_only(options.read_only),
      read_only_users(options.read_only_uids) {
  announced = {.message_bytes_max = limits.message_bytes_max,
               .outstanding_max = limits.outstanding_max,
               .ids_max = limits.ids_max,
               .sessions_max = options.sessions_max,
               .budget_bytes = granted.limit_bytes()};
  const DeviceProfile profile = ProfileOf(*store.manifest());
  for (unsigned i = 0; i < std::max(1U, options.workers); ++i) {
    fetchers.push_back(std::make_unique<RowFetcher>(store.backend(), common, profile));
  }
}

ServerCore::~ServerCore() = default;

Status ServerCore::Start(const ServerOptions& options) {
  QUARRY_RETURN_IF_ERROR(readers.Start(static_cast<unsigned>(fetchers.size())));
  QUARRY_RETURN_IF_ERROR(writers.Start(kWriters));
  QUARRY_RETURN_IF_ERROR(maintainers.Start(1));
  if (sql != nullptr) QUARRY_RETURN_IF_ERROR(sql_workers.Start(kSqlWorkers));
  const uint64_t left = DescriptorsLeft();
  descriptors.emplace(left, SpareDescriptors(left), UINT64_MAX, "descriptors",
                      "raise the server's limit of descriptors (ulimit -n)");
  if (descriptors->limit() < kSessionDescriptors) {
    return MakeStatus(
        Code::kOutOfBudget,
        "the limit of descriptors (ulimit -n) leaves {}, and a server needs {} at least: raise it", left,
        kSpareDescriptorsMin + kSessionDescriptors);
  }
  threads.emplace(
      ThreadsLeft(), kSpareThreads + options.io_threads, options.threads_max, "threads",
      "raise the server's limit of them (--max-threads) or of processes (ulimit -u, the cgroup's pids.max)");
  hub = StreamHub::Make(
      store, {.threads = &*threads, .descriptors = &*descriptors, .producing_max = options.producing_max},
      &roads);
  return Status::Ok();
}

Status ServerCore::MayWrite(uid_t user) const {
  if (read_only) return {Code::kUsage, "this server is read-only (quarry serve --read-only)"};
  if (std::ranges::find(read_only_users, user) == read_only_users.end()) return Status::Ok();
  return MakeStatus(Code::kUsage, "user {} may only read here (quarry serve --allow-uid {}:ro)", user, user);
}

}  // namespace quarry
