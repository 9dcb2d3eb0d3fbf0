// ImportDatabase: a Dataset into a database, all or nothing.
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "import_tables.h"
#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/catalog/catalog.h"
#include "quarry/import/import.h"
#include "quarry/import/topology_builder.h"
#include "quarry/storage/import_workspace.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/store.h"
#include "typed_ints.h"
#include "typed_targets.h"

namespace quarry {
namespace {

constexpr size_t kBatchEdges = 64 << 10;
// The topology's least, and what lies beside it: a reader with its buffers, and the catalog's.
constexpr uint64_t kImportBytesMin = kTopologyBuildBytesMin + kImportBufferBytes;
// The relation's name where the source has none and reverse edges need another.
constexpr std::string_view kEdgeName = "edge";
constexpr std::string_view kReverseSuffix = "_reverse";
// Where nothing states the number of nodes, it is 1 + the largest id, and every node takes 8 bytes of index,
// with edges or without. So one id out of place would make a database of up to 34 GB. Up to kUnstatedNodesMax
// nodes are accepted (8 MiB), and more only if there is an edge for every kUnstatedNodesPerEdge of them.
constexpr uint64_t kUnstatedNodesMax = 1 << 20;
constexpr uint64_t kUnstatedNodesPerEdge = 100;

std::array<std::byte, 16> NewDatabaseId() {
  std::array<std::byte, 16> id{};
  std::random_device device;  // the system's, not a seeded one: two databases must differ
  for (std::byte& byte : id) byte = static_cast<std::byte>(device());
  return id;
}

class Importer {
 public:
  Importer(IoBackend& backend, const ImportWorkspace& workspace, Dataset& dataset,
           const ImportOptions& options)
      : backend_(backend), workspace_(workspace), dataset_(dataset), options_(options) {}

  Status Run() {
    QUARRY_RETURN_IF_ERROR(CheckOptions());
    QUARRY_RETURN_IF_ERROR(CreateStoreDirectory(backend_, workspace_.database_path()));
    manifest_.database_id = NewDatabaseId();
    manifest_.source = dataset_.source;
    manifest_.created_utc = UtcNow();
    LayOutTypes();
    NameRelations();
    QUARRY_RETURN_IF_ERROR(dataset_.train_triples != nullptr ? ImportTriples() : ImportEdges());
    QUARRY_RETURN_IF_ERROR(ImportTables());
    return CommitCatalog();
  }

 private:
  Status CheckOptions() const {
    if (options_.memory_bytes < kImportBytesMin) {
      return MakeStatus(Code::kOutOfBudget,
                        "a memory budget of {} is too little for an import; the least is {}",
                        FormatBytes(options_.memory_bytes), FormatBytes(kImportBytesMin));
    }
    if (options_.undirected && options_.add_reverse) {
      return MakeStatus(
          Code::kUsage,
          "--undirected makes one relation of both directions, --add-reverse two: choose one of them");
    }
    if (dataset_.times > 1 && (IsTyped() || dataset_.train_triples != nullptr)) {
      return MakeStatus(
          Code::kUnsupported,
          "{}: a graph with types, or of triples, has one time: leave --times and num_times out",
          dataset_.source);
    }
    if (options_.undirected && IsTyped()) {
      return MakeStatus(Code::kUsage,
                        "{}: edges between two types go one way, and --undirected makes one relation of both "
                        "directions: take --add-reverse, which makes two",
                        dataset_.source);
    }
    const std::optional<ElementType> type = options_.feature_type;
    if (type.has_value() && *type > ElementType::kInt8) {
      return MakeStatus(Code::kUsage,
                        "features cannot be stored as {}; choose float32, float16, bfloat16 or int8",
                        ElementTypeName(*type));
    }
    return Status::Ok();
  }

  bool IsTyped() const { return !dataset_.node_types.empty(); }

  // Types of nodes, one behind the other, and types of edges by relation id.
  void LayOutTypes() {
    uint64_t first = 0;
    for (const NodeTypeInput& type : dataset_.node_types) {
      manifest_.node_types.push_back({.name = type.name, .first = first, .count = type.count});
      first += type.count;
    }
    if (!IsTyped()) return;
    for (const EdgeInput& input : dataset_.edges) {
      manifest_.edge_types.push_back(
          {.source = input.source, .name = input.name, .destination = input.destination});
    }
    for (size_t i = 0; options_.add_reverse && i < dataset_.edges.size(); ++i) {
      const EdgeInput& input = dataset_.edges[i];
      manifest_.edge_types.push_back({.source = input.destination,
                                      .name = input.name + std::string(kReverseSuffix),
                                      .destination = input.source});
    }
  }

  // Relation ids are positions here; empty for an untyped graph.
  void NameRelations() {
    if (IsTyped()) {
      for (const EdgeTypeRecord& type : manifest_.edge_types) {
        relations_.push_back(EdgeTypeName(manifest_.node_types, type));
      }
      return;
    }
    relations_ = dataset_.relation_names;
    if (relations_.empty() && (dataset_.edges.size() > 1 || options_.add_reverse)) {
      for (const EdgeInput& input : dataset_.edges) {
        relations_.push_back(input.name.empty() ? std::string(kEdgeName) : input.name);
      }
      if (dataset_.edges.empty()) relations_.emplace_back(kEdgeName);
    }
    if (!options_.add_reverse) return;
    const size_t forward_count = relations_.size();
    for (size_t i = 0; i < forward_count; i++)
      relations_.push_back(relations_[i] + std::string(kReverseSuffix));
  }
  // Where the reverse of relation r is r + this. REQUIRES: options_.add_reverse
  uint32_t ReverseOffset() const { return static_cast<uint32_t>(relations_.size() / 2); }

  Result<std::unique_ptr<TopologyBuilder>> NewBuilder(bool weighted) const {
    return TopologyBuilder::Create(
        backend_, {.csr = options_.both_directions,
                   .undirected = options_.undirected,
                   .deduplicate = options_.deduplicate,
                   .weighted = weighted,
                   .relation_count = static_cast<uint32_t>(std::max<size_t>(1, relations_.size())),
                   .by_relation = IsTyped(),
                   .memory_bytes = RoundDown(options_.memory_bytes - kImportBufferBytes, kMiB),
                   .scratch_directory = workspace_.scratch_path()});
  }

  Status Progress(std::string_view phase, uint64_t done, uint64_t total) const {
    return options_.progress ? options_.progress(phase, done, total) : Status::Ok();
  }

  Status ImportEdges() {
    const ScopedSpan span("import edges");
    const bool weighted =
        std::ranges::any_of(dataset_.edges, [](const EdgeInput& input) { return input.reader->weighted(); });
    QUARRY_RETURN_IF_ERROR(
        CheckSpace(dataset_.node_count.value_or(0) / dataset_.times, StatedEdges(), weighted));
    QUARRY_TRY(const auto builder, NewBuilder(weighted));
    for (uint32_t i = 0; i < dataset_.edges.size(); i++) {
      EdgeInput& input = dataset_.edges[i];
      QUARRY_RETURN_IF_ERROR(AddEdges(*builder, input, i));
      input.reader.reset();  // its buffers are not needed while the edges are sorted
    }
    manifest_.node_count = dataset_.node_count.value_or(builder->node_count_min());
    if (manifest_.node_count == 0) {
      return MakeStatus(Code::kInvalidArgument,
                        "{}: holds no edges, and nothing states the number of nodes; state it with --nodes",
                        dataset_.edges.empty() ? dataset_.source : dataset_.edges[0].path);
    }
    QUARRY_RETURN_IF_ERROR(CheckLargest());
    QUARRY_RETURN_IF_ERROR(
        CheckSpace(manifest_.node_count / dataset_.times, builder->added_edges(), weighted));
    QUARRY_RETURN_IF_ERROR(FinishTopology(*builder, "graph"));
    for (size_t i = 0; i < manifest_.edge_types.size(); ++i) {
      manifest_.edge_types[i].edge_count = builder->relation_edges()[i];
    }
    return Status::Ok();
  }

  // The edges of all lists, as far as headers state them.
  uint64_t StatedEdges() const {
    uint64_t edges = 0;
    for (const EdgeInput& input : dataset_.edges) edges += input.reader->count().value_or(0);
    return edges;
  }

  Status CheckLargest() const {
    if (dataset_.node_count.has_value() || manifest_.node_count <= kUnstatedNodesMax ||
        manifest_.node_count <= kUnstatedNodesPerEdge * edges_read_) {
      return Status::Ok();
    }
    return MakeStatus(
        Code::kInvalidArgument,
        "{}: node id {} makes a graph of {} nodes, and there are {} edges: if that is right, say "
        "--nodes {}",
        largest_place_, largest_, manifest_.node_count, edges_read_, manifest_.node_count);
  }

  // Refuses, before the work, what the disk has no room for: the least that the files take, and the index of
  // one side, which is there twice while it is written.
  Status CheckSpace(uint64_t nodes, uint64_t edges, bool weighted) const {
    struct statvfs disk {};
    if (statvfs(workspace_.scratch_path().c_str(), &disk) != 0 || disk.f_blocks == 0) return Status::Ok();
    if (options_.deduplicate || options_.undirected) edges = 0;  // they may all be one
    const uint64_t relation_bytes = relations_.size() > 1 ? RelationIdBytes(relations_.size()) : 0;
    const uint64_t edge_bytes = sizeof(NodeId) + (weighted ? sizeof(float) : 0) + relation_bytes;
    const double index_bytes = 8 * static_cast<double>(nodes);
    double bytes =
        index_bytes + (options_.both_directions ? 2 : 1) *
                          (index_bytes + static_cast<double>(edges) * static_cast<double>(edge_bytes));
    const auto add_rows = [&](const RowReader* rows) {
      if (rows == nullptr) return;
      const ElementType type = options_.feature_type.value_or(rows->element_type());
      bytes += static_cast<double>(rows->row_count()) * static_cast<double>(RowBytes(type, rows->dim()));
    };
    add_rows(dataset_.features.get());
    for (const NodeTypeInput& type : dataset_.node_types) add_rows(type.features.get());
    const double free_bytes = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
    if (bytes <= free_bytes) return Status::Ok();
    return MakeStatus(
        Code::kNoSpace,
        "{}: {} nodes and {} edges make a database of {} at least, and the disk of {} has {} free",
        dataset_.source, nodes, edges, FormatBytes(static_cast<uint64_t>(std::min(bytes, 0x1p62))),
        workspace_.database_path(), FormatBytes(static_cast<uint64_t>(free_bytes)));
  }

  // Makes ids of types ids of the graph.
  Status ShiftIds(const EdgeInput& input, std::span<Edge> edges, uint64_t first) const {
    const NodeTypeRecord& sources = manifest_.node_types[input.source];
    const NodeTypeRecord& destinations = manifest_.node_types[input.destination];
    for (size_t i = 0; i < edges.size(); ++i) {
      Edge& edge = edges[i];
      for (auto [id, type, end] :
           {std::tuple(edge.source, &sources, "source"), {edge.destination, &destinations, "destination"}}) {
        if (id < type->count) continue;
        return MakeStatus(Code::kInvalidArgument,
                          "{}: {} {} is out of range; there are {} nodes of type '{}'",
                          input.reader->Position(first + i), end, id, type->count, type->name);
      }
      edge = {edge.source + sources.first, edge.destination + destinations.first};
    }
    return Status::Ok();
  }

  Status AddEdges(TopologyBuilder& builder, EdgeInput& input, uint32_t relation) {
    const ScopedSpan span("read edges", relation);
    EdgeReader& reader = *input.reader;
    const uint64_t limit = dataset_.node_count.value_or(kNodeCountMax) / dataset_.times;
    std::vector<Edge> batch(kBatchEdges);
    uint64_t first = 0;
    while (true) {
      QUARRY_TRY(const size_t n, reader.Read(batch));
      if (n == 0) return Status::Ok();
      const std::span<Edge> edges = std::span(batch).first(n);
      if (IsTyped()) QUARRY_RETURN_IF_ERROR(ShiftIds(input, edges, first));
      uint64_t largest = 0;
      for (const Edge& edge : edges) largest = std::max({largest, edge.source, edge.destination});
      if (largest >= limit) return OutOfRange(reader, edges, first, limit);
      if (largest >= kUnstatedNodesMax && largest > largest_) {
        largest_ = largest;
        largest_place_ = PlaceOf(reader, edges, first, largest);
      }
      QUARRY_RETURN_IF_ERROR(builder.Add(edges, relation, reader.weights()));
      if (options_.add_reverse) {
        for (Edge& edge : edges) std::swap(edge.source, edge.destination);
        QUARRY_RETURN_IF_ERROR(builder.Add(edges, relation + ReverseOffset(), reader.weights()));
      }
      first += n;
      edges_read_ += n;
      QUARRY_RETURN_IF_ERROR(Progress("reading edges", reader.bytes_read(), reader.bytes_total()));
    }
  }

  // The place of the first edge that has an id of at least `limit`. REQUIRES: there is one.
  static std::string PlaceOf(const EdgeReader& reader, std::span<const Edge> edges, uint64_t first,
                             uint64_t limit) {
    const auto found = std::ranges::find_if(
        edges, [limit](const Edge& edge) { return edge.source >= limit || edge.destination >= limit; });
    return reader.Position(first + static_cast<uint64_t>(found - edges.begin()));
  }

  Status OutOfRange(const EdgeReader& reader, std::span<const Edge> edges, uint64_t first,
                    uint64_t limit) const {
    const auto bad = std::find_if(edges.begin(), edges.end(), [limit](const Edge& edge) {
      return edge.source >= limit || edge.destination >= limit;
    });
    const std::string place = PlaceOf(reader, edges, first, limit);
    const uint64_t id = bad->source >= limit ? bad->source : bad->destination;
    if (!dataset_.node_count.has_value()) {
      return MakeStatus(Code::kUnsupported,
                        "{}: node id {} is beyond {}, the largest that a database can hold", place, id,
                        limit - 1);
    }
    return MakeStatus(Code::kInvalidArgument, "{}: node id {} is out of range; there are {} {}, 0 to {}",
                      place, id, limit, dataset_.times > 1 ? "places" : "nodes", limit - 1);
  }

  // The graph to sample from holds the training triples alone; the others are there to be predicted.
  Status ImportTriples() {
    const ScopedSpan span("import triples");
    manifest_.node_count = *dataset_.node_count;
    if (manifest_.node_count == 0) {
      return MakeStatus(Code::kInvalidArgument, "{}: holds no triples", dataset_.source);
    }
    uint64_t total = 0;
    uint64_t done = 0;
    const std::pair<const char*, TripleReader*> parts[] = {{"graph", dataset_.train_triples.get()},
                                                           {"valid", dataset_.valid_triples.get()},
                                                           {"test", dataset_.test_triples.get()}};
    bool counted = true;
    for (const auto& [name, reader] : parts) {
      if (reader == nullptr) continue;
      counted = counted && reader->count().has_value();
      total += reader->count().value_or(0);
    }
    if (!counted) total = 0;
    std::vector<Triple> batch(kBatchEdges);
    for (const auto& [name, reader] : parts) {
      if (reader == nullptr) continue;
      QUARRY_TRY(const auto builder, NewBuilder(reader->weighted()));
      while (true) {
        QUARRY_TRY(const size_t n, reader->Read(batch));
        if (n == 0) break;
        const std::span<const float> weights = reader->weights();
        for (size_t i = 0; i < n; i++) {
          QUARRY_RETURN_IF_ERROR(
              AddTriple(*builder, batch[i], weights.empty() ? weights : weights.subspan(i, 1)));
        }
        done += n;
        QUARRY_RETURN_IF_ERROR(Progress("reading triples", done, total));
      }
      QUARRY_RETURN_IF_ERROR(FinishTopology(*builder, name));
    }
    return Status::Ok();
  }

  Status AddTriple(TopologyBuilder& builder, const Triple& triple, std::span<const float> weight) const {
    const Edge edge{triple.head, triple.tail};
    QUARRY_RETURN_IF_ERROR(builder.Add({&edge, 1}, triple.relation, weight));
    if (!options_.add_reverse) return Status::Ok();
    const Edge reverse{triple.tail, triple.head};
    return builder.Add({&reverse, 1}, triple.relation + ReverseOffset(), weight);
  }

  Status FinishTopology(TopologyBuilder& builder, std::string_view name) {
    const ScopedSpan span("write topology");
    const std::string file = fmt::format("topology/{}-1.qtp", name);
    const uint64_t total = builder.added_edges();
    QUARRY_TRY(TopologyRecord record,
               builder.Finish(workspace_.database_path() + "/" + file, manifest_.node_count / dataset_.times,
                              manifest_.database_id,
                              /*generation=*/1, [&](uint64_t written) {
                                return Progress("writing topology", written, total);
                              }));
    record.name = name;
    record.file = file;
    manifest_.topologies.push_back(std::move(record));
    return Status::Ok();
  }

  Status ImportTables() {
    const ScopedSpan span("import tables");
    ImportTarget target{.backend = backend_,
                        .database_path = workspace_.database_path(),
                        .options = options_,
                        .manifest = manifest_};
    if (IsTyped()) return ImportTypes(target);
    if (dataset_.labels != nullptr) {
      QUARRY_RETURN_IF_ERROR(ImportLabels(target, *dataset_.labels, dataset_.class_count));
    }
    if (dataset_.train != nullptr || dataset_.valid != nullptr || dataset_.test != nullptr) {
      QUARRY_RETURN_IF_ERROR(
          ImportSplits(target, dataset_.train.get(), dataset_.valid.get(), dataset_.test.get()));
    }
    if (dataset_.features != nullptr) QUARRY_RETURN_IF_ERROR(ImportFeatures(target, *dataset_.features));
    if (dataset_.targets != nullptr) QUARRY_RETURN_IF_ERROR(ImportTargets(target, *dataset_.targets));
    for (const auto& [rows, table] : {std::pair(dataset_.place_features.get(), kPlaceColumns),
                                      std::pair(dataset_.time_features.get(), kTimeColumns)}) {
      if (rows != nullptr) QUARRY_RETURN_IF_ERROR(ImportColumns(target, *rows, table));
    }
    return Status::Ok();
  }

  // Labels, targets and splits are tables of all nodes, in which a type is a range of rows; features have a table for each
  // type.
  Status ImportTypes(ImportTarget& target) {
    std::vector<NodeTypeInput>& types = dataset_.node_types;
    const auto labelled =
        std::ranges::count_if(types, [](const NodeTypeInput& type) { return type.labels != nullptr; });
    if (labelled > 1 && options_.relabel) {
      return MakeStatus(Code::kUnsupported, "{}: {} types have labels, and --relabel numbers those of one",
                        dataset_.source, labelled);
    }
    if (labelled > 0) {
      TypedLabels labels(types);
      QUARRY_RETURN_IF_ERROR(ImportLabels(target, labels, std::nullopt));
      for (size_t i = 0; i < types.size(); ++i) {
        manifest_.node_types[i].class_count =
            options_.relabel && types[i].labels != nullptr ? manifest_.class_count : labels.class_counts()[i];
      }
    }
    const auto train = JoinSplits(types, &NodeTypeInput::train);
    const auto valid = JoinSplits(types, &NodeTypeInput::valid);
    const auto test = JoinSplits(types, &NodeTypeInput::test);
    if (train != nullptr || valid != nullptr || test != nullptr) {
      QUARRY_RETURN_IF_ERROR(ImportSplits(target, train.get(), valid.get(), test.get()));
    }
    QUARRY_TRY(const auto targets, JoinTargets(types));
    if (targets != nullptr) QUARRY_RETURN_IF_ERROR(ImportTargets(target, *targets));
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i].features == nullptr) continue;
      NodeTypeRecord& type = manifest_.node_types[i];
      type.feature_table = FeatureTableOf(type.name);
      QUARRY_RETURN_IF_ERROR(ImportFeatures(target, *types[i].features, type.feature_table, type.count));
    }
    return Status::Ok();
  }

  Status CommitCatalog() {
    const ScopedSpan span("commit the catalog");
    QUARRY_RETURN_IF_ERROR(Progress("catalog", 0, 0));
    QUARRY_TRY(const auto catalog, Catalog::Create(workspace_.database_path()));
    manifest_.has_entity_names = !dataset_.entity_names.empty();
    manifest_.has_relation_names = !relations_.empty();
    QUARRY_RETURN_IF_ERROR(catalog->PutNames(NameKind::kEntity, 0, dataset_.entity_names));
    QUARRY_RETURN_IF_ERROR(catalog->PutNames(NameKind::kRelation, 0, relations_));
    QUARRY_RETURN_IF_ERROR(catalog->CommitManifest(manifest_));
    QUARRY_RETURN_IF_ERROR(catalog->Close());
    return backend_.SyncDirectory(workspace_.database_path() + "/catalog");
  }

  IoBackend& backend_;
  const ImportWorkspace& workspace_;
  Dataset& dataset_;
  const ImportOptions& options_;
  Manifest manifest_;
  std::vector<std::string> relations_;
  uint64_t edges_read_ = 0;
  uint64_t largest_ = 0;  // id, of those from kUnstatedNodesMax on, and where it stands first
  std::string largest_place_;
};

}  // namespace

Status ImportDatabase(IoBackend& backend, const std::string& path, Dataset dataset,
                      const ImportOptions& options) {
  QUARRY_TRY(ImportWorkspace workspace, ImportWorkspace::Acquire(backend, path, ImportWorkspace::kImport));
  QUARRY_RETURN_IF_ERROR(Importer(backend, workspace, dataset, options).Run());
  return workspace.Publish();
}

}  // namespace quarry
