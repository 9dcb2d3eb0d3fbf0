// Random messages of the local protocol, of every kind and with every field set.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/format/wire.h"
#include "quarry/format/wire_batch.h"

namespace quarry::wire {

class RandomMessage {
 public:
  explicit RandomMessage(uint64_t seed) : rng_(seed) {}

  // A message of kind `kind`: its place in the variant.
  Request request(size_t kind) { return OfKind<Request>(kind); }
  Response response(size_t kind) { return OfKind<Response>(kind); }

 private:
  template <typename Variant, size_t I = 0>
  Variant OfKind(size_t kind) {
    if constexpr (I + 1 < std::variant_size_v<Variant>) {
      if (kind > I) return OfKind<Variant, I + 1>(kind);
    }
    std::variant_alternative_t<I, Variant> message;
    Fill(message);
    return message;
  }

  uint64_t Below(uint64_t bound) { return rng_.Below(bound); }
  uint64_t Any() { return rng_() >> Below(64); }  // of any magnitude
  uint64_t Positive() { return Any() | 1; }
  uint32_t Any32() { return static_cast<uint32_t>(rng_() >> (32 + Below(32))); }
  bool Flip() { return Below(2) == 1; }

  std::string Name() {
    static constexpr std::string_view kBytes =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    std::string name(1 + Below(kNameBytesMax), ' ');
    for (char& c : name) c = kBytes[Below(kBytes.size())];
    return name;
  }
  std::vector<std::byte> Bytes(uint64_t count) {
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(Any());
    return bytes;
  }
  std::array<std::byte, 16> Id() {
    std::array<std::byte, 16> id;
    for (std::byte& byte : id) byte = static_cast<std::byte>(rng_());
    return id;
  }
  template <typename T>
  std::vector<T> Numbers(uint64_t least, uint64_t most) {
    std::vector<T> numbers(least + Below(most - least + 1));
    for (T& number : numbers) number = static_cast<T>(Any());
    return numbers;
  }
  // Fanouts by type of edges, and hops that take all neighbors, in a part of the messages.
  void DrawByType(std::vector<uint32_t>& fanouts, std::vector<uint32_t>& by_type) {
    if (Flip()) by_type = Numbers<uint32_t>(1, 20);
    for (std::vector<uint32_t>* const list : {&fanouts, &by_type}) {
      if (!list->empty() && Flip()) list->front() = kAllNeighbors;
    }
  }
  std::vector<uint32_t> Fanouts() {
    std::vector<uint32_t> fanouts(1 + Below(kHopsMax));
    for (uint32_t& fanout : fanouts) fanout = static_cast<uint32_t>(1 + Below(kFanoutMax));
    return fanouts;
  }
  template <typename Enum>
  Enum OneOf(Enum last) {
    return static_cast<Enum>(Below(static_cast<uint64_t>(last) + 1));
  }
  ElementType AnyElementType() { return static_cast<ElementType>(1 + Below(7)); }

  Range Place(uint64_t bytes, uint64_t alignment) {
    return {.region = Any32() | 1, .offset = Below(1 << 20) * alignment, .bytes = bytes};
  }
  template <typename T>
  std::variant<std::vector<T>, Range> Ids() {
    if (Flip()) return Numbers<T>(0, 300);
    return Place((1 + Below(1000)) * sizeof(T), kRangeAlignment);
  }
  Bulk SomeBulk(uint64_t bytes) {
    if (bytes == 0 || Flip()) return Bytes(bytes);
    return Place(bytes, kRangeAlignment);
  }
  Payload SomePayload(uint64_t bytes) {
    if (bytes == 0 || Flip()) return Bytes(bytes);
    Lease lease = {.id = Positive(), .range = Place(bytes, kLeaseAlignment)};
    if (Flip()) lease.range.region = 0;
    return lease;
  }
  template <typename T>
  void FillEach(std::vector<T>& records, uint64_t least) {
    records.resize(least + Below(5));
    for (T& record : records) Fill(record);
  }

  void Fill(Hello& m) {
    m.version_min = static_cast<uint16_t>(1 + Below(100));
    m.version_max = static_cast<uint16_t>(m.version_min + Below(100));
    m.capabilities = Any();
    m.message_bytes_max = 4096 + Any32() / 2;
  }
  void Fill(OpenSession& m) {
    m = {Id(), Any(), 0, Any32()};
    m.budget_bytes_min = m.budget_bytes / 2;
  }
  void Fill(Lookup& m) { m = {Name(), Ids<NodeId>(), Any()}; }
  void Fill(Sample& m) {
    m = {Name(), Numbers<NodeId>(1, 100), Fanouts(), OneOf(Direction::kBoth), Any(), Flip()};
    m.replace = Flip();
    m.weighted = Flip();
    DrawByType(m.fanouts, m.relation_fanouts);
  }
  void Fill(LiveSpec& m) {
    m = {Name(), Name(), OneOf(Direction::kBoth), Fanouts(), Any32() | 1, Any(), Any()};
    m.replace = Flip();
    m.sampler = OneOf(SamplerKind::kLabor);
    m.batch_dependency = Any32();
    m.weighted = Flip();
    m.edge_ids = Flip();
    DrawByType(m.fanouts, m.relation_fanouts);
  }
  void Fill(PlannedSpec& m) {
    m.layout = Name();
    if (Flip()) Fill(m.live.emplace());
  }
  void Fill(SuperbatchSpec& m) {
    Fill(m.live);
    m.live.seed_order = OneOf(SeedOrder::kProximity);
    m.policy = OneOf(PolicyKind::kBelady);
    m.packing = OneOf(Packing::kCheaper);
    m.disk_bytes = Any();
  }
  void Fill(PartitionedSpec& m) {
    Fill(m.live);
    m.partitioning = Name();
    m.buffer = Any32();
    m.logical = Any32();
  }
  void Fill(OpenStream& m) {
    const uint64_t road = Below(4);
    if (road == 0) Fill(m.road.emplace<LiveSpec>());
    if (road == 1) Fill(m.road.emplace<PlannedSpec>());
    if (road == 2) Fill(m.road.emplace<SuperbatchSpec>());
    if (road == 3) Fill(m.road.emplace<PartitionedSpec>());
    m.mode = OneOf(StreamMode::kSplit);
    if (m.mode != StreamMode::kExclusive) {
      m.group = Name();
      m.members = static_cast<uint32_t>(1 + Below(64));
    }
    m.snapshot = Any();
  }
  void Fill(StartPass& m) {
    m = {.stream = Positive(), .shuffle = Flip(), .pass = Any(), .ordered = Flip()};
    if (Flip()) {
      m.seeds = Ids<NodeId>();
    } else {
      m.seeds = static_cast<Split>(1 + Below(3));
    }
  }
  void Fill(NextBatch& m) { m.stream = Positive(); }
  void Fill(CloseStream& m) { m.stream = Positive(); }
  void Fill(ReleaseLeases& m) {
    m.leases = Numbers<uint64_t>(0, 20);
    for (uint64_t& lease : m.leases) lease |= 1;
  }
  void Fill(ReadLease& m) { m = {Positive(), Below(kRegionBytesMax), Any32() | 1}; }
  void Fill(ReadEmbeddings& m) { m = {Name(), Ids<uint64_t>()}; }
  void Fill(EmbeddingUpdate& m) {
    m = {.table = Name(),
         .rows = Below(20),
         .dim = static_cast<uint32_t>(1 + Below(20)),
         .state_dim = static_cast<uint32_t>(Below(40))};
    m.block = SomeBulk(RowBlockBytes({m.rows, m.dim, m.state_dim}));
  }
  void Fill(CommitEmbeddings& m) {
    m.number = Positive();
    FillEach(m.updates, 1);
  }
  void Fill(PutRows& m) {
    m = {.table = Name(), .rows = Below(20), .row_bytes = static_cast<uint32_t>(Below(100))};
    m.block = SomeBulk(m.rows * (8 + uint64_t{m.row_bytes}));
  }
  void Fill(Put& m) {
    m.number = Positive();
    m.sync = Flip();
    FillEach(m.tables, 1);
    m.piece = Below(3);
    m.last = m.piece > 0 && Flip();
    if (Flip()) Fill(m.graph.emplace());
  }
  void Fill(PutGraph& m) {
    m = {.topology = Name(), .first_node = Below(kNodeCountMax), .nodes = Below(kNodeCountMax)};
    for (uint64_t i = Below(4); i > 0; --i) m.names.push_back(Name());
    m.edges = Below(50);
    m.remove = Flip();
    m.weighted = !m.remove && Flip();
    m.removed_nodes = Below(20);
    m.relation = static_cast<uint32_t>(Below(5));
    if (Flip()) m.node_type = Name();
    m.block = SomeBulk(m.edges * m.edge_bytes() + m.removed_nodes * sizeof(NodeId));
  }
  void Fill(SaveTraining& m) {
    const uint64_t bytes = 1 + Below(300);
    m = {.name = Name(),
         .settings = "--seed " + Name(),
         .offset = Below(1 << 20),
         .with_embeddings = Flip(),
         .config = "[train]\nrun = " + Name()};
    m.state_bytes = m.offset + bytes + Below(1 << 20);
    m.piece = SomeBulk(bytes);
  }
  void Fill(ReadTraining& m) { m = {Name(), Flip()}; }
  void Fill(ReadEdges& m) { m = {Name(), Any(), static_cast<uint32_t>(1 + Below(1 << 20)), Any()}; }
  void Fill(OpenSql& m) { m = {Flip(), rng_.Unit() * 1e6}; }
  void Fill(CloseSql& m) { m.connection = Positive(); }
  void Fill(Query& m) {
    m = {.connection = Positive(), .script = Flip(), .text = SomeBulk(Below(500))};
    if (m.script) return;
    m.parameters = static_cast<uint32_t>(Below(100));
    m.values = SomeBulk(Below(500));
  }
  void Fill(Fetch& m) { m = {Positive(), Flip()}; }
  void Fill(CloseQuery& m) { m.cursor = Positive(); }
  void Fill(ReleaseSnapshot& m) { m.snapshot = Positive(); }
  void Fill(Stats& m) { m.stream = Any(); }
  void Fill(Cancel& m) { m.request = Positive(); }
  void Fill(Describe&) {}
  void Fill(TakeSnapshot&) {}
  void Fill(ForgetPut& m) { m.number = Positive(); }
  void Fill(Ping&) {}
  void Fill(GetStatus&) {}
  void Fill(ReadManifest&) {}
  void Fill(VerifyDatabase&) {}
  void Fill(CompactTable& m) { m = {Name(), Flip()}; }
  void Fill(CheckpointDatabase& m) { m.path = "/" + Name() + "/\xc3\xa9"; }
  void Fill(BuildLayout& m) {
    m = {.name = Name(), .epochs = Any32(), .policy = OneOf(PolicyKind::kBelady), .disk_bytes = Any()};
    Fill(m.road);
    m.road.seed_order = OneOf(SeedOrder::kProximity);
    m.hash_functions = Any32();
    m.threads = Any32();
    m.resume = Flip();
    m.ranks = Any32();
    m.rank_partitioning = Name();
  }
  void Fill(RebuildLayout& m) { m = {Name(), Flip(), Flip()}; }
  void Fill(DropLayout& m) { m.name = Name(); }
  void Fill(CalibrateDevice& m) { m.force = Flip(); }
  void Fill(CreateEmbeddings& m) {
    m.table = Name();
    m.spec = {.row_count = Any(),
              .dim = Any32(),
              .element_type = AnyElementType(),
              .optimizer = OneOf(OptimizerKind::kAdam),
              .init = OneOf(InitKind::kNormal),
              .init_scale = static_cast<float>(rng_.Unit()),
              .seed = Any()};
  }
  void Fill(DropEmbeddings& m) { m.table = Name(); }
  void Fill(DropTraining& m) { m.name = Name(); }
  void Fill(DropTable& m) { m.table = Name(); }
  void Fill(CreateTable& m) { m = {Name(), AnyElementType(), 1 + Below(1000)}; }
  void Fill(InspectDatabase&) {}
  void Fill(ExportDatabase& m) {
    m = {"/" + Name(), OneOf(ExportFormat::kGraphBolt), Name(), Flip(), Flip(), Flip(), Flip(), Flip()};
  }
  void Fill(ExplainLayout& m) { m = {Name(), Positive()}; }
  void Fill(TraceLayout& m) {
    m.name = Name();
    m.cache_bytes.resize(Below(20));
    for (uint64_t& bytes : m.cache_bytes) bytes = Any();
  }
  void Fill(BuildPartitioning& m) {
    m = {.name = Name(), .topology = Name(), .table = Name(), .rows = Flip()};
    m.method = OneOf(PartitionMethod::kKept);
    m.parts = Any32();
    m.chunk_share = static_cast<double>(1 + Below(1000)) / 1000;
    m.training_first = Flip();
    m.seed = Any();
  }
  void Fill(DropPartitioning& m) { m.name = Name(); }
  void Fill(Maintain& m) { m.task = OfKind<MaintenanceTask>(Below(std::variant_size_v<MaintenanceTask>)); }

  void Fill(Failure& m) {
    m.code = static_cast<Code>(1 + Below(static_cast<uint64_t>(Code::kInternal)));
    m.message = Name() + " \"\xc3\xa9\"";
  }
  void Fill(ServerLimits& m) { m = {4096 + Any32() / 2, Any32() | 1, Any32(), Any32(), Any()}; }
  void Fill(Welcome& m) {
    m = {.version = static_cast<uint16_t>(1 + Below(100)), .capabilities = Any(), .server_id = Id()};
    Fill(m.limits);
  }
  void Fill(Region& m) { m = {Any32() | 1, 1 + Below(kRegionBytesMax), OneOf(RegionAccess::kClientWrites)}; }
  void Fill(SessionOpened& m) {
    m = {.session = Positive(), .budget_bytes = Any()};
    FillEach(m.regions, 0);
  }
  void Fill(TableInfo& m) { m = {Name(), AnyElementType(), Any(), Any(), Any()}; }
  void Fill(TopologyInfo& m) { m = {Name(), Any(), Any(), Any(), Flip(), Flip(), Flip(), Flip()}; }
  void Fill(LayoutInfo& m) {
    m = {.name = Name(),
         .policy = OneOf(PolicyKind::kBelady),
         .epochs = Any32(),
         .batch_count = Any(),
         .cache_rows = Any(),
         .file_bytes = Any(),
         .servable = Flip(),
         .batches_per_segment = Any()};
    Fill(m.spec);
    m.spec.cache_bytes = 0;
    m.spec.edge_ids = false;  // a layout keeps none
    if (Flip()) m.spec.fanouts.front() = static_cast<uint32_t>(1 + Below(kTypedFanoutMax));  // a sum by type
    m.spec.seed_order = OneOf(SeedOrder::kProximity);
  }
  void Fill(EmbeddingInfo& m) {
    m = {Name(),
         Any(),
         static_cast<uint32_t>(1 + Below(kDimMax)),
         static_cast<uint32_t>(Below(kDimMax)),
         AnyElementType(),
         static_cast<uint8_t>(Below(256))};
  }
  void Fill(Description& m) {
    m = {.database_id = Id(), .node_count = Any(), .class_count = Any(), .path = "/" + Name()};
    FillEach(m.tables, 0);
    FillEach(m.topologies, 0);
    FillEach(m.layouts, 0);
    FillEach(m.embeddings, 0);
    Fill(m.limits);
  }
  void Fill(Rows& m) {
    m = {.rows = Below(20), .element_type = AnyElementType(), .dim = static_cast<uint32_t>(Below(50))};
    m.payload = SomePayload(m.rows * RowBytes(m.element_type, m.dim));
  }
  void Fill(Sampled& m) { m.payload = SomePayload(kBatchHeaderBytes + Below(500)); }
  void Fill(OpenedParts& m) {
    m = {.directory = Name(), .buffer = Any32() | 1, .logical = Any32() | 1, .class_count = Any32() & ~1U};
    for (uint64_t* const nodes : {&m.train_nodes, &m.valid_nodes, &m.test_nodes, &m.batch_nodes_max}) {
      *nodes = Below(kNodeCountMax);
    }
  }
  void Fill(StreamOpened& m) {
    m = {Positive(), static_cast<uint32_t>(Below(kDimMax)), Any32() | 1, Any(), {}, {}};
    FillEach(m.regions, 0);
    if (Flip()) Fill(m.parts.emplace());
  }
  void Fill(PassStarted& m) { m.batches = Any(); }
  void Fill(Batch& m) {
    m = {.index = Any(), .payload = SomePayload(kBatchHeaderBytes + Below(500))};
    if (std::holds_alternative<Lease>(m.payload) && Flip())
      m.rows = Place(1 + Below(1 << 30), kLeaseAlignment);
  }
  void Fill(Chunk& m) { m.bytes = Bytes(Below(1000)); }
  void Fill(EmbeddingRows& m) {
    m = {.rows = Below(20),
         .dim = static_cast<uint32_t>(1 + Below(20)),
         .state_dim = static_cast<uint32_t>(Below(40))};
    m.payload = SomePayload(RowBlockBytes({m.rows, m.dim, m.state_dim}));
  }
  void Fill(EmbeddingsCommitted& m) {
    m = {.timestamp = static_cast<int64_t>(Any() >> 1)};
    if (Flip()) m = {.timestamp = -1, .stale_rows = Positive()};
  }
  void Fill(Written& m) { m.timestamp = Any(); }
  void Fill(GraphChanged& m) { m = {Any(), Any(), Any(), Any(), Any(), Any(), Any(), Any(), Any(), Any()}; }
  void Fill(SnapshotTaken& m) { m = {Positive(), Any()}; }
  void Fill(Counter& m) { m = {Flip() ? Name() : Name() + ".7." + Name(), rng_.Unit() * 1e18}; }
  void Fill(Training& m) {
    m = {"--seed " + Name(), "2026-01-02T03:04:05Z", static_cast<int64_t>(Any() >> 1),
         SomePayload(Below(300)), "[train]\nrun = " + Name()};
  }
  void Fill(Edges& m) {
    m.edges = Below(50);
    m.payload = SomePayload(m.edges * kEdgeBytes);
    m.list = Any();
  }
  void Fill(Counters& m) { FillEach(m.counters, 0); }
  void Fill(SessionStatus& m) {
    m = {Any(), Any32(), Any32(), rng_.Unit() * 1e9, Any(), Any(), Any(), Any(), Any(), Any(), Any()};
  }
  void Fill(StreamStatus& m) {
    m = {Any(), Any(), Name(), Flip() ? Name() : "", Any(), Any(), Any32(), Any32(), Any32(),
         Any(), Any(), Any(),  rng_.Unit() * 1e9};
  }
  void Fill(ServerStatus& m) {
    FillEach(m.counters, 0);
    FillEach(m.sessions, 0);
    FillEach(m.streams, 0);
    m.sessions_left_out = Any();
    m.streams_left_out = Any();
  }
  void Fill(Progress& m) { m = {"verifying " + Name(), Any(), Any()}; }
  void Fill(Damage& m) { m = {static_cast<uint8_t>(Below(256)), Name(), Any(), Any()}; }
  void Fill(std::string& m) { m = Name() + " \xc3\xa9"; }
  void Fill(MaintenanceReport& m) {
    FillEach(m.counters, 0);
    FillEach(m.faults, 0);
    FillEach(m.notes, 0);
    FillEach(m.damages, 0);
  }
  void Fill(ManifestBytes& m) { m.payload = SomePayload(1 + Below(300)); }
  void Fill(SqlColumn& m) { m = {Name(), Name(), Flip()}; }
  void Fill(SqlTable& m) {
    m.name = Name();
    FillEach(m.columns, 0);
  }
  void Fill(SqlOpened& m) {
    m.connection = Positive();
    FillEach(m.tables, 0);
  }
  void Fill(Statement& m) {
    m.cursor = Positive();
    m.columns.resize(Below(20));
    for (std::string& column : m.columns) column = "count(*) \"" + Name() + "\" \xc3\xa9";
  }
  void Fill(SqlRows& m) { m = {Bytes(1 + Below(1000)), Flip()}; }
  void Fill(Done&) {}
  void Fill(PassEnded&) {}

  Rng rng_;
};

}  // namespace quarry::wire
