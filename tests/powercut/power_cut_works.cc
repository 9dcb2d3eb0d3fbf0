// All that makes something durable.
#include <mutex>
#include <thread>

#include "client/growing_served.h"
#include "compaction_pace.h"
#include "powercut/power_cut_world.h"
#include "quarry/base/progress.h"
#include "quarry/client/store.h"
#include "quarry/layout/rebuild.h"
#include "quarry/served_sql.h"
#include "quarry/server/server.h"
#include "quarry/sql/connection.h"
#include "quarry/storage/checkpoint.h"
#include "quarry/storage/topology_compaction.h"
#include "quarry/storage/training_state.h"
#include "quarry/verify/repair.h"
#include "quarry/verify/verify.h"

namespace quarry::powercut {
namespace {

using crash::Bytes;
using crash::EdgeBatch;
using crash::kWriters;
using crash::WriterBatch;
using testing_util::CompactAll;
using testing_util::GrowingGraph;

// Rows of a table of 125 kB, synced after every third piece.
constexpr CompactionPace kPace{
    .piece_bytes = 16 << 10, .sync_bytes_min = 40 << 10, .sync_bytes_max = 40 << 10};

Status Puts(World& world) {
  QUARRY_RETURN_IF_ERROR(world.Open());
  for (int round = 0; round < 3; ++round) {
    QUARRY_RETURN_IF_ERROR(world.Put(0));
    QUARRY_RETURN_IF_ERROR(world.PutUnsynced(1));
    QUARRY_RETURN_IF_ERROR(world.PutUnsynced(2));
    QUARRY_RETURN_IF_ERROR(world.PutInPieces(0));
    QUARRY_RETURN_IF_ERROR(world.PutUnsynced(1));
    QUARRY_RETURN_IF_ERROR(world.Put(2));
    if (round == 1) QUARRY_RETURN_IF_ERROR(world.Open());  // a clean close between
  }
  return Status::Ok();
}

Status Compact(World& world, const std::string& table, const ProgressFunction& progress = {}) {
  return CompactTable(world.store(), world.budget(), table, /*dry_run=*/false, progress, kPace).status();
}

Status Compactions(World& world) {
  QUARRY_RETURN_IF_ERROR(world.Open());
  QUARRY_RETURN_IF_ERROR(world.Put(0));
  QUARRY_RETURN_IF_ERROR(Compact(world, "feature"));
  QUARRY_RETURN_IF_ERROR(world.Put(1));
  QUARRY_RETURN_IF_ERROR(Compact(world, "label"));
  {
    QUARRY_TRY(const auto held, world.store().TakeSnapshot());
    QUARRY_RETURN_IF_ERROR(Compact(world, "feature"));
    QUARRY_RETURN_IF_ERROR(world.Put(2));
  }
  return world.Put(0);
}

Status ACompactionThatGoesOn(World& world) {
  for (int round = 0; round < 3; ++round) {
    QUARRY_RETURN_IF_ERROR(world.Open());
    QUARRY_RETURN_IF_ERROR(world.Put(0));
    const uint64_t enough = 120 * static_cast<uint64_t>(1 + round);
    const Status stopped = Compact(world, "feature", [&](std::string_view, uint64_t done, uint64_t) {
      return done > enough ? Status(Code::kCancelled, "enough") : Status::Ok();
    });
    if (!stopped.ok() && stopped.code() != Code::kCancelled) return stopped;
  }
  QUARRY_RETURN_IF_ERROR(world.Put(1));
  return Compact(world, "feature");
}

Status Training(World& world) {
  QUARRY_RETURN_IF_ERROR(world.Open());
  QUARRY_RETURN_IF_ERROR(world.Train(6));
  QUARRY_RETURN_IF_ERROR(world.Train(9));
  QUARRY_RETURN_IF_ERROR(world.Put(0));
  return world.Train(4);
}

// Where a process was killed when it had just made the folder.
Status TrainingInAFolderThatNobodySynced(World& world) {
  QUARRY_RETURN_IF_ERROR(EnsureDirectory(world.backend(), world.path() + "/training"));
  QUARRY_RETURN_IF_ERROR(world.Open());
  return world.Train(3);
}

Status Drop(World& world) {
  world.Promise([](Promises& p) { p.has_layout.reset(); });
  QUARRY_RETURN_IF_ERROR(DropLayout(world.store(), "default"));
  world.Promise([](Promises& p) { p.has_layout = false; });
  return Status::Ok();
}

Status Build(World& world) {
  world.Promise([](Promises& p) { p.has_layout = p.has_layout == true ? p.has_layout : std::nullopt; });
  MemoryBudget own(64 * kMiB);  // it takes all that is left, and others work beside it
  QUARRY_RETURN_IF_ERROR(
      BuildLayout(world.store(), own, crash::LayoutToBuild(), /*resume=*/true, {}).status());
  world.Promise([](Promises& p) { p.has_layout = true; });
  return Status::Ok();
}

Status Layouts(World& world) {
  QUARRY_RETURN_IF_ERROR(world.Open());
  QUARRY_RETURN_IF_ERROR(world.Put(0));
  QUARRY_RETURN_IF_ERROR(Build(world));
  QUARRY_RETURN_IF_ERROR(Drop(world));
  return Build(world);
}

Status BuildParts(World& world, uint64_t number) {
  world.Promise([](Promises& p) {
    p.has_partitioning = p.has_partitioning == true ? p.has_partitioning : std::nullopt;
  });
  QUARRY_RETURN_IF_ERROR(
      BuildPartitioning(world.store(), world.budget(), {.table = "feature", .seed = number},
                        crash::PartsToBuild(number, world.store().manifest()->node_count), {})
          .status());
  world.Promise([](Promises& p) { p.has_partitioning = true; });
  return Status::Ok();
}

// Takes in edges that came, with the parts that nodes have.
Status RenewParts(World& world) {
  QUARRY_RETURN_IF_ERROR(world.ChangeGraph());
  const uint64_t seed = world.store().manifest()->FindPartitioning("default")->seed;
  return MakePartitioning(world.store(), world.budget(), {.table = "feature"},
                          {.method = PartitionMethod::kKept, .parts = 0, .seed = seed}, {})
      .status();
}

Status Partitions(World& world) {
  QUARRY_RETURN_IF_ERROR(world.Open());
  QUARRY_RETURN_IF_ERROR(world.Put(0));
  QUARRY_RETURN_IF_ERROR(BuildParts(world, 1));
  QUARRY_RETURN_IF_ERROR(BuildParts(world, 2));
  QUARRY_RETURN_IF_ERROR(RenewParts(world));
  world.Promise([](Promises& p) { p.has_partitioning.reset(); });
  QUARRY_RETURN_IF_ERROR(DropPartitioning(world.store(), "default"));
  world.Promise([](Promises& p) { p.has_partitioning = false; });
  QUARRY_RETURN_IF_ERROR(world.Put(1));
  return BuildParts(world, 3);
}

// By a patch: whether to build anew is a matter of the machine, and not to be one here.
Status Rebuilds(World& world) {
  QUARRY_RETURN_IF_ERROR(world.Open());
  if (world.store().manifest()->layouts.empty()) QUARRY_RETURN_IF_ERROR(Build(world));
  for (const uint64_t room : {kGiB, uint64_t{0}}) {
    QUARRY_RETURN_IF_ERROR(world.Put(0));
    QUARRY_RETURN_IF_ERROR(world.store().UpdateManifest([&](Manifest& manifest) {
      manifest.layouts[0].plan_seconds = 1000;
      manifest.layouts[0].disk_bytes_max = manifest.layouts[0].total_bytes() + room;
      return Status::Ok();
    }));
    QUARRY_RETURN_IF_ERROR(RebuildLayout(world.store(), world.budget(), "default", {}, {}).status());
  }
  return world.Put(1);
}

Status AnImport(World& world) {
  QUARRY_RETURN_IF_ERROR(ImportTinyGraph(world.backend(), crash::Graph(), world.path("/imported")));
  world.Promise([](Promises& p) { p.imported = true; });
  return Status::Ok();
}

// Copies a database that is open for writing, with all that there can be in it; and back again.
Status ACheckpointAndARestore(World& world) {
  QUARRY_RETURN_IF_ERROR(world.Open());
  QUARRY_RETURN_IF_ERROR(world.Put(0));
  QUARRY_RETURN_IF_ERROR(world.Train(5));
  QUARRY_TRY(const CheckpointReport report,
             CheckpointStore(world.store(), world.budget(), world.path("/copy"), {}));
  world.Promise([&](Promises& p) { p.copied = report.timestamp; });
  QUARRY_RETURN_IF_ERROR(world.Put(1));
  QUARRY_TRY(const std::unique_ptr<Store> copy, Store::Open(world.backend(), world.path("/copy")));
  QUARRY_RETURN_IF_ERROR(CheckpointStore(*copy, world.budget(), world.path("/restored"), {}).status());
  world.Promise([](Promises& p) { p.restored = true; });
  return Status::Ok();
}

Status ADroppedTable(World& world) {
  QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(world.backend(), world.path(kOther)));
  QUARRY_RETURN_IF_ERROR(store->DropTable("split"));
  world.Promise([](Promises& p) { p.dropped = true; });
  return Status::Ok();
}

Status Repairs(World& world) {
  {
    QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(world.backend(), world.path(kDamaged)));
    QUARRY_TRY(const VerifyReport found, VerifyStore(*store, {}));
    QUARRY_RETURN_IF_ERROR(RepairStore(*store, found, {}).status());
    world.Promise([](Promises& p) { p.repaired = true; });
  }
  QUARRY_TRY(const auto repaired, RepairCatalog(world.backend(), world.path(kBroken), /*dry_run=*/false));
  if (!repaired) return Status(Code::kInternal, "the catalog was not broken");
  world.Promise([](Promises& p) { p.catalog_repaired = true; });
  return Status::Ok();
}

// Nodes and edges that come and go, beside rows: runs, and files of the topology that they are folded into.
Status Growth(World& world) {
  QUARRY_RETURN_IF_ERROR(world.Open());
  for (int commit = 0; commit < 11; ++commit) {
    QUARRY_RETURN_IF_ERROR(world.ChangeGraph());
    if (commit % 3 == 1) QUARRY_RETURN_IF_ERROR(world.Put(0));
    if (commit == 5) QUARRY_RETURN_IF_ERROR(world.Open());
    if (commit == 6) QUARRY_RETURN_IF_ERROR(Compact(world, "feature"));
    if (commit != 3 && commit != 9) continue;
    QUARRY_RETURN_IF_ERROR(
        CompactTopology(world.store(), world.budget(), "graph", /*dry_run=*/false, {}).status());
  }
  return Status::Ok();
}

// The same of a graph with types, half of it by a server's client.
Status GrowthOfTypes(World& world) {
  QUARRY_TRY(std::unique_ptr<Store> store, Store::Open(world.backend(), world.path(kTypes)));
  for (int commit = 0; commit < 7; ++commit) {
    QUARRY_RETURN_IF_ERROR(
        world.ChangeTypesBy([&](const GrowingGraph& graph, const GrowingGraph::Commit& next) {
          return graph.CommitTo(*store, world.budget(), next);
        }));
    if (commit == 2 || commit == 4) QUARRY_RETURN_IF_ERROR(CompactAll(*store, world.budget()));
    if (commit != 3) continue;
    store.reset();
    QUARRY_TRY(store, Store::Open(world.backend(), world.path(kTypes)));
  }
  const std::string socket = world.folder() + "/run/types";
  QUARRY_TRY(const std::unique_ptr<Server> server,
             Server::Start(*store, world.budget(), {.socket_path = socket}));
  const auto work = [&]() -> Status {
    QUARRY_TRY(const std::unique_ptr<client::Store> served,
               client::Open("unix:" + socket, {.memory_bytes = 256 * kMiB}));
    for (int commit = 0; commit < 5; ++commit) {
      QUARRY_RETURN_IF_ERROR(
          world.ChangeTypesBy([&](const GrowingGraph& graph, const GrowingGraph::Commit& next) {
            return testing_util::CommitServed(*served, graph, next);
          }));
    }
    return Status::Ok();
  };
  const Status done = work();
  const Status stopped = server->Stop();
  return done.ok() ? stopped : done;
}

wire::PutRows RowsToPut(std::string_view table, const std::vector<uint64_t>& ids, const Bytes& rows) {
  const auto id_bytes = std::as_bytes(std::span(ids));
  Bytes block(id_bytes.begin(), id_bytes.end());
  block.insert(block.end(), rows.begin(), rows.end());
  return {.table = std::string(table),
          .rows = ids.size(),
          .row_bytes = static_cast<uint32_t>(rows.size() / ids.size()),
          .block = std::move(block)};
}

std::vector<wire::PutRows> ToPutRows(const WriterBatch& batch) {
  std::vector<uint64_t> written, deleted, labelled;
  Bytes rows, labels;
  for (const auto& [row, value] : batch.rows) {
    (value.empty() ? deleted : written).push_back(row);
    rows.insert(rows.end(), value.begin(), value.end());
  }
  for (const auto& [node, label] : batch.labels) {
    labelled.push_back(node);
    const auto bytes = std::as_bytes(std::span(&label, 1));
    labels.insert(labels.end(), bytes.begin(), bytes.end());
  }
  std::vector<wire::PutRows> tables = {RowsToPut("feature", written, rows)};
  if (!deleted.empty()) tables.push_back(RowsToPut("feature", deleted, {}));
  if (!labelled.empty()) tables.push_back(RowsToPut("label", labelled, labels));
  return tables;
}

Status SaveServed(World& world, client::Store& store) {
  uint64_t number = 0;
  world.Promise([&](Promises& p) { number = ++p.saving; });
  const Bytes state = ServedStateOf(number);
  QUARRY_RETURN_IF_ERROR(store.SaveTraining({.name = "served", .settings = "none", .state = state}).status());
  world.Promise([&](Promises& p) { p.saved = number; });
  return Status::Ok();
}

// What a client sends of a commit of nodes and edges; what goes is in a piece before what comes.
Status ChangeServedGraph(client::Store& store, const EdgeBatch& batch) {
  QUARRY_TRY(const wire::Description description, store.Describe());
  wire::PutGraph nodes = {.first_node = description.node_count, .nodes = batch.node ? 1u : 0u};
  const auto with_edges = [&](const std::vector<Edge>& edges, bool remove) {
    wire::PutGraph graph = nodes;
    std::vector<NodeId> block;
    for (const Edge& edge : edges) block.push_back(static_cast<NodeId>(edge.source));
    for (const Edge& edge : edges) block.push_back(static_cast<NodeId>(edge.destination));
    if (remove && batch.removed_node) block.push_back(*batch.removed_node);
    const auto bytes = std::as_bytes(std::span(block));
    graph.edges = edges.size();
    graph.remove = remove;
    graph.removed_nodes = remove && batch.removed_node ? 1 : 0;
    graph.block = Bytes(bytes.begin(), bytes.end());
    return graph;
  };
  std::vector<wire::PutRows> rows;
  if (batch.node) {
    rows.push_back(RowsToPut("feature", {*batch.node}, crash::Graph().Row(*batch.node)));
    const int64_t label = crash::Graph().Label(*batch.node);
    const auto bytes = std::as_bytes(std::span(&label, 1));
    rows.push_back(RowsToPut("label", {*batch.node}, Bytes(bytes.begin(), bytes.end())));
  }
  if (batch.removed.empty() && !batch.removed_node) {
    return store.ChangeGraph({.tables = rows, .graph = with_edges(batch.added, /*remove=*/false)}).status();
  }
  QUARRY_TRY(const std::unique_ptr<client::LargePut> put, store.BeginPut(nodes));
  QUARRY_RETURN_IF_ERROR(put->Change(with_edges(batch.removed, /*remove=*/true)));
  if (!rows.empty()) QUARRY_RETURN_IF_ERROR(put->Add(rows));
  QUARRY_RETURN_IF_ERROR(put->Change(with_edges(batch.added, /*remove=*/false)));
  return put->Commit().status();
}

// Puts, puts in pieces, changes of the graph, states of trainings and transactions of SQL, of clients.
Status AServer(World& world) {
  QUARRY_RETURN_IF_ERROR(world.Open());
  const std::string socket = world.folder() + "/run/s";
  QUARRY_TRY(const std::unique_ptr<Server> server,
             Server::Start(world.store(), world.budget(),
                           {.socket_path = socket, .sql = MakeSqlRunner(world.store())}));
  const auto work = [&]() -> Status {
    QUARRY_TRY(const std::unique_ptr<client::Store> store,
               client::Open("unix:" + socket, {.memory_bytes = 256 * kMiB}));
    for (int round = 0; round < 2; ++round) {
      QUARRY_RETURN_IF_ERROR(world.WriteBatchBy(
          0, [&](const WriterBatch& rows) { return store->Put({.tables = ToPutRows(rows)}).status(); }));
      QUARRY_RETURN_IF_ERROR(SaveServed(world, *store));
      QUARRY_RETURN_IF_ERROR(world.WriteBatchBy(1, [&](const WriterBatch& rows) -> Status {
        QUARRY_TRY(const std::unique_ptr<client::LargePut> put, store->BeginPut());
        for (const wire::PutRows& table : ToPutRows(rows)) QUARRY_RETURN_IF_ERROR(put->Add({&table, 1}));
        return put->Commit().status();
      }));
      QUARRY_RETURN_IF_ERROR(world.WriteBatchBy(2, [&](const WriterBatch& rows) -> Status {
        QUARRY_TRY(const std::unique_ptr<client::SqlConnection> sql, store->Connect({.write = true}));
        const auto run = [&](std::string_view text, const std::vector<client::Value>& parameters) -> Status {
          QUARRY_TRY(const std::unique_ptr<client::RowCursor> cursor, sql->Query(text, parameters));
          return cursor->Next().status();
        };
        QUARRY_RETURN_IF_ERROR(run("BEGIN", {}));
        for (const auto& [row, value] : rows.rows) {
          QUARRY_RETURN_IF_ERROR(
              run("UPDATE features SET feature = ? WHERE id = ?",
                  {value.empty() ? Bytes(crash::FeatureBytes()) : value, static_cast<int64_t>(row)}));
        }
        for (const auto& [node, label] : rows.labels) {
          QUARRY_RETURN_IF_ERROR(
              run("UPDATE nodes SET label = ? WHERE id = ?", {label, static_cast<int64_t>(node)}));
        }
        return run("COMMIT", {});
      }));
      for (int commit = 0; commit < 3; ++commit) {
        QUARRY_RETURN_IF_ERROR(
            world.ChangeGraphBy([&](const EdgeBatch& batch) { return ChangeServedGraph(*store, batch); }));
      }
    }
    return SaveServed(world, *store);
  };
  const Status done = work();
  const Status stopped = server->Stop();
  return done.ok() ? stopped : done;
}

// A commit of nodes and edges as a transaction; in each, what goes goes first.
template <typename Run>
Status ChangeGraphBySql(const EdgeBatch& batch, const Run& run) {
  QUARRY_RETURN_IF_ERROR(run("BEGIN", {}));
  if (batch.removed_node) {
    QUARRY_RETURN_IF_ERROR(
        run("DELETE FROM nodes WHERE id = ?", {static_cast<int64_t>(*batch.removed_node)}));
  }
  for (const Edge& edge : batch.removed) {
    QUARRY_RETURN_IF_ERROR(run("DELETE FROM edges WHERE src = ? AND dst = ?",
                               {static_cast<int64_t>(edge.source), static_cast<int64_t>(edge.destination)}));
  }
  if (batch.node) {
    const auto node = static_cast<int64_t>(*batch.node);
    const int64_t label = crash::Graph().Label(*batch.node);
    QUARRY_RETURN_IF_ERROR(run("INSERT INTO nodes (id, label) VALUES (?, ?)",
                               {node, label < 0 ? sql::Value() : sql::Value(label)}));
    QUARRY_RETURN_IF_ERROR(run("INSERT OR REPLACE INTO features (id, feature) VALUES (?, ?)",
                               {node, crash::Graph().Row(*batch.node)}));
  }
  for (const Edge& edge : batch.added) {
    QUARRY_RETURN_IF_ERROR(run("INSERT INTO edges (src, dst) VALUES (?, ?)",
                               {static_cast<int64_t>(edge.source), static_cast<int64_t>(edge.destination)}));
  }
  return run("COMMIT", {});
}

// Transactions of the library's own SQL.
Status Sql(World& world) {
  QUARRY_RETURN_IF_ERROR(world.Open());
  QUARRY_TRY(const std::unique_ptr<sql::Connection> sql,
             sql::Connection::Open(world.store(), world.budget(), {.write = true}));
  const auto run = [&](std::string_view text, const std::vector<sql::Value>& parameters) -> Status {
    QUARRY_TRY(sql::Rows rows, sql->Query(text, parameters));
    return rows.Next().status();
  };
  for (int round = 0; round < 4; ++round) {
    QUARRY_RETURN_IF_ERROR(world.WriteBatchBy(round % kWriters, [&](const WriterBatch& rows) -> Status {
      QUARRY_RETURN_IF_ERROR(run("BEGIN", {}));
      for (const auto& [row, value] : rows.rows) {
        QUARRY_RETURN_IF_ERROR(
            run("UPDATE features SET feature = ? WHERE id = ?",
                {value.empty() ? Bytes(crash::FeatureBytes()) : value, static_cast<int64_t>(row)}));
      }
      for (const auto& [node, label] : rows.labels) {
        QUARRY_RETURN_IF_ERROR(
            run("UPDATE nodes SET label = ? WHERE id = ?", {label, static_cast<int64_t>(node)}));
      }
      return run("COMMIT", {});
    }));
    for (int commit = 0; commit < 2; ++commit) {
      QUARRY_RETURN_IF_ERROR(
          world.ChangeGraphBy([&](const EdgeBatch& batch) { return ChangeGraphBySql(batch, run); }));
    }
  }
  return Status::Ok();
}

// Three writers, changes of the graph, compaction, training, layouts and a checkpoint, in threads.
Status AllAtOnce(World& world) {
  QUARRY_RETURN_IF_ERROR(world.Open());
  std::mutex pieces;
  std::vector<Status> statuses(kWriters + 4);
  std::vector<std::thread> threads;
  for (uint64_t writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      for (int i = 0; i < 12 && statuses[writer].ok(); ++i) {
        if (i % 4 != 3) {
          statuses[writer] = world.Put(writer);
        } else {
          const std::lock_guard one_at_a_time(pieces);
          statuses[writer] = world.PutInPieces(writer);
        }
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; i < 4 && statuses[kWriters].ok(); ++i) {
      statuses[kWriters] = Compact(world, i % 2 == 0 ? "feature" : "label");
    }
  });
  threads.emplace_back([&] {
    for (int i = 0; i < 3 && statuses[kWriters + 1].ok(); ++i) statuses[kWriters + 1] = world.Train(5);
  });
  threads.emplace_back([&] {
    statuses[kWriters + 2] = Build(world);
    if (!statuses[kWriters + 2].ok()) return;
    const auto copied = CheckpointStore(world.store(), world.budget(), world.path("/copy"), {});
    if (copied.ok()) world.Promise([&](Promises& p) { p.copied = copied->timestamp; });
    statuses[kWriters + 2] = copied.status();
  });
  threads.emplace_back([&] {
    for (int i = 0; i < 6 && statuses[kWriters + 3].ok(); ++i) {
      const std::lock_guard one_at_a_time(pieces);
      statuses[kWriters + 3] = world.ChangeGraph();
    }
  });
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) QUARRY_RETURN_IF_ERROR(status);
  return Status::Ok();
}

}  // namespace

std::vector<Work> AllWorks() {
  return {{"puts", Puts},
          {"compactions", Compactions},
          {"a compaction that goes on", ACompactionThatGoesOn},
          {"training", Training},
          {"training in a folder that nobody synced", TrainingInAFolderThatNobodySynced},
          {"a graph that grows", Growth},
          {"a graph with types that grows", GrowthOfTypes, {kTypes}},
          {"layouts", Layouts},
          {"partitions", Partitions},
          {"rebuilds", Rebuilds},
          {"an import", AnImport, {}},
          {"a checkpoint and a restore", ACheckpointAndARestore},
          {"a dropped table", ADroppedTable, {kOther}},
          {"repairs", Repairs, {kDamaged, kBroken}},
          {"a server", AServer},
          {"SQL", Sql},
          {"all at once", AllAtOnce}};
}

}  // namespace quarry::powercut
