// Sources with types of nodes and edges: what their parts are, and how all of them become one Dataset.
//
//   paper/features.npy labels.npy train_idx.npy ...   a folder for each type of nodes, as FindArrayParts takes it;
//   author/metadata.yaml                              where no array does, it states num_nodes, or edges are counted
//   author__writes__paper/edges.npy                   a folder for each type of edges; ids count from 0 in each type
//   metadata.yaml                                     may state the order of both: node_types, relations (a:writes:b)
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "dataset_parts.h"
#include "quarry/base/log.h"
#include "text_lines.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

// Types are parts of names: of tables and their files, of "author:writes:paper", of folders with "__" in between.
Status CheckTypeName(const std::string& name) {
  constexpr size_t kBytesMax = 64;
  const auto known = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; };
  if (!name.empty() && name.size() <= kBytesMax && std::ranges::all_of(name, known) &&
      name.find("__") == std::string::npos && name.front() != '_' && name.back() != '_') {
    return Status::Ok();
  }
  return MakeStatus(
      Code::kInvalidArgument,
      "'{}' cannot be the name of a type: letters, digits, '-' and single '_' between them, up to {}",
      Excerpt(name), kBytesMax);
}

std::string NameOfEdges(const TypedParts::Edges& edges) {
  return fmt::format("{}:{}:{}", edges.source, edges.name, edges.destination);
}

// Orders `found` as `stated` names them; by name where nothing is stated.
template <typename Types, typename Name>
Status OrderTypes(const std::string& folder, std::string_view key, const std::vector<std::string>& stated,
                  Types& found, Name name) {
  std::ranges::sort(found, {}, name);
  if (stated.empty()) return Status::Ok();
  Types ordered;
  for (const std::string& wanted : stated) {
    const auto type = std::ranges::find(found, wanted, name);
    if (type != found.end()) ordered.push_back(*type);
  }
  if (ordered.size() != stated.size() || ordered.size() != found.size()) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}/metadata.yaml: {} names {}, of which {} are there; there are {}", folder, key,
                      stated.size(), ordered.size(), found.size());
  }
  found = std::move(ordered);
  return Status::Ok();
}

// What a hint names is a file of a graph of one type.
Status CheckTypedHints(const SourceHints& hints, const std::string& place) {
  const std::pair<const char*, bool> given[] = {
      {"--nodes", hints.node_count != 0},  {"--dim", hints.feature_dim != 0},
      {"--edges", !hints.edges.empty()},   {"--features", !hints.features.empty()},
      {"--labels", !hints.labels.empty()}, {"--train", !hints.train.empty()},
      {"--valid", !hints.valid.empty()},   {"--test", !hints.test.empty()}};
  for (const auto& [option, is_given] : given) {
    if (!is_given) continue;
    return MakeStatus(Code::kUsage, "{}: {} is of a graph of one type; here each type has its own folder",
                      place, option);
  }
  return Status::Ok();
}

// How many nodes a type has where nothing states it: 1 + the largest id among its edges, by a pass over them.
Result<uint64_t> CountByEdges(const std::string& type, const TypedParts& parts) {
  // As an import of one type has it: an id out of place must not make a database of many GB.
  constexpr uint64_t kUnstatedMax = 1 << 20, kUnstatedPerEdge = 100;
  uint64_t count = 0, edge_count = 0;
  std::string largest;
  std::vector<Edge> batch(64 << 10);
  for (const TypedParts::Edges& edges : parts.edges) {
    if (edges.source != type && edges.destination != type) continue;
    SourceParts alone;
    alone.edges.emplace_back(edges.name, edges.path);
    QUARRY_TRY(const Dataset part, OpenParts(alone, {}));
    EdgeReader& reader = *part.edges[0].reader;
    for (uint64_t first = 0;;) {
      QUARRY_TRY(const size_t n, reader.Read(batch));
      if (n == 0) break;
      for (size_t i = 0; i < n; ++i) {
        const uint64_t of_source = edges.source == type ? batch[i].source + 1 : 0;
        const uint64_t of_destination = edges.destination == type ? batch[i].destination + 1 : 0;
        if (std::max(of_source, of_destination) <= count) continue;
        count = std::max(of_source, of_destination);
        if (count > kUnstatedMax) largest = reader.Position(first + i);
      }
      first += n;
      edge_count += n;
    }
  }
  if (count > kUnstatedMax && count > kUnstatedPerEdge * edge_count) {
    return MakeStatus(
        Code::kInvalidArgument,
        "{}: id {} makes {} nodes of type '{}', and they have {} edges: if that is right, say num_nodes "
        "in {}/metadata.yaml",
        largest, count - 1, count, type, edge_count, type);
  }
  LogWarn(
      "type '{}': nothing states the number of nodes; taking 1 + the largest id = {} (num_nodes in "
      "{}/metadata.yaml "
      "states it)",
      type, count, type);
  return count;
}

Result<NodeTypeInput> OpenNodeType(const TypedParts::Nodes& type, const TypedParts& parts,
                                   const SourceHints& hints) {
  QUARRY_RETURN_IF_ERROR(CheckTypeName(type.name));
  QUARRY_TRY(Dataset part,
             OpenParts(type.parts, {.u2_is_bfloat16 = hints.u2_is_bfloat16, .raw_type = hints.raw_type}));
  if (!part.node_count.has_value()) {
    QUARRY_TRY(part.node_count, CountByEdges(type.name, parts));
  }
  return NodeTypeInput{.name = type.name,
                       .count = *part.node_count,
                       .features = std::move(part.features),
                       .targets = std::move(part.targets),
                       .labels = std::move(part.labels),
                       .train = std::move(part.train),
                       .valid = std::move(part.valid),
                       .test = std::move(part.test)};
}

Result<EdgeInput> OpenTypedEdges(const TypedParts::Edges& type, const Dataset& dataset) {
  QUARRY_RETURN_IF_ERROR(CheckTypeName(type.name));
  SourceParts parts;
  parts.edges.emplace_back(type.name, type.path);
  if (!type.weights.empty()) parts.weights[type.path] = type.weights;
  QUARRY_TRY(Dataset part, OpenParts(parts, {}));
  EdgeInput edges = std::move(part.edges[0]);
  for (auto [name, place] :
       {std::pair(&type.source, &edges.source), {&type.destination, &edges.destination}}) {
    const auto found = std::ranges::find(dataset.node_types, *name, &NodeTypeInput::name);
    if (found == dataset.node_types.end()) {
      return MakeStatus(Code::kInvalidArgument, "{}: edges of type {}: there is no type of nodes '{}'",
                        type.path, NameOfEdges(type), *name);
    }
    *place = static_cast<uint32_t>(found - dataset.node_types.begin());
  }
  return edges;
}

}  // namespace

std::optional<TypedParts::Edges> ParseEdgeType(const std::string& name) {
  for (const std::string_view between : {"___", "__"}) {
    const size_t first = name.find(between);
    if (first == std::string::npos || first == 0) continue;
    const size_t second = name.find(between, first + between.size());
    if (second == std::string::npos || second + between.size() >= name.size()) continue;
    if (name.find(between, second + between.size()) != std::string::npos) continue;
    const size_t begin = first + between.size();
    return TypedParts::Edges{.source = name.substr(0, first),
                             .name = name.substr(begin, second - begin),
                             .destination = name.substr(second + between.size()),
                             .path = "",
                             .weights = ""};
  }
  return std::nullopt;
}

bool IsTypedFolder(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!entry.is_directory(error) || !ParseEdgeType(entry.path().filename().string())) continue;
    const auto parts = FindArrayParts(entry.path().string());
    if (parts.ok() && parts->edges.size() == 1) return true;
  }
  return false;
}

Result<TypedParts> FindTypedParts(const std::string& folder) {
  TypedParts typed;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!entry.is_directory(error)) continue;
    const std::string name = entry.path().filename().string();
    QUARRY_TRY(SourceParts parts, FindArrayParts(entry.path().string()));
    std::optional<TypedParts::Edges> edges = ParseEdgeType(name);
    if (!edges.has_value()) {
      typed.nodes.push_back({name, std::move(parts)});
      continue;
    }
    if (parts.edges.size() != 1) {
      return MakeStatus(Code::kInvalidArgument,
                        "{}: holds {} lists of edges; edges.npy or edge_index.npy was looked for",
                        entry.path().string(), parts.edges.size());
    }
    edges->path = parts.edges[0].second;
    typed.edges.push_back(*std::move(edges));
  }
  if (error) return ErrnoStatus(error.value(), "list", folder);
  // Folders that are no type's: what they have is neither counted nor joined by edges.
  std::erase_if(typed.nodes, [&](const TypedParts::Nodes& type) {
    const bool joined = std::ranges::any_of(typed.edges, [&](const TypedParts::Edges& edges) {
      return edges.source == type.name || edges.destination == type.name;
    });
    if (!joined) LogWarn("{}/{}: not imported: no edges of its nodes were found", folder, type.name);
    return !joined;
  });
  for (const TypedParts::Edges& edges : typed.edges) {
    for (const std::string& name : {edges.source, edges.destination}) {
      if (std::ranges::find(typed.nodes, name, &TypedParts::Nodes::name) == typed.nodes.end()) {
        typed.nodes.push_back({name, {}});
      }
    }
  }
  QUARRY_TRY(const Metadata metadata, ReadMetadata(folder + "/metadata.yaml"));
  QUARRY_RETURN_IF_ERROR(
      OrderTypes(folder, "node_types", metadata.node_types, typed.nodes, &TypedParts::Nodes::name));
  QUARRY_RETURN_IF_ERROR(OrderTypes(folder, "relations", metadata.relations, typed.edges, NameOfEdges));
  return typed;
}

Result<Dataset> OpenTypedParts(const TypedParts& parts, const SourceHints& hints) {
  QUARRY_RETURN_IF_ERROR(CheckTypedHints(hints, parts.edges.empty() ? "" : parts.edges[0].path));
  Dataset dataset;
  uint64_t nodes = 0;
  for (const TypedParts::Nodes& type : parts.nodes) {
    QUARRY_TRY(NodeTypeInput opened, OpenNodeType(type, parts, hints));
    if (opened.count > kNodeCountMax - nodes) {
      return MakeStatus(Code::kUnsupported,
                        "with {} nodes of type '{}' there are more than the {} that a database can hold",
                        opened.count, type.name, kNodeCountMax);
    }
    nodes += opened.count;
    dataset.node_types.push_back(std::move(opened));
  }
  for (const TypedParts::Edges& type : parts.edges) {
    QUARRY_TRY(EdgeInput edges, OpenTypedEdges(type, dataset));
    dataset.edges.push_back(std::move(edges));
  }
  dataset.node_count = nodes;
  return dataset;
}

}  // namespace quarry
