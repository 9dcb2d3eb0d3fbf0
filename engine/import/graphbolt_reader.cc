#include "graphbolt_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "byte_source.h"
#include "dataset_parts.h"
#include "npy_reader.h"
#include "quarry/base/log.h"
#include "quarry/import/graphbolt.h"
#include "text_lines.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMetadataBytesMax = 1 << 20;

std::string MetadataPath(const std::string& folder) { return folder + "/metadata.yaml"; }

// A node and its label.
struct NodeLabel {
  int64_t node;
  int64_t label;
};

// Labels of all nodes in order, -1 where none was given.
class SeedLabels final : public IntReader {
 public:
  // `labels`: ascending by node.
  SeedLabels(std::string name, std::vector<NodeLabel> labels, uint64_t node_count)
      : name_(std::move(name)), labels_(std::move(labels)), node_count_(node_count) {}

  Result<size_t> Read(std::span<int64_t> out) override {
    const size_t count = std::min<uint64_t>(out.size(), node_count_ - node_);
    for (int64_t& label : out.first(count)) {
      label = -1;
      if (next_ < labels_.size() && labels_[next_].node == static_cast<int64_t>(node_))
        label = labels_[next_++].label;
      ++node_;
    }
    return count;
  }
  std::optional<uint64_t> count() const override { return node_count_; }
  std::string Position(uint64_t index) const override { return fmt::format("{}: node {}", name_, index); }

 private:
  const std::string name_;
  const std::vector<NodeLabel> labels_;
  const uint64_t node_count_;
  uint64_t node_ = 0;
  size_t next_ = 0;
};

const GraphBolt::Array* FindArray(const std::vector<GraphBolt::Array>& arrays, std::string_view name) {
  const auto found = std::ranges::find(arrays, name, &GraphBolt::Array::name);
  return found == arrays.end() ? nullptr : &*found;
}

class Opener {
 public:
  Opener(const std::string& folder, const SourceHints& hints) : folder_(folder), hints_(hints) {}

  Result<Dataset> Open() {
    QUARRY_RETURN_IF_ERROR(CheckInside(Path()));
    QUARRY_TRY(const std::string text, ReadPrefix(Path(), kMetadataBytesMax));
    QUARRY_TRY(graph_, DecodeGraphBolt(text, Path()));
    QUARRY_RETURN_IF_ERROR(TakeNodes());
    QUARRY_RETURN_IF_ERROR(TakeEdges());
    QUARRY_RETURN_IF_ERROR(TakeFeatures());
    QUARRY_RETURN_IF_ERROR(TakeTask());
    if (IsTyped()) return OpenTyped();
    QUARRY_TRY(Dataset dataset, OpenParts(types_[0].parts, hints_));
    if (dataset.labels == nullptr && !types_[0].seed_labels.empty()) {
      QUARRY_TRY(dataset.labels, OpenSeedLabels(types_[0], *dataset.node_count));
    }
    return dataset;
  }

 private:
  // Nodes of one type; of a graph of one type, its edges too.
  struct Type {
    std::string name;
    SourceParts parts;
    std::vector<std::pair<std::string, std::string>> seed_labels;  // files with nodes, and with their labels
  };

  std::string Path() const { return MetadataPath(folder_); }
  bool IsTyped() const { return types_.size() > 1; }

  Result<Dataset> OpenTyped() {
    TypedParts typed;
    for (const Type& type : types_) typed.nodes.push_back({type.name, type.parts});
    typed.edges = typed_edges_;
    QUARRY_TRY(Dataset dataset, OpenTypedParts(typed, hints_));
    for (size_t i = 0; i < types_.size(); ++i) {
      NodeTypeInput& type = dataset.node_types[i];
      if (type.labels != nullptr || types_[i].seed_labels.empty()) continue;
      QUARRY_TRY(type.labels, OpenSeedLabels(types_[i], type.count));
    }
    return dataset;
  }

  // The place of a type of nodes, by what a feature or a set says. In a graph of one type nothing has to be said.
  Result<Type*> TypeNamed(const std::string& name) {
    const auto found = std::ranges::find(types_, name, &Type::name);
    if (found != types_.end()) return &*found;
    if (!IsTyped()) return &types_[0];
    return MakeStatus(Code::kInvalidArgument, "{}: there is no type of nodes '{}'", Path(), Excerpt(name));
  }

  // Symbolic links are followed within the folder only, whose maker may be a stranger: messages show excerpts
  // of files. What does not exist, whoever opens it tells.
  Status CheckInside(const std::string& path) const {
    std::error_code error;
    const fs::path root = fs::canonical(folder_, error);
    const fs::path place = error ? fs::path() : fs::canonical(path, error);
    if (error || std::ranges::mismatch(root, place).in1 == root.end()) return Status::Ok();
    return MakeStatus(Code::kInvalidArgument,
                      "{}: a symbolic link leads out of the folder, to {}; move the file there", path,
                      place.string());
  }

  Result<std::string> PathOf(const GraphBolt::Array& array) const {
    std::string path = folder_ + "/" + array.path;
    QUARRY_RETURN_IF_ERROR(CheckInside(path));
    return path;
  }

  // NumPy's files are opened by their names.
  Result<std::string> NumpyPath(const GraphBolt::Array& array, std::string_view what) const {
    QUARRY_TRY(const std::string path, PathOf(array));
    if (array.format == "torch") {
      return MakeStatus(
          Code::kUnsupported,
          "{}: {} '{}' is of format torch, which only PyTorch reads; save it with numpy.save and say numpy",
          Path(), what, array.path);
    }
    if (array.format != "numpy" || !path.ends_with(".npy")) {
      return MakeStatus(Code::kInvalidArgument,
                        "{}: {} '{}' is of format '{}'; expected numpy, in a file whose name ends with .npy",
                        Path(), what, array.path, array.format);
    }
    return path;
  }

  Status TakeNodes() {
    if (graph_.nodes.empty()) {
      return MakeStatus(Code::kInvalidArgument, "{}: graph.nodes is missing or empty", Path());
    }
    for (const GraphBolt::Nodes& nodes : graph_.nodes) {
      if (std::ranges::find(types_, nodes.type, &Type::name) != types_.end()) {
        return MakeStatus(Code::kInvalidArgument, "{}: graph.nodes has the type '{}' twice", Path(),
                          Excerpt(nodes.type));
      }
      Type& type = types_.emplace_back(Type{.name = nodes.type, .parts = {}, .seed_labels = {}});
      type.parts.node_count = nodes.count;
      type.parts.node_count_from = Path();
    }
    return Status::Ok();
  }

  // The relation in "paper:cites:paper".
  Result<std::string> RelationOf(const std::string& type) const {
    const std::string& node = graph_.nodes[0].type;
    const bool framed =
        type.size() > 2 * node.size() + 2 && type.starts_with(node + ":") && type.ends_with(":" + node);
    const std::string relation =
        framed ? type.substr(node.size() + 1, type.size() - 2 * node.size() - 2) : std::string();
    if (!relation.empty() && relation.find(':') == std::string::npos) return relation;
    return MakeStatus(Code::kInvalidArgument, "{}: the edge type '{}' is not '{}:RELATION:{}'", Path(), type,
                      node, node);
  }

  Status TakeEdges() {
    if (graph_.edges.empty()) {
      return MakeStatus(Code::kInvalidArgument, "{}: graph.edges is missing or empty", Path());
    }
    if (IsTyped()) return TakeTypedEdges();
    SourceParts& parts = types_[0].parts;
    for (const GraphBolt::Array& edges : graph_.edges) {
      std::string relation;
      if (graph_.edges.size() > 1) {
        QUARRY_TRY(relation, RelationOf(edges.type));
      }
      for (const auto& [name, path] : parts.edges) {
        if (name != relation) continue;
        return MakeStatus(Code::kInvalidArgument, "{}: graph.edges has the type '{}' twice", Path(),
                          edges.type);
      }
      QUARRY_TRY(std::string path, EdgesPath(edges));
      QUARRY_TRY(const std::string weights, WeightsOf(edges.type));
      if (!weights.empty()) parts.weights[path] = weights;
      parts.edges.emplace_back(std::move(relation), std::move(path));
    }
    return Status::Ok();
  }

  Status TakeTypedEdges() {
    for (const GraphBolt::Array& edges : graph_.edges) {
      const size_t first = edges.type.find(':');
      const size_t second = first == std::string::npos ? first : edges.type.find(':', first + 1);
      if (second == std::string::npos || edges.type.find(':', second + 1) != std::string::npos) {
        return MakeStatus(Code::kInvalidArgument,
                          "{}: the edge type '{}' is not 'SOURCE:RELATION:DESTINATION'", Path(),
                          Excerpt(edges.type));
      }
      TypedParts::Edges type{.source = edges.type.substr(0, first),
                             .name = edges.type.substr(first + 1, second - first - 1),
                             .destination = edges.type.substr(second + 1),
                             .path = "",
                             .weights = ""};
      const bool twice = std::ranges::any_of(typed_edges_, [&](const TypedParts::Edges& other) {
        return std::tie(other.source, other.name, other.destination) ==
               std::tie(type.source, type.name, type.destination);
      });
      if (twice) {
        return MakeStatus(Code::kInvalidArgument, "{}: graph.edges has the type '{}' twice", Path(),
                          edges.type);
      }
      QUARRY_TRY(type.path, EdgesPath(edges));
      QUARRY_TRY(type.weights, WeightsOf(edges.type));
      typed_edges_.push_back(std::move(type));
    }
    return Status::Ok();
  }

  // The file with the weights of the edges of a type; empty where they have none. DGL's samplers take weights by the
  // name that they are told; "weight" is what its documentation calls them.
  Result<std::string> WeightsOf(const std::string& type) const {
    std::string path;
    for (const GraphBolt::Array& feature : graph_.graph_features) {
      if (feature.type != type || feature.domain != "edge") continue;
      if (feature.name != "weight") {
        LogWarn("{}: the edge feature '{}' of the graph is not imported", Path(), feature.name);
        continue;
      }
      QUARRY_TRY(path, NumpyPath(feature, "the feature"));
    }
    return path;
  }

  Result<std::string> EdgesPath(const GraphBolt::Array& edges) const {
    if (edges.format != "csv") {
      QUARRY_TRY(const std::string path, NumpyPath(edges, "edges"));
      QUARRY_TRY(const NpyArray array, OpenNpy(path));
      if (array.dims() == 2 && array.extent(0) == 2) return path;
      return MakeStatus(Code::kInvalidArgument, "{}: has shape {}; GraphBolt's edges are [2, E]", path,
                        array.ShapeText());
    }
    QUARRY_TRY(const std::string path, PathOf(edges));
    if (!path.ends_with(".npy") && !path.ends_with(".npz")) {
      QUARRY_TRY(const auto text, OpenTextEdges(path));
      if (!text->weighted()) return path;
      return MakeStatus(Code::kInvalidArgument,
                        "{}: has three columns; GraphBolt's edges have two, source and destination", path);
    }
    return MakeStatus(Code::kInvalidArgument, "{}: edges '{}' are of format csv; this is no name of a text",
                      Path(), edges.path);
  }

  // "feat" is what DGL's own sets call it; another name is taken where it is the only one.
  Status TakeFeatures() {
    std::vector<std::vector<const GraphBolt::Array*>> candidates(types_.size());
    for (const GraphBolt::Array& feature : graph_.features) {
      if (feature.domain != "node") {
        LogWarn("{}: the {} feature '{}' is not imported", Path(), feature.domain, feature.name);
        continue;
      }
      QUARRY_TRY(Type* const type, TypeNamed(feature.type));
      if (feature.name == "label") {
        QUARRY_TRY(type->parts.labels, NumpyPath(feature, "the feature"));
      } else {
        candidates[static_cast<size_t>(type - types_.data())].push_back(&feature);
      }
    }
    for (size_t i = 0; i < types_.size(); ++i) {
      QUARRY_RETURN_IF_ERROR(TakeFeature(candidates[i], types_[i].parts));
    }
    return Status::Ok();
  }

  Status TakeFeature(const std::vector<const GraphBolt::Array*>& candidates, SourceParts& parts) const {
    if (candidates.empty() || !hints_.features.empty()) return Status::Ok();
    const auto named = std::ranges::find(candidates, std::string("feat"), &GraphBolt::Array::name);
    if (named == candidates.end() && candidates.size() > 1) {
      return MakeStatus(
          Code::kInvalidArgument,
          "{}: has {} node features and none is called 'feat'; choose one with --features {}/{}", Path(),
          candidates.size(), folder_, candidates[0]->path);
    }
    const GraphBolt::Array& taken = named == candidates.end() ? *candidates[0] : **named;
    for (const GraphBolt::Array* other : candidates) {
      if (other != &taken) LogWarn("{}: the node feature '{}' is not imported", Path(), other->name);
    }
    QUARRY_TRY(parts.features, NumpyPath(taken, "the feature"));
    return Status::Ok();
  }

  // Tasks about edges have pairs for seeds.
  Result<bool> IsAboutNodes(const GraphBolt::Task& task) const {
    for (const auto* sets : {&task.train, &task.valid, &task.test}) {
      for (const GraphBolt::Set& set : *sets) {
        const GraphBolt::Array* const seeds = SeedsOf(set);
        if (seeds == nullptr) return false;
        QUARRY_TRY(const std::string path, NumpyPath(*seeds, "the set"));
        QUARRY_TRY(const NpyArray array, OpenNpy(path));
        if (array.dims() != 1) return false;
      }
    }
    return true;
  }
  // "seed_nodes" before DGL 2.2.
  static const GraphBolt::Array* SeedsOf(const GraphBolt::Set& set) {
    const GraphBolt::Array* const seeds = FindArray(set.arrays, "seeds");
    return seeds != nullptr ? seeds : FindArray(set.arrays, "seed_nodes");
  }

  Status TakeTask() {
    bool taken = false;
    for (const GraphBolt::Task& task : graph_.tasks) {
      QUARRY_TRY(const bool about_nodes, IsAboutNodes(task));
      if (taken || !about_nodes) {
        LogWarn("{}: the task '{}' is not imported", Path(), task.name);
        continue;
      }
      taken = true;
      if (!IsTyped()) types_[0].parts.metadata.num_classes = task.class_count;  // of which type, nobody says
      QUARRY_RETURN_IF_ERROR(TakeSets(task.train, &SourceParts::train));
      QUARRY_RETURN_IF_ERROR(TakeSets(task.valid, &SourceParts::valid));
      QUARRY_RETURN_IF_ERROR(TakeSets(task.test, &SourceParts::test));
    }
    return Status::Ok();
  }

  // The files with the nodes of a set, of each type; their labels are remembered.
  Status TakeSets(const std::vector<GraphBolt::Set>& sets, std::string SourceParts::*split) {
    for (const GraphBolt::Set& set : sets) {
      QUARRY_TRY(Type* const type, TypeNamed(set.type));
      if (!(type->parts.*split).empty()) {
        return MakeStatus(Code::kInvalidArgument, "{}: a set has the type of nodes '{}' twice", Path(),
                          Excerpt(set.type));
      }
      QUARRY_TRY(type->parts.*split, NumpyPath(*SeedsOf(set), "the set"));
      if (const GraphBolt::Array* labels = FindArray(set.arrays, "labels")) {
        QUARRY_TRY(std::string path, NumpyPath(*labels, "the set"));
        type->seed_labels.emplace_back(type->parts.*split, std::move(path));
      }
    }
    return Status::Ok();
  }

  Status ReadSeedLabels(const std::string& seeds_path, const std::string& labels_path, uint64_t node_count,
                        std::vector<NodeLabel>& all) const {
    QUARRY_TRY(const NpyArray seeds_array, OpenNpy(seeds_path));
    QUARRY_TRY(const NpyArray labels_array, OpenNpy(labels_path));
    if (labels_array.header.items != seeds_array.header.items) {
      return MakeStatus(Code::kInvalidArgument, "{}: {} labels, but there are {} seeds in {}", labels_path,
                        labels_array.header.items, seeds_array.header.items, seeds_path);
    }
    if (seeds_array.header.items > node_count - std::min<uint64_t>(node_count, all.size())) {
      return MakeStatus(
          Code::kInvalidArgument,
          "{}: with its {} seeds the sets hold more than there are nodes, {}; a node is in one split "
          "at most",
          seeds_path, seeds_array.header.items, node_count);
    }
    QUARRY_TRY(const auto seeds, MakeIntReader(seeds_array, IntRole::kId));
    QUARRY_TRY(const auto labels, MakeIntReader(labels_array, IntRole::kLabel));
    std::vector<int64_t> nodes(std::min<uint64_t>(64 << 10, seeds_array.header.items));
    std::vector<int64_t> values(nodes.size());
    for (uint64_t first = 0; first < seeds_array.header.items;) {
      QUARRY_TRY(const size_t count, seeds->Read(nodes));
      QUARRY_TRY([[maybe_unused]] const size_t same, labels->Read(std::span(values).first(count)));
      for (size_t i = 0; i < count; ++i) {
        if (nodes[i] < 0 || static_cast<uint64_t>(nodes[i]) >= node_count) {
          return MakeStatus(Code::kInvalidArgument, "{}: node id {} is out of range; there are {} nodes",
                            seeds->Position(first + i), nodes[i], node_count);
        }
        all.push_back({nodes[i], values[i]});
      }
      first += count;
    }
    return Status::Ok();
  }

  Result<std::unique_ptr<IntReader>> OpenSeedLabels(const Type& type, uint64_t node_count) const {
    std::vector<NodeLabel> labels;
    for (const auto& [seeds, values] : type.seed_labels) {
      QUARRY_RETURN_IF_ERROR(ReadSeedLabels(seeds, values, node_count, labels));
    }
    std::ranges::sort(labels, {}, &NodeLabel::node);
    for (size_t i = 1; i < labels.size(); ++i) {
      if (labels[i].node != labels[i - 1].node) continue;
      return MakeStatus(Code::kInvalidArgument,
                        "{}: the sets hold node {} twice; a node is in one split at most", Path(),
                        labels[i].node);
    }
    return std::unique_ptr<IntReader>(std::make_unique<SeedLabels>(Path(), std::move(labels), node_count));
  }

  const std::string& folder_;
  const SourceHints& hints_;
  GraphBolt graph_;
  std::vector<Type> types_;
  std::vector<TypedParts::Edges> typed_edges_;  // of a graph with types
};

}  // namespace

bool IsGraphBoltFolder(const std::string& folder) {
  std::error_code error;
  if (!fs::is_regular_file(MetadataPath(folder), error)) return false;
  const auto text = ReadPrefix(MetadataPath(folder), kMetadataBytesMax);
  return text.ok() && LooksLikeGraphBolt(*text);
}

Result<Dataset> OpenGraphBolt(const std::string& folder, const SourceHints& hints) {
  return Opener(folder, hints).Open();
}

}  // namespace quarry
