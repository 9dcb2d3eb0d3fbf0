// The steps between a source's path and its readers. Private to this room.
//
//   folder or file --[Find...]--> SourceParts --[OpenParts]--> Dataset
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "metadata_reader.h"
#include "npy_reader.h"
#include "quarry/base/status.h"
#include "quarry/import/dataset.h"

namespace quarry {

// A file without a header, and what somebody says that it holds.
struct RawFile {
  std::string path;
  NpyType type;
  std::vector<uint64_t> shape;
  std::string stated_by;  // for messages
};

// The edges of a set for link prediction, those to train on apart from those to predict; empty = there are
// none.
struct LinkParts {
  std::string train, valid, test;
  std::string train_relations;  // a relation for each edge of `train`, where the file itself has none
  std::optional<uint64_t> relation_count;
};

// Which file holds what; empty = there is none. Features of three .npy files are named by what they have in
// common
// ("DIR/features"). An .npz or a .safetensors may be named for several parts.
struct SourceParts {
  std::vector<std::pair<std::string, std::string>> edges;  // relation name, path; empty beside `links`
  std::map<std::string, std::string> weights;  // by the path of the edges, where names do not tell
  std::optional<LinkParts> links;
  std::vector<RawFile> raw;  // those of the files below and above that have no header
  std::string features;
  bool features_are_csr_files = false;
  std::string targets;
  std::string place_features, time_features;
  std::string labels;
  std::string train, valid, test;
  std::optional<uint64_t> node_count;
  std::string node_count_from;  // who states node_count, for messages
  std::string readme;
  Metadata metadata;
};

// A source with types. Each type of nodes has the parts of a graph but edges, each type of edges a file.
struct TypedParts {
  struct Nodes {
    std::string name;
    SourceParts parts;
  };
  struct Edges {
    std::string source, name, destination;
    std::string path;
    std::string weights;  // empty: those that lie beside the file
  };
  std::vector<Nodes> nodes;
  std::vector<Edges> edges;
};

// "author__writes__paper", or with three underscores each, as the name of a type of edges; nothing of another name.
std::optional<TypedParts::Edges> ParseEdgeType(const std::string& name);

// True when `folder` has a folder named for a type of edges with a list of edges in it.
bool IsTypedFolder(const std::string& folder);
// Such a folder: one for each type of edges, and for types of nodes with what FindArrayParts finds.
Result<TypedParts> FindTypedParts(const std::string& folder);

// Opens every part of every type. Nodes that nothing counts are counted by a pass over their edges. kInvalidArgument for a
// name that cannot be a type's; kUsage for hints that name files.
Result<Dataset> OpenTypedParts(const TypedParts& parts, const SourceHints& hints);

// A folder of arrays and edge lists under their usual names.
Result<SourceParts> FindArrayParts(const std::string& folder);

// True when `folder` has OGB's raw/edge.csv.gz (or .csv), raw/data.npz, or a list of several types of nodes.
bool IsOgbFolder(const std::string& folder);
// `hints.train` and so on say which split is meant where there are several.
Result<SourceParts> FindOgbParts(const std::string& folder, const SourceHints& hints);
// True when it lists types of nodes, and has a folder for each relation.
bool IsTypedOgbFolder(const std::string& folder);
Result<TypedParts> FindTypedOgbParts(const std::string& folder);

// True when `folder` has processed/paper, as MAG240M and the sizes of IGB have.
bool IsPaperFolder(const std::string& folder);
Result<SourceParts> FindPaperParts(const std::string& folder, const SourceHints& hints);
// All of its types; the hint of labels is of the papers'.
Result<TypedParts> FindTypedPaperParts(const std::string& folder, const SourceHints& hints);

// True when `folder` holds what marius_preprocess writes: edges/train_edges.bin, dataset.yaml.
bool IsMariusFolder(const std::string& folder);
Result<SourceParts> FindMariusParts(const std::string& folder);

// "features_scale.npy" beside "features.npy", where it is there.
std::string ScalesBeside(const std::string& path);

// True for a .npy, and for a file in parts.raw.
bool IsArrayFile(const SourceParts& parts, const std::string& path);
// REQUIRES: IsArrayFile(parts, path).
Result<NpyArray> OpenArrayFile(const SourceParts& parts, const std::string& path);

// Opens parts.links. Relations that nothing counts are counted by a pass over the edges.
Status OpenLinks(const SourceParts& parts, const SourceHints& hints, std::optional<uint64_t> node_count,
                 Dataset& dataset);

// Opens every part and holds their counts against each other.
Result<Dataset> OpenParts(const SourceParts& parts, const SourceHints& hints);

// `stem` plus the first of `suffixes` that makes a regular file; empty when none does.
std::string FirstFile(const std::string& stem, const std::vector<std::string>& suffixes);

}  // namespace quarry
