// From the files of a set for link prediction to the three readers of a dataset.
#include <algorithm>
#include <array>

#include "array_archive.h"
#include "dataset_parts.h"
#include "edge_weights.h"
#include "link_reader.h"
#include "text_lines.h"

namespace quarry {
namespace {

struct LinkFile {
  std::string path;
  std::unique_ptr<TripleReader> reader;  // null: there is no such file
  bool typed = false;                    // its edges have relations
};
using LinkFiles = std::array<LinkFile, 3>;  // train, valid, test

// A split of OGB's, as it is or saved anew: head, relation, tail; source_node, target_node; edge, [E, 2].
Result<LinkFile> OpenArchivedLinks(const std::string& path, const LinkBounds& bounds) {
  QUARRY_TRY(const ArrayArchive archive, OpenArrayArchive(path));
  std::unique_ptr<EdgeReader> edges;
  for (const auto& [source, destination] : {std::pair("head", "tail"), {"source_node", "target_node"}}) {
    if (!archive.Has(source)) continue;
    QUARRY_TRY(const NpyArray sources, archive.Open(source));
    QUARRY_TRY(const NpyArray destinations, archive.Open(destination));
    QUARRY_TRY(edges, MakeEdgeReader(sources, destinations));
  }
  if (edges == nullptr) {
    const std::string key = archive.FirstOf({"edge", "edges", "edge_index"});
    if (key.empty()) {
      return MakeStatus(
          Code::kInvalidArgument,
          "{}: holds no edges; looked for the keys head and tail, source_node and target_node, edge, "
          "edges, edge_index",
          path);
    }
    QUARRY_TRY(const NpyArray pairs, archive.Open(key));
    const bool by_edge = key == "edge" && pairs.dims() == 2 && pairs.extent(1) == 2;
    QUARRY_TRY(edges, by_edge ? MakePairReader(pairs) : MakeEdgeReader(pairs));
  }
  QUARRY_TRY(edges,
             WithArchivedWeights(std::move(edges), archive, {"weight", "edge_weights", "edge_weight"}));
  LinkFile file{.path = path, .typed = archive.Has("relation")};
  std::unique_ptr<IntReader> relations;
  if (file.typed) {
    QUARRY_TRY(const NpyArray values, archive.Open("relation"));
    QUARRY_TRY(relations, MakeIntReader(values, IntRole::kId));
  }
  file.reader = MakeTripleReader(std::move(edges), std::move(relations), bounds);
  return file;
}

Result<LinkFile> OpenLinkFile(const SourceParts& parts, const std::string& path,
                              const std::string& relations_path, const LinkBounds& bounds) {
  LinkFile file{.path = path};
  if (path.empty()) return file;
  if (IsArrayArchive(path)) return OpenArchivedLinks(path, bounds);
  std::unique_ptr<EdgeReader> edges;
  if (IsArrayFile(parts, path)) {
    QUARRY_TRY(const NpyArray array, OpenArrayFile(parts, path));
    const bool raw = !path.ends_with(".npy");  // these are [E, 2] or [E, 3], even where E is 2
    file.typed = array.dims() == 2 && array.extent(1) == 3 && (raw || array.extent(0) != 2);
    if (file.typed) {
      QUARRY_TRY(file.reader, MakeTripleReader(array, bounds));
      return file;
    }
    QUARRY_TRY(edges, raw ? MakePairReader(array) : MakeEdgeReader(array));
  } else {
    QUARRY_TRY(edges, OpenTextEdges(path));
  }
  QUARRY_TRY(edges, WithWeights(std::move(edges), WeightsBeside(path)));
  file.typed = !relations_path.empty();
  std::unique_ptr<IntReader> relations;
  if (file.typed) {
    QUARRY_TRY(relations, OpenTextInts(relations_path, IntRole::kId));
  }
  file.reader = MakeTripleReader(std::move(edges), std::move(relations), bounds);
  return file;
}

Result<LinkFiles> OpenLinkFiles(const SourceParts& parts, const LinkParts& links, const LinkBounds& bounds) {
  LinkFiles files;
  QUARRY_TRY(files[0], OpenLinkFile(parts, links.train, links.train_relations, bounds));
  QUARRY_TRY(files[1], OpenLinkFile(parts, links.valid, "", bounds));
  QUARRY_TRY(files[2], OpenLinkFile(parts, links.test, "", bounds));
  for (const LinkFile& file : files) {
    if (file.reader == nullptr || file.typed == files[0].typed) continue;
    return MakeStatus(Code::kInvalidArgument, "{}: its edges have {}, but those of {} have {}", file.path,
                      file.typed ? "relations" : "no relations", files[0].path,
                      files[0].typed ? "some" : "none");
  }
  return files;
}

// 1 + the largest relation, by a pass over all edges.
Result<uint64_t> CountRelations(const LinkFiles& files) {
  uint64_t count = 1;
  std::vector<Triple> batch(4096);
  for (const LinkFile& file : files) {
    for (size_t n = file.reader == nullptr ? 0 : 1; n > 0;) {
      QUARRY_TRY(n, file.reader->Read(batch));
      for (size_t i = 0; i < n; i++) count = std::max<uint64_t>(count, uint64_t{batch[i].relation} + 1);
    }
  }
  return count;
}

}  // namespace

Status OpenLinks(const SourceParts& parts, const SourceHints& hints, std::optional<uint64_t> node_count,
                 Dataset& dataset) {
  LinkParts links = *parts.links;
  if (!hints.edges.empty()) {
    links.train = hints.edges;
    links.train_relations.clear();
  }
  if (!node_count.has_value()) {
    return MakeStatus(Code::kInvalidArgument, "{}: nothing states the number of nodes; state it with --nodes",
                      links.train);
  }
  LinkBounds bounds{.node_count = *node_count, .relation_count = kRelationCountMax};
  QUARRY_TRY(LinkFiles files, OpenLinkFiles(parts, links, bounds));
  if (files[0].typed) {
    if (links.relation_count.has_value()) {
      bounds.relation_count = *links.relation_count;
      if (bounds.relation_count == 0 || bounds.relation_count > kRelationCountMax) {
        return MakeStatus(Code::kInvalidArgument,
                          "{}: has relations, and {} of them are stated; 1 to {} can be", links.train,
                          bounds.relation_count, kRelationCountMax);
      }
    } else {
      QUARRY_TRY(bounds.relation_count, CountRelations(files));
    }
    for (uint64_t i = 0; i < bounds.relation_count; i++) dataset.relation_names.push_back(std::to_string(i));
    QUARRY_TRY(files, OpenLinkFiles(parts, links, bounds));
  }
  dataset.train_triples = std::move(files[0].reader);
  dataset.valid_triples = std::move(files[1].reader);
  dataset.test_triples = std::move(files[2].reader);
  return Status::Ok();
}

}  // namespace quarry
