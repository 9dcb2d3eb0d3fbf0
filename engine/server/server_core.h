// ServerCore: what the sessions of a server share. Built by the server, which outlives them.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "admission.h"
#include "maintenance_turn.h"
#include "metrics_http.h"
#include "quarry/base/budget.h"
#include "quarry/format/wire.h"
#include "quarry/server/server.h"
#include "quarry/server/sql_runner.h"
#include "quarry/service/allowance.h"
#include "quarry/service/block_sampler.h"
#include "quarry/service/embedding_service.h"
#include "quarry/service/maintenance.h"
#include "quarry/service/metrics.h"
#include "quarry/service/road_metrics.h"
#include "quarry/service/row_fetcher.h"
#include "quarry/service/stored_tables.h"
#include "quarry/service/stream_hub.h"
#include "quarry/service/training_service.h"
#include "quarry/storage/store.h"
#include "request_metrics.h"
#include "retry_memory.h"
#include "sql_disk.h"
#include "sql_memory.h"
#include "staged_put.h"
#include "workers.h"

namespace quarry {

// What a session takes: its socket, and two regions.
inline constexpr uint64_t kSessionDescriptors = 3;
// What the least session is granted.
inline constexpr uint64_t kSessionBytesMin = uint64_t{1} << 20;
// The least budget that has one beside what is open for all.
inline constexpr uint64_t kServerBytesMin = (kSessionBytesMin * 4 + 2) / 3;

struct ServerCore {
  ServerCore(Store& the_store, MemoryBudget& budget, const ServerOptions& options);
  ~ServerCore();
  // Starts the threads, and finds out how many threads and descriptors streams may have beside them.
  // kOutOfBudget where the system has none, or too few descriptors to serve anybody.
  Status Start(const ServerOptions& options);
  ServerCore(const ServerCore&) = delete;
  ServerCore& operator=(const ServerCore&) = delete;

  Store& store;
  std::array<std::byte, 16> server_id{};  // another after every start
  wire::Limits limits;                    // for messages
  wire::ServerLimits announced;           // the same, as clients are told them

  // The server's budget, divided: what is open once for all of them, and what sessions are granted.
  MemoryBudget::Reservation reservation;
  MemoryBudget common;
  MemoryBudget granted;
  const std::vector<uid_t> users;  // who may come
  // OK when the user may write; else kUsage, which names the role.
  Status MayWrite(uid_t user) const;
  Admission admission{granted, users};
  SqlMemory sql_memory;

  // Once the threads of Start are there; streams and sessions take from them.
  std::optional<Allowance> threads, descriptors;

  Metrics metrics;
  RequestMetrics requests{metrics};
  RoadMetrics roads{metrics};
  std::function<wire::ServerStatus()> status;  // set by the server; for any thread

  RetryMemory retries{users};
  PutTurn put_turn;
  StoredTables tables;
  BlockSampler blocks;
  EmbeddingService embeddings;
  TrainingService trainings;
  Maintenance maintenance;
  MaintenanceTurn maintenance_turn;
  std::vector<std::unique_ptr<RowFetcher>> fetchers;  // one a thread of the readers

  boost::asio::io_context io;
  std::function<void(SessionId)> on_session_end;  // on any thread, once for each

  // Writes wait for the disk, and share its syncs: they have threads of their own, so that reads do not wait
  // behind them.
  Workers readers;
  Workers writers;
  // Statements of SQL may take an hour, and cannot be interrupted for others.
  const std::shared_ptr<SqlRunner> sql;  // null: this server runs none
  Workers sql_workers;
  Workers maintainers;  // one thread: maintenance may take hours, and there is one task at a time
  SqlDisk sql_disk;

  const bool read_only;
  const std::vector<uid_t> read_only_users;
  std::unique_ptr<StreamHub> hub;
};

}  // namespace quarry
