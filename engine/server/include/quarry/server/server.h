// Server: one open database for several trainers of one machine, over a Unix socket (docs/protocol.md).
//
//   acceptor     peer's user, number of sessions
//   session      a strand on the I/O threads: cuts frames, decodes, checks the state, and hands requests to ...
//   workers      threads for lookups, samples, puts, commits; nothing of it runs on an I/O thread
//   stream hub   roads and their producers: batches into shared memory, turns by deficit round-robin
//   embeddings   tables that several trainers train: one order of commits
//
// One copy of every cache serves all: what sessions hold comes from one MemoryBudget, divided by admission. A
// client is a stranger: it can hold what its session was granted, and nothing that belongs to others.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/server/sql_runner.h"
#include "quarry/storage/store.h"

namespace quarry {

struct ServerOptions {
  // Its folder is made (0700) when there is none; one that others may enter is refused, unless it is root's and
  // nobody else may write to it.
  std::string socket_path;
  uint32_t sessions_max = 64;
  unsigned io_threads = 2;
  unsigned workers = 4;         // threads that read and sample: they wait for the disk, mostly
  uint64_t threads_max = 1024;  // for streams, where the system's own limits leave as many
  unsigned producing_max = 2;   // streams that copy a batch at a time (the roads read ahead meanwhile)
  // Users who may connect besides the server's own. If there are any, others may enter the folder (0711) and
  // connect (0666), and the kernel says who they are.
  std::vector<uid_t> allow_uids;
  // Interval at which embedding tables that were committed to are checkpointed; a server that is killed loses
  // what was committed since the last time. 0: only `saveTraining` and Stop make checkpoints.
  std::chrono::milliseconds checkpoint_embeddings{60'000};
  // Runs of edges that slow sampling down by more than these times are folded into the graph's file, beside whoever reads
  // (storage/runs_price.h). 0: never; else above 1.
  double auto_compact = 0;
  std::vector<uid_t> read_only_uids;  // users, among these and the server's own, who may not write
  bool read_only = false;             // nobody may
  // HTTP: Prometheus at /metrics, a status page at /. On a Unix socket for the users of the server, at
  // MetricsPath; on 127.0.0.1 for everybody there (0: any free port).
  bool metrics = false;
  std::optional<uint16_t> metrics_port;
  // Runs SQL for clients; null: nobody does.
  std::shared_ptr<SqlRunner> sql;
  // Temporary files of SQL, of all clients together; a connection may have a quarter.
  uint64_t sql_temp_bytes = uint64_t{16} << 30;
};

// Where a server with ServerOptions::metrics listens.
inline std::string MetricsPath(const std::string& socket_path) { return socket_path + ".metrics"; }

class Server {
 public:
  // Streams and clients are refused before they take threads or descriptors beyond what the system's limits
  // leave (RLIMIT_NPROC, RLIMIT_NOFILE, pids.max), some of which stay for the catalog and for writes.
  //
  // Listens. Store and budget outlive the server. kAlreadyExists when a server answers at the socket (a stale
  // one is replaced), kInvalidArgument for a path that cannot be or a folder that others may enter,
  // kOutOfBudget for a budget that no session fits, and where the system has no threads or descriptors for
  // it.
  static Result<std::unique_ptr<Server>> Start(Store& store, MemoryBudget& budget,
                                               const ServerOptions& options);
  // Does what Stop does, without reporting errors.
  virtual ~Server() = default;

  // Accepts nobody any more, cancels what is under way (clients are told kCancelled), checkpoints embedding
  // tables and removes the socket. Idempotent. Returns the first error of a checkpoint.
  virtual Status Stop() = 0;
  virtual const std::string& socket_path() const = 0;
  virtual uint16_t metrics_port() const = 0;  // 0 without one
};

}  // namespace quarry
