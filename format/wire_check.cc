#include "wire_check.h"

#include <algorithm>
#include <cmath>

#include "wire_rules.h"

namespace quarry::wire {
namespace {

// ---- requests

// Only planned passes have an order of seeds.
Status Check(const LiveSpec& spec) {
  if (spec.seed_order != SeedOrder::kRandom) return Fault("a live road of seeds that are not shuffled");
  return CheckRoad(spec);
}

Status Check(const PlannedSpec& spec) {
  QUARRY_RETURN_IF_ERROR(CheckName(spec.layout, "layout"));
  return spec.live ? Check(*spec.live) : Status();
}

Status Check(const SuperbatchSpec& spec) {
  QUARRY_RETURN_IF_ERROR(CheckRoad(spec.live));
  QUARRY_RETURN_IF_ERROR(CheckKnown(spec.live.seed_order));
  QUARRY_RETURN_IF_ERROR(CheckKnown(spec.policy));
  return CheckKnown(spec.packing);
}

Status Check(const PartitionedSpec& spec) {
  QUARRY_RETURN_IF_ERROR(CheckName(spec.partitioning, "partitioning"));
  return Check(spec.live);
}

struct RequestCheck {
  const Limits& limits;

  Status operator()(const Hello& hello) const {
    if (hello.version_min == 0 || hello.version_min > hello.version_max) {
      return Fault("protocol versions {} to {}", hello.version_min, hello.version_max);
    }
    if (hello.message_bytes_max >= limits.hello_bytes_max) return Status();
    return Fault("messages of at most {} bytes: at least {} are needed", hello.message_bytes_max,
                 limits.hello_bytes_max);
  }

  Status operator()(const OpenSession& session) const {
    if (session.budget_bytes_min <= session.budget_bytes) return Status();
    return Fault("a budget of {} bytes, and at least {}", session.budget_bytes, session.budget_bytes_min);
  }

  Status operator()(const Lookup& lookup) const {
    QUARRY_RETURN_IF_ERROR(CheckTableName(lookup.table));
    return CheckIds(lookup.ids, limits.ids_max, "ids");
  }

  Status operator()(const Sample& sample) const {
    QUARRY_RETURN_IF_ERROR(CheckName(sample.topology, "topology"));
    QUARRY_RETURN_IF_ERROR(CheckPositive(sample.seeds.size(), "the number of seeds"));
    QUARRY_RETURN_IF_ERROR(CheckCount(sample.seeds.size(), limits.ids_max, "seeds"));
    QUARRY_RETURN_IF_ERROR(CheckKnown(sample.direction));
    return CheckFanouts(sample.fanouts, sample.relation_fanouts.empty() ? kFanoutMax : kTypedFanoutMax);
  }

  Status operator()(const OpenStream& open) const {
    QUARRY_RETURN_IF_ERROR(std::visit([](const auto& spec) { return Check(spec); }, open.road));
    QUARRY_RETURN_IF_ERROR(CheckEnum(open.mode, StreamMode::kSplit, "stream mode"));
    QUARRY_RETURN_IF_ERROR(CheckPositive(open.members, "the number of members"));
    QUARRY_RETURN_IF_ERROR(CheckCount(open.members, limits.members_max, "members of a group"));
    if (open.mode != StreamMode::kExclusive) return CheckName(open.group, "group");
    if (open.group.empty() && open.members == 1) return Status();
    return Fault("an exclusive stream with a group, or with {} members", open.members);
  }

  Status operator()(const StartPass& pass) const {
    QUARRY_RETURN_IF_ERROR(CheckPositive(pass.stream, "the stream"));
    if (const auto* ids = std::get_if<NodeIds>(&pass.seeds)) return CheckIds(*ids, kNodeCountMax, "seeds");
    const Split split = std::get<Split>(pass.seeds);
    QUARRY_RETURN_IF_ERROR(CheckPositive(static_cast<uint64_t>(split), "the split"));
    return CheckEnum(split, Split::kTest, "split");
  }

  Status operator()(const NextBatch& next) const { return CheckPositive(next.stream, "the stream"); }
  Status operator()(const CloseStream& close) const { return CheckPositive(close.stream, "the stream"); }

  Status operator()(const ReleaseLeases& release) const {
    QUARRY_RETURN_IF_ERROR(CheckCount(release.leases.size(), kListedMax, "leases"));
    const bool all = std::ranges::find(release.leases, uint64_t{0}) == release.leases.end();
    return CheckPositive(all ? 1 : 0, "a lease");
  }

  Status operator()(const ReadLease& read) const {
    QUARRY_RETURN_IF_ERROR(CheckPositive(read.lease, "the lease"));
    QUARRY_RETURN_IF_ERROR(CheckPositive(read.bytes, "the number of bytes"));
    return CheckCount(read.offset, kRegionBytesMax, "bytes into a lease");
  }

  Status operator()(const ReadEmbeddings& read) const {
    QUARRY_RETURN_IF_ERROR(CheckName(read.table, "embedding table"));
    return CheckIds(read.ids, limits.ids_max, "rows");
  }

  Status operator()(const CommitEmbeddings& commit) const {
    QUARRY_RETURN_IF_ERROR(CheckPositive(commit.number, "the number of the write"));
    QUARRY_RETURN_IF_ERROR(CheckPositive(commit.updates.size(), "the number of tables"));
    QUARRY_RETURN_IF_ERROR(CheckCount(commit.updates.size(), kListedMax, "tables"));
    for (const EmbeddingUpdate& update : commit.updates) {
      QUARRY_RETURN_IF_ERROR(CheckName(update.table, "embedding table"));
      const RowBlockShape shape = {update.rows, update.dim, update.state_dim};
      QUARRY_RETURN_IF_ERROR(CheckShape(shape, limits));
      QUARRY_RETURN_IF_ERROR(CheckBulk(update.block, RowBlockBytes(shape), "row block"));
    }
    return Status();
  }

  Status operator()(const Put& put) const {
    QUARRY_RETURN_IF_ERROR(CheckPositive(put.number, "the number of the write"));
    if (put.last && put.piece == 0) return Fault("the last piece of a put that has none");
    const bool may_have_none = put.last || put.graph;
    if (!may_have_none) QUARRY_RETURN_IF_ERROR(CheckPositive(put.tables.size(), "the number of tables"));
    if (put.graph) QUARRY_RETURN_IF_ERROR(CheckGraph(*put.graph, limits));
    QUARRY_RETURN_IF_ERROR(CheckCount(put.tables.size(), kListedMax, "tables"));
    for (const PutRows& rows : put.tables) {
      QUARRY_RETURN_IF_ERROR(CheckTableName(rows.table));
      QUARRY_RETURN_IF_ERROR(CheckCount(rows.rows, limits.ids_max, "rows"));
      QUARRY_RETURN_IF_ERROR(CheckBulk(rows.block, rows.rows * (8 + uint64_t{rows.row_bytes}), "rows"));
    }
    return Status();
  }

  Status operator()(const ForgetPut& forget) const {
    return CheckPositive(forget.number, "the number of the write");
  }

  Status operator()(const SaveTraining& save) const {
    QUARRY_RETURN_IF_ERROR(CheckName(save.name, "training run"));
    QUARRY_RETURN_IF_ERROR(CheckCount(save.settings.size(), kSettingsBytesMax, "bytes of settings"));
    QUARRY_RETURN_IF_ERROR(CheckCount(save.config.size(), kConfigBytesMax, "bytes of a configuration"));
    QUARRY_RETURN_IF_ERROR(CheckCount(save.state_bytes, kStateBytesMax, "bytes of a training state"));
    const uint64_t bytes = BytesOf(save.piece);
    QUARRY_RETURN_IF_ERROR(CheckPositive(bytes, "the number of bytes of a training state's piece"));
    QUARRY_RETURN_IF_ERROR(CheckBulk(save.piece, bytes, "a training state's piece"));
    if (bytes <= save.state_bytes && save.offset <= save.state_bytes - bytes) return Status();
    return Fault("{} bytes at {} of a training state of {}", bytes, save.offset, save.state_bytes);
  }

  Status operator()(const ReadTraining& read) const { return CheckName(read.name, "training run"); }

  Status operator()(const ReadEdges& read) const {
    QUARRY_RETURN_IF_ERROR(CheckName(read.topology, "topology"));
    QUARRY_RETURN_IF_ERROR(CheckPositive(read.count, "the number of edges"));
    return CheckCount(read.count, limits.ids_max, "edges");
  }

  Status operator()(const OpenSql& open) const {
    if (std::isfinite(open.timeout_seconds) && open.timeout_seconds >= 0) return Status();
    return Fault("a timeout of {} seconds", open.timeout_seconds);
  }
  Status operator()(const CloseSql& close) const {
    return CheckPositive(close.connection, "the SQL connection");
  }
  Status operator()(const Query& query) const {
    QUARRY_RETURN_IF_ERROR(CheckPositive(query.connection, "the SQL connection"));
    QUARRY_RETURN_IF_ERROR(CheckCount(BytesOf(query.text), kSqlTextBytesMax, "bytes of SQL"));
    QUARRY_RETURN_IF_ERROR(CheckBulk(query.text, BytesOf(query.text), "SQL"));
    QUARRY_RETURN_IF_ERROR(CheckCount(query.parameters, kSqlParametersMax, "parameters"));
    QUARRY_RETURN_IF_ERROR(CheckCount(BytesOf(query.values), kSqlRowBytesMax, "bytes of parameters"));
    QUARRY_RETURN_IF_ERROR(CheckBulk(query.values, BytesOf(query.values), "parameters"));
    if (!query.script || query.parameters == 0) return Status();
    return Fault("a script with {} parameters: a single statement has them", query.parameters);
  }
  Status operator()(const Fetch& fetch) const { return CheckPositive(fetch.cursor, "the cursor"); }
  Status operator()(const CloseQuery& close) const { return CheckPositive(close.cursor, "the cursor"); }

  Status operator()(const ReleaseSnapshot& release) const {
    return CheckPositive(release.snapshot, "the snapshot");
  }
  Status operator()(const Maintain& maintain) const { return CheckTask(maintain.task); }
  Status operator()(const Cancel& cancel) const { return CheckPositive(cancel.request, "the request"); }

  // These have nothing that could be wrong.
  Status operator()(const Describe&) const { return Status(); }
  Status operator()(const TakeSnapshot&) const { return Status(); }
  Status operator()(const Stats&) const { return Status(); }
  Status operator()(const Ping&) const { return Status(); }
  Status operator()(const GetStatus&) const { return Status(); }
  Status operator()(const ReadManifest&) const { return Status(); }
};

// ---- answers

Status Check(const TableInfo& table) {
  QUARRY_RETURN_IF_ERROR(CheckTableName(table.name));
  return CheckElementType(table.element_type, "a table");
}

Status Check(const LayoutInfo& layout) {
  for (const std::string& name : {layout.name, layout.spec.feature_table, layout.spec.topology}) {
    QUARRY_RETURN_IF_ERROR(CheckName(name, "layout, or what it was built from,"));
  }
  QUARRY_RETURN_IF_ERROR(CheckKnown(layout.spec.direction));
  QUARRY_RETURN_IF_ERROR(CheckKnown(layout.spec.sampler));
  return CheckFanouts(layout.spec.fanouts, kTypedFanoutMax);  // by type, sums: whoever built it has looked
}

Status Check(const EmbeddingInfo& embedding, const Limits& limits) {
  QUARRY_RETURN_IF_ERROR(CheckName(embedding.name, "embedding table"));
  QUARRY_RETURN_IF_ERROR(CheckElementType(embedding.element_type, "an embedding table"));
  return CheckShape({.dim = embedding.dim, .state_dim = embedding.state_dim}, limits);
}

Status Check(const ServerLimits& server, const Limits& limits) {
  if (server.message_bytes_max >= limits.hello_bytes_max && server.outstanding_max > 0) return Status();
  return Fault("a server that takes messages of {} bytes, and {} requests at a time",
               server.message_bytes_max, server.outstanding_max);
}

Status CheckRegions(std::span<const Region> regions, const Limits& limits) {
  QUARRY_RETURN_IF_ERROR(CheckCount(regions.size(), limits.fds_max, "regions"));
  for (const Region& region : regions) {
    QUARRY_RETURN_IF_ERROR(CheckPositive(region.id, "a region's id"));
    QUARRY_RETURN_IF_ERROR(CheckPositive(region.bytes, "a region's size"));
    QUARRY_RETURN_IF_ERROR(CheckCount(region.bytes, kRegionBytesMax, "bytes of a region"));
    QUARRY_RETURN_IF_ERROR(CheckEnum(region.access, RegionAccess::kClientWrites, "access to a region"));
  }
  return Status();
}

Status CheckFinite(double value, std::string_view what) {
  return std::isfinite(value) ? Status() : Fault("{} is {}", what, value);
}

Status Check(const std::vector<Counter>& counters) {
  QUARRY_RETURN_IF_ERROR(CheckCount(counters.size(), kListedMax, "counters"));
  for (const Counter& counter : counters) {
    QUARRY_RETURN_IF_ERROR(CheckCounterName(counter.name));
    QUARRY_RETURN_IF_ERROR(CheckFinite(counter.value, "counter " + counter.name));
  }
  return Status();
}

// A road of labels that ask for more is refused (PartitionDirectory::kClassesMax).
constexpr uint64_t kClassCountMax = ~uint32_t{0} - 1;

Status Check(const OpenedParts& parts) {
  QUARRY_RETURN_IF_ERROR(CheckCount(parts.directory.size(), kPathBytesMax, "bytes of a path"));
  QUARRY_RETURN_IF_ERROR(CheckPositive(parts.buffer, "the buffer of parts"));
  QUARRY_RETURN_IF_ERROR(CheckPositive(parts.logical, "the number of logical parts"));
  QUARRY_RETURN_IF_ERROR(CheckCount(parts.class_count, kClassCountMax, "classes"));
  const uint64_t most =
      std::max({parts.train_nodes, parts.valid_nodes, parts.test_nodes, parts.batch_nodes_max});
  return CheckCount(most, kNodeCountMax, "nodes of parts");
}

struct ResponseCheck {
  const Limits& limits;

  Status operator()(const Failure& failure) const {
    if (failure.code == Code::kOk) return Fault("a failure of code 0");
    QUARRY_RETURN_IF_ERROR(CheckEnum(failure.code, Code::kInternal, "code"));
    return CheckCount(failure.message.size(), kFailureBytesMax, "bytes of a failure's sentence");
  }

  Status operator()(const Welcome& welcome) const {
    QUARRY_RETURN_IF_ERROR(CheckPositive(welcome.version, "the protocol's version"));
    return Check(welcome.limits, limits);
  }

  Status operator()(const SessionOpened& opened) const {
    QUARRY_RETURN_IF_ERROR(CheckPositive(opened.session, "the session"));
    return CheckRegions(opened.regions, limits);
  }

  Status operator()(const Description& description) const {
    QUARRY_RETURN_IF_ERROR(CheckCount(description.path.size(), kPathBytesMax, "bytes of a path"));
    for (const uint64_t count : {description.tables.size(), description.topologies.size(),
                                 description.layouts.size(), description.embeddings.size()}) {
      QUARRY_RETURN_IF_ERROR(CheckCount(count, kListedMax, "entries of a list"));
    }
    for (const TableInfo& table : description.tables) QUARRY_RETURN_IF_ERROR(Check(table));
    for (const TopologyInfo& topology : description.topologies) {
      QUARRY_RETURN_IF_ERROR(CheckName(topology.name, "topology"));
    }
    for (const LayoutInfo& layout : description.layouts) QUARRY_RETURN_IF_ERROR(Check(layout));
    for (const EmbeddingInfo& embedding : description.embeddings) {
      QUARRY_RETURN_IF_ERROR(Check(embedding, limits));
    }
    return Check(description.limits, limits);
  }

  Status operator()(const Rows& rows) const {
    QUARRY_RETURN_IF_ERROR(CheckCount(rows.rows, limits.ids_max, "rows"));
    QUARRY_RETURN_IF_ERROR(CheckElementType(rows.element_type, "rows"));
    QUARRY_RETURN_IF_ERROR(CheckCount(rows.dim, kDimMax, "elements of a row"));
    return CheckPayload(rows.payload, rows.rows * RowBytes(rows.element_type, rows.dim), "rows");
  }

  Status operator()(const Sampled& sampled) const { return CheckBatchPayload(sampled.payload, "sample"); }

  Status operator()(const StreamOpened& opened) const {
    QUARRY_RETURN_IF_ERROR(CheckPositive(opened.stream, "the stream"));
    QUARRY_RETURN_IF_ERROR(CheckPositive(opened.slots, "the number of slots"));
    QUARRY_RETURN_IF_ERROR(CheckCount(opened.feature_dim, kDimMax, "elements of a row"));
    if (opened.parts) QUARRY_RETURN_IF_ERROR(Check(*opened.parts));
    return CheckRegions(opened.regions, limits);
  }

  Status operator()(const Batch& batch) const {
    QUARRY_RETURN_IF_ERROR(CheckBatchPayload(batch.payload, "batch"));
    if (!batch.rows) return Status();
    if (batch.rows->region == 0 || !std::holds_alternative<Lease>(batch.payload)) {
      return Fault("a batch whose rows lie elsewhere: under no lease, or in no region");
    }
    return CheckPlace(*batch.rows, kLeaseAlignment, "rows of a batch");
  }

  Status operator()(const EmbeddingRows& rows) const {
    const RowBlockShape shape = {rows.rows, rows.dim, rows.state_dim};
    QUARRY_RETURN_IF_ERROR(CheckShape(shape, limits));
    return CheckPayload(rows.payload, RowBlockBytes(shape), "row block");
  }

  Status operator()(const EmbeddingsCommitted& committed) const {
    if (committed.timestamp >= -1 && (committed.timestamp == -1) == (committed.stale_rows > 0))
      return Status();
    return Fault("a commit of timestamp {} with {} stale rows", committed.timestamp, committed.stale_rows);
  }

  Status operator()(const Training& training) const {
    QUARRY_RETURN_IF_ERROR(CheckCount(training.settings.size(), kSettingsBytesMax, "bytes of settings"));
    QUARRY_RETURN_IF_ERROR(CheckCount(training.config.size(), kConfigBytesMax, "bytes of a configuration"));
    QUARRY_RETURN_IF_ERROR(CheckCount(training.created_utc.size(), kNameBytesMax, "bytes of a time"));
    const uint64_t bytes = BytesOf(training.state);
    QUARRY_RETURN_IF_ERROR(CheckCount(bytes, kStateBytesMax, "bytes of a training state"));
    return CheckPayload(training.state, bytes, "training state");
  }

  Status operator()(const Edges& edges) const {
    QUARRY_RETURN_IF_ERROR(CheckCount(edges.edges, limits.ids_max, "edges"));
    return CheckPayload(edges.payload, edges.edges * kEdgeBytes, "edges");
  }

  Status operator()(const SnapshotTaken& taken) const {
    return CheckPositive(taken.snapshot, "the snapshot");
  }

  Status operator()(const Counters& counters) const { return Check(counters.counters); }

  Status operator()(const ServerStatus& status) const {
    QUARRY_RETURN_IF_ERROR(Check(status.counters));
    QUARRY_RETURN_IF_ERROR(CheckCount(status.sessions.size(), kListedMax, "sessions"));
    for (const SessionStatus& session : status.sessions) {
      QUARRY_RETURN_IF_ERROR(CheckFinite(session.seconds, "the age of a session"));
    }
    QUARRY_RETURN_IF_ERROR(CheckCount(status.streams.size(), kListedMax, "streams"));
    for (const StreamStatus& stream : status.streams) {
      QUARRY_RETURN_IF_ERROR(CheckName(stream.road, "road"));
      if (!stream.group.empty()) QUARRY_RETURN_IF_ERROR(CheckName(stream.group, "group"));
      QUARRY_RETURN_IF_ERROR(CheckFinite(stream.consumer_wait_seconds, "the wait of a consumer"));
    }
    return Status();
  }

  Status operator()(const Progress& progress) const {
    return CheckCount(progress.phase.size(), kFailureBytesMax, "bytes of a phase");
  }
  Status operator()(const MaintenanceReport& report) const {
    QUARRY_RETURN_IF_ERROR(Check(report.counters));
    QUARRY_RETURN_IF_ERROR(CheckCount(report.faults.size(), kListedMax, "faults"));
    QUARRY_RETURN_IF_ERROR(CheckCount(report.notes.size(), kListedMax, "notes"));
    return CheckCount(report.damages.size(), kListedMax, "damages");
  }
  Status operator()(const ManifestBytes& manifest) const {
    const uint64_t bytes = BytesOf(manifest.payload);
    QUARRY_RETURN_IF_ERROR(CheckPositive(bytes, "the size of a manifest"));
    QUARRY_RETURN_IF_ERROR(CheckCount(bytes, kManifestBytesMax, "bytes of a manifest"));
    return CheckPayload(manifest.payload, bytes, "manifest");
  }

  Status operator()(const SqlOpened& opened) const {
    QUARRY_RETURN_IF_ERROR(CheckPositive(opened.connection, "the SQL connection"));
    QUARRY_RETURN_IF_ERROR(CheckCount(opened.tables.size(), kListedMax, "tables"));
    for (const SqlTable& table : opened.tables) {
      QUARRY_RETURN_IF_ERROR(CheckName(table.name, "table"));
      QUARRY_RETURN_IF_ERROR(CheckCount(table.columns.size(), kListedMax, "columns of a table"));
      for (const SqlColumn& column : table.columns) {
        QUARRY_RETURN_IF_ERROR(CheckName(column.name, "column"));
        QUARRY_RETURN_IF_ERROR(CheckName(column.type, "type"));
      }
    }
    return Status();
  }
  Status operator()(const Statement& statement) const {
    QUARRY_RETURN_IF_ERROR(CheckPositive(statement.cursor, "the cursor"));
    return CheckCount(statement.columns.size(), kSqlColumnsMax, "columns");
  }
  Status operator()(const SqlRows& rows) const {
    return rows.last || !rows.bytes.empty() ? Status() : Fault("no rows, and not the last of them");
  }

  // These have nothing that could be wrong.
  Status operator()(const Done&) const { return Status(); }
  Status operator()(const PassStarted&) const { return Status(); }
  Status operator()(const PassEnded&) const { return Status(); }
  Status operator()(const Chunk&) const { return Status(); }
  Status operator()(const Written&) const { return Status(); }
  Status operator()(const GraphChanged&) const { return Status(); }
};

}  // namespace

Status Check(const Request& request, const Limits& limits) {
  return std::visit(RequestCheck{limits}, request);
}

Status Check(const Response& response, const Limits& limits) {
  return std::visit(ResponseCheck{limits}, response);
}

template <typename T>
Status CheckRequest(const T& request, const Limits& limits) {
  return RequestCheck{limits}(request);
}
template Status CheckRequest(const Lookup& request, const Limits& limits);
template Status CheckRequest(const Sample& request, const Limits& limits);
template Status CheckRequest(const OpenStream& request, const Limits& limits);
template Status CheckRequest(const StartPass& request, const Limits& limits);
template Status CheckRequest(const ReadEmbeddings& request, const Limits& limits);
template Status CheckRequest(const Put& request, const Limits& limits);
template Status CheckRequest(const SaveTraining& request, const Limits& limits);
template Status CheckRequest(const ReadTraining& request, const Limits& limits);
template Status CheckRequest(const ReadEdges& request, const Limits& limits);
template Status CheckRequest(const Maintain& request, const Limits& limits);

uint32_t FdsOf(const Response& response) {
  if (const auto* session = std::get_if<SessionOpened>(&response)) return Count(session->regions);
  if (const auto* stream = std::get_if<StreamOpened>(&response)) return Count(stream->regions);
  return 0;
}

}  // namespace quarry::wire
