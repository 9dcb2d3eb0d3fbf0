// The steps between a source's path and its readers. Private to this room.
//
//   folder or file --[Find...]--> SourceParts --[OpenParts]--> Dataset
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "metadata_reader.h"
#include "quarry/base/status.h"
#include "quarry/format/dataset.h"

namespace quarry {

// Which file holds what; empty = there is none. Features of three .npy files are named by what they have in
// common
// ("DIR/features"). An .npz may be named for several parts.
struct SourceParts {
  std::vector<std::pair<std::string, std::string>> edges;  // relation name, path
  std::string features;
  bool features_are_csr_files = false;
  std::string labels;
  std::string train, valid, test;
  std::optional<uint64_t> node_count;
  std::string node_count_from;  // who states node_count, for messages
  std::string readme;
  Metadata metadata;
};

// A folder of arrays and edge lists under their usual names.
Result<SourceParts> FindArrayParts(const std::string& folder);

// True when `folder` has OGB's raw/edge.csv.gz (or .csv).
bool IsOgbFolder(const std::string& folder);
// `hints.train` and so on say which split is meant where there are several.
Result<SourceParts> FindOgbParts(const std::string& folder, const SourceHints& hints);

// Opens every part and holds their counts against each other.
Result<Dataset> OpenParts(const SourceParts& parts, const SourceHints& hints);

// `stem` plus the first of `suffixes` that makes a regular file; empty when none does.
std::string FirstFile(const std::string& stem, const std::vector<std::string>& suffixes);

}  // namespace quarry
