// client::Store: a database as its users hold it, in this process or behind a server: the same calls, the
// same results (docs/protocol.md says what each does).
//
//   auto store = client::Open("path/to/db");             embedded: needs the whole library
//   auto store = client::Open("s3://bucket/db");         the same, read where it is published (docs/objects.md)
//   auto store = client::Open("unix:/run/quarry.sock");  remote: of a server (`quarry serve`)
//
// A server is heard when it runs as root, as the user of this process, or as the one that the address names:
// "unix:/run/quarry.sock?server-uid=1000"; any other is kInvalidArgument.
//
// The remote form lives in a library of its own, which links neither RocksDB nor LibTorch: there client::Open
// opens servers only. Requests are the plain values of quarry/format/wire_requests.h, with ids in memory
// (ranges are the transport's matter).
//
// A Store is thread-safe. Streams and batches that it gave out must be gone before it. A remote store
// reconnects by itself, with pauses that double from 10 ms to 1 s, and sends again what may be sent again;
// what went with the connection (a stream's pass) is opened anew and goes on behind the last batch that was
// used, where passes are ordered. After `timeout_seconds` without an answer a call fails with kIoError;
// quarry/client/sql.h says when an SQL statement does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/client/large_put.h"
#include "quarry/client/sql.h"
#include "quarry/client/stream_device.h"
#include "quarry/format/batch_view.h"
#include "quarry/format/wire_batch.h"
#include "quarry/format/wire_maintenance.h"
#include "quarry/format/wire_requests.h"
#include "quarry/format/wire_responses.h"

namespace quarry {
class Database;  // quarry/database.h, of libquarry alone
}  // namespace quarry

namespace quarry::client {

struct OpenOptions {
  // Embedded: the engine's budget (0: 80 % of what the machine allows). Remote: asked of the server's.
  uint64_t memory_bytes = 0;
  std::string cache_folder = {};  // embedded: of what is in an object store, as in quarry/database.h
  uint64_t cache_bytes = 0;       // the same
  uint64_t memory_bytes_min = 0;  // remote: with less, kOutOfBudget
  double wait_seconds = 0;        // remote: for that much memory to become free
  double timeout_seconds = 60;    // remote: of a request, reconnecting included
  bool inline_only = false;       // remote: no shared memory, everything through the socket
};

// Rows that Lookup gave: as the table encodes them, one behind the other.
class Rows {
 public:
  virtual ~Rows() = default;
  virtual uint64_t count() const = 0;
  virtual uint32_t dim() const = 0;
  virtual ElementType element_type() const = 0;
  virtual std::span<const std::byte> bytes() const = 0;
};

// A mini-batch, read in place, and checked: its arrays are a block. Valid until it dies, which must be before
// its stream does.
using quarry::Batch;

// One road. For one thread at a time: threads that share its batches take turns at Next. Processes share or
// split the batches of a road as a group (wire::StreamMode), which a server has; an embedded store has none
// (kUnsupported).
class Stream {
 public:
  virtual ~Stream() = default;
  virtual uint32_t feature_dim() const = 0;
  virtual uint32_t slots() const = 0;                                    // batches that may be held at a time
  virtual uint64_t timestamp() const = 0;                                // of the snapshot that it reads
  virtual std::optional<wire::OpenedParts> parts() const { return {}; }  // of the partitioned road
  // Batches of the pass. A pass that runs is given up. `request.stream` is set by the store.
  virtual Result<uint64_t> StartPass(wire::StartPass request) = 0;
  virtual Result<std::unique_ptr<Batch>> Next() = 0;  // null behind the last
  virtual Result<wire::Counters> Stats() = 0;
};

// A point in time; kept until it dies, which must be before its store does.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  virtual uint64_t id() const = 0;  // for Lookup and OpenStream
  virtual uint64_t timestamp() const = 0;
};

class EmbeddingRows {
 public:
  virtual ~EmbeddingRows() = default;
  virtual wire::RowBlockShape shape() const = 0;
  virtual wire::RowBlockArrays<true> arrays() = 0;  // the caller's to change, and to commit
};

// The last checkpoint of a training run, which the same trainer or another one can go on from.
struct Training {
  std::string settings;  // all that decided its result
  std::string config;    // what it was started with, as text; empty: nobody said
  std::string created_utc;
  int64_t timestamp = -1;        // of the embedding tables that belong to it; -1: none
  std::vector<std::byte> state;  // as the trainer wrote it
};

class Store {
 public:
  virtual ~Store() = default;
  virtual Result<wire::Description> Describe() = 0;
  virtual Result<std::unique_ptr<Rows>> Lookup(const wire::Lookup& request) = 0;
  virtual Result<std::unique_ptr<Batch>> Sample(const wire::Sample& request) = 0;  // without labels, features
  virtual Result<std::unique_ptr<Stream>> OpenStream(const wire::OpenStream& request,
                                                     const StreamDevice& device = {}) = 0;
  virtual Result<std::unique_ptr<Snapshot>> TakeSnapshot() = 0;
  // Rows of several tables, visible together under the timestamp that comes back. `number` is the store's.
  virtual Result<uint64_t> Put(const wire::Put& request) = 0;
  // With a `graph`, whose topology and nodes are those of all that follows, also nodes come, and edges come or go.
  virtual Result<std::unique_ptr<LargePut>> BeginPut(const std::optional<wire::PutGraph>& graph = {}) = 0;
  // Nodes, edges and rows, visible together and on disk: `request.graph` is set, and request.tables may have rows of the
  // added nodes. Once it returns, whoever opens the graph has them; what is open goes on with what it has. kBusy when
  // there are other nodes by now than request.graph->first_node says, and beside another change of the graph.
  virtual Result<wire::GraphChanged> ChangeGraph(const wire::Put& request) = 0;
  virtual Result<std::unique_ptr<EmbeddingRows>> ReadEmbeddings(std::string_view table,
                                                                std::span<const uint64_t> ids) = 0;
  struct Update {
    std::string table;
    EmbeddingRows* rows = nullptr;  // with the timestamps that were read
  };
  virtual Result<wire::EmbeddingsCommitted> CommitEmbeddings(std::span<const Update> updates) = 0;
  // kNotFound lists the runs that there are. Without its state it takes no memory.
  virtual Result<Training> ReadTraining(std::string_view name, bool with_state = true) = 0;
  struct TrainingToSave {
    std::string name;
    std::string settings;
    std::string config = {};           // at most 32 KiB
    std::span<const std::byte> state;  // a byte at least
    bool with_embeddings = false;      // in one commit with all that was committed to embedding tables
  };
  // Replaces the run's last checkpoint, at once and on disk. Returns what ReadTraining would, without the state.
  virtual Result<Training> SaveTraining(const TrainingToSave& training) = 0;
  // Reads head, relation and tail of edges [first, first + count) of a topology, one edge after the other, in
  // the order of the database (by destination); fewer at the end. All that a call gives is of one list, though edges
  // come and go meanwhile. `list` makes several calls one: 0 before the first, it is the list's number afterwards, and
  // kBusy says that there is no such list any more.
  virtual Result<std::vector<uint32_t>> ReadEdges(std::string_view topology, uint64_t first, uint64_t count,
                                                  uint64_t* list = nullptr) = 0;
  virtual Result<wire::Counters> Stats() = 0;
  // Stats, and a server's sessions and streams; an embedded store lists neither.
  virtual Result<wire::ServerStatus> ServerStatus() = 0;
  virtual Status Ping() = 0;
  // The database behind an embedded store, which lives as long, for what there is no call here; null of a server's.
  virtual Database* database() { return nullptr; }
  // Does what keeps the database in order (wire_maintenance.h), within the memory of this store: a check of all
  // of it, a compaction, a checkpoint, an export, a layout, a calibration. Others read and write meanwhile. Faults that a
  // check finds are no error. However long it takes: `progress` is called on this thread, now and then, and what
  // it returns other than OK ends the task, which undoes itself, and is returned. So does the end of this store's
  // connection. An error leaves the database as it was, and is what the engine's function of the task says;
  // kInvalidArgument for names that cannot be, kOutOfBudget with the least memory that would do. A server has
  // one task at a time (kBusy names it), takes paths from / on alone, and makes checkpoints and exports for its
  // own user and root only (kUsage); kIoError when it went away: what it had begun was cancelled.
  virtual Result<wire::MaintenanceReport> Maintain(const wire::MaintenanceTask& task,
                                                   const ProgressFunction& progress = {}) = 0;
  // The catalog's manifest, as DecodeManifest (quarry/format/manifest.h) takes it.
  virtual Result<std::vector<std::byte>> ReadManifest() = 0;
  // Makes an embedding table of rows that nobody has written, without writing them, whatever its size.
  // kAlreadyExists; kInvalidArgument for a name with anything but letters, digits, - and _, and for an
  // impossible table.
  Status CreateEmbeddings(std::string_view table, const EmbeddingSpec& spec) {
    return Maintain(wire::CreateEmbeddings{std::string(table), spec}).status();
  }
  // Removes it, with all that was committed to it. kNotFound lists what there is; kBusy while another thread uses it.
  Status DropEmbeddings(std::string_view table) {
    return Maintain(wire::DropEmbeddings{std::string(table)}).status();
  }
  // Makes a table of a row of zeros for each node, to be put to. kAlreadyExists; kInvalidArgument for rows that cannot be.
  Status CreateTable(std::string_view table, ElementType type, uint64_t dim) {
    return Maintain(wire::CreateTable{std::string(table), type, dim}).status();
  }
  // Opens an SQL connection, with a transaction and tables of its own.
  virtual Result<std::unique_ptr<SqlConnection>> Connect(const SqlOptions& options = {}) = 0;
  // Runs the one statement of `sql`, on a connection that goes with its rows. The rows are for one thread at a time.
  Result<std::unique_ptr<RowCursor>> Query(std::string_view sql, std::span<const Value> parameters = {},
                                           const SqlOptions& options = {});
};

// What the address of a server begins with; its socket's path follows.
inline constexpr std::string_view kServerScheme = "unix:";
// "unix:PATH". kNotFound when nobody listens there, kUnsupported for a server of another protocol.
Result<std::unique_ptr<Store>> OpenRemote(std::string_view address, const OpenOptions& options = {});
// The same, or the database at the path. Errors as Database::Open.
Result<std::unique_ptr<Store>> Open(std::string_view address, const OpenOptions& options = {});

}  // namespace quarry::client
