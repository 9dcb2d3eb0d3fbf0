// What kind of source a path is, and which of its files hold what.
#include "quarry/import/dataset.h"

#include <algorithm>
#include <filesystem>

#include "array_archive.h"
#include "byte_source.h"
#include "dataset_parts.h"
#include "edge_weights.h"
#include "graphbolt_reader.h"
#include "quarry/base/log.h"
#include "triples_reader.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kEdgeSuffixes = {".npy", ".npz",    ".csv", ".csv.gz",
                                                ".tsv", ".tsv.gz", ".txt", ".txt.gz"};
const std::vector<std::string> kRowSuffixes = {".npy", ".npz", ".safetensors", ".csv", ".csv.gz"};
const std::vector<std::string> kIntSuffixes = {".npy", ".csv", ".csv.gz"};

// What a file may be called, as arrays in an .npz or .pt may be.
const std::vector<std::string> kEdgeNames = {"edges", "edge_index"};
const std::vector<std::string> kRowNames = {"features", "x", "node_feat"};
const std::vector<std::string> kLabelNames = {"labels", "y", "label", "node_label"};

// The first of these names that there is a file of.
std::string FirstNamed(const std::string& folder, const std::vector<std::string>& names,
                       const std::vector<std::string>& suffixes) {
  for (const std::string& name : names) {
    std::string path = FirstFile(fmt::format("{}/{}", folder, name), suffixes);
    if (!path.empty()) return path;
  }
  return "";
}

// "train_idx.npy", or a mask of that name, or PyG's "val".
std::string FindSplit(const std::string& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    for (const char* kind : {"_idx", "_mask"}) {
      std::string path = FirstFile(fmt::format("{}/{}{}", folder, name, kind), kIntSuffixes);
      if (!path.empty()) return path;
    }
  }
  return "";
}

// edges_<relation>.npy and so on, by name.
Result<std::vector<std::pair<std::string, std::string>>> FindTypedEdges(const std::string& folder) {
  constexpr std::string_view kPrefix = "edges_";
  std::vector<std::pair<std::string, std::string>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !entry.is_regular_file(error)) continue;
    for (const std::string& suffix : kEdgeSuffixes) {
      if (!name.ends_with(suffix) || name.size() <= kPrefix.size() + suffix.size()) continue;
      found.emplace_back(name.substr(kPrefix.size(), name.size() - kPrefix.size() - suffix.size()),
                         entry.path().string());
    }
  }
  if (error) return ErrnoStatus(error.value(), "list", folder);
  std::sort(found.begin(), found.end());
  for (size_t i = 1; i < found.size(); i++) {
    if (found[i].first != found[i - 1].first) continue;
    return MakeStatus(Code::kInvalidArgument, "{} and {} both hold the edges of '{}'; remove one",
                      found[i - 1].second, found[i].second, found[i].first);
  }
  return found;
}

// In the order that metadata.yaml states: their ids.
Status OrderRelations(const std::string& folder, SourceParts& parts) {
  const std::vector<std::string>& stated = parts.metadata.relations;
  if (stated.empty()) return Status::Ok();
  std::vector<std::pair<std::string, std::string>> ordered;
  for (const std::string& relation : stated) {
    const auto found = std::find_if(parts.edges.begin(), parts.edges.end(),
                                    [&](const auto& edges) { return edges.first == relation; });
    if (found != parts.edges.end()) ordered.push_back(*found);
  }
  if (ordered.size() == stated.size() && ordered.size() == parts.edges.size()) {
    parts.edges = std::move(ordered);
    return Status::Ok();
  }
  return MakeStatus(
      Code::kInvalidArgument,
      "{}/metadata.yaml: relations names {}, and {} of them have files edges_<relation>, of which "
      "there are {}",
      folder, stated.size(), ordered.size(), parts.edges.size());
}

bool IsTriplesFolder(const std::string& folder) {
  const std::string train = folder + "/train.txt";
  std::error_code error;
  if (!fs::is_regular_file(train, error)) return false;
  const auto looks = LooksLikeTriples(train);
  return looks.ok() && *looks;
}

// With features, labels and splits where entities.dict says which node a row is of.
Result<Dataset> OpenTriplesFolder(const std::string& folder, SourceParts parts, const SourceHints& hints) {
  Dataset triples;
  QUARRY_RETURN_IF_ERROR(OpenTriples(folder, triples));
  const std::string entities = FirstFile(folder + "/entities", {".dict"});
  if (entities.empty()) return triples;
  parts.node_count = triples.node_count;
  parts.node_count_from = entities;
  parts.metadata.num_edges.reset();  // of the training edges alone, or of all: nobody says
  QUARRY_TRY(Dataset dataset, OpenParts(parts, hints));
  dataset.train_triples = std::move(triples.train_triples);
  dataset.valid_triples = std::move(triples.valid_triples);
  dataset.test_triples = std::move(triples.test_triples);
  dataset.entity_names = std::move(triples.entity_names);
  dataset.relation_names = std::move(triples.relation_names);
  return dataset;
}

// What the names of files that are not looked for may be meant as, by how they begin.
constexpr std::pair<std::string_view, std::string_view> kMeant[] = {
    {"feat", "features.npy"},   {"node_feat", "features.npy"},
    {"lab", "labels.npy"},      {"target", "targets.npy"},
    {"train", "train_idx.npy"}, {"val", "valid_idx.npy"},
    {"test", "test_idx.npy"},   {"edge_w", "edge_weights.npy"},
    {"edge_list", "edges.npy"}, {"edgelist", "edges.npy"},
    {"adj", "edges.npz"}};

bool IsUsed(const std::string& path, const SourceParts& parts, const SourceHints& hints) {
  const std::string* const named[] = {
      &parts.features, &parts.targets, &parts.labels,         &parts.train,
      &parts.valid,    &parts.test,    &parts.readme,         &hints.edges,
      &hints.features, &hints.targets, &hints.labels,         &hints.train,
      &hints.valid,    &hints.test,    &parts.place_features, &parts.time_features};
  const auto is_it = [&](const std::string* other) { return *other == path; };
  if (std::ranges::any_of(named, is_it)) return true;
  if (parts.features_are_csr_files && path.starts_with(parts.features + "_")) return true;
  for (const auto& [name, edges] : parts.edges) {
    if (edges == path || WeightsBeside(edges) == path) return true;
  }
  return ScalesBeside(parts.features) == path;
}

// "feat.npy (did you mean features.npy?), label.npy": files of the folder that are not imported, and what they
// may be meant as; empty without any. Files about the data are none of them.
std::string UnusedFiles(const std::string& folder, const SourceParts& parts, const SourceHints& hints) {
  std::vector<std::string> unused;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file(error) || name.starts_with('.') || name == "metadata.yaml") continue;
    const std::string suffix = entry.path().extension().string();
    if (suffix.empty() || suffix == ".md" || suffix == ".json" || name == "README.txt") continue;
    if (!IsUsed(entry.path().string(), parts, hints)) unused.push_back(name);
  }
  std::ranges::sort(unused);
  std::string text;
  for (const std::string& name : unused) {
    std::string hint;
    for (const auto& [begin, meant] : kMeant) {
      if (name.starts_with(begin) && hint.empty()) hint = fmt::format(" (did you mean {}?)", meant);
    }
    const auto prefix = ReadPrefix(folder + "/" + name, 512);
    const std::string how = prefix.ok() ? HowToRead(*prefix) : "";
    if (!how.empty()) hint = fmt::format(" ({})", how);
    text += (text.empty() ? "" : ", ") + name + hint;
  }
  return text;
}

Result<Dataset> OpenFolder(const std::string& folder, const SourceHints& hints) {
  if (IsTypedOgbFolder(folder)) {
    QUARRY_TRY(const TypedParts parts, FindTypedOgbParts(folder));
    return OpenTypedParts(parts, hints);
  }
  if (IsOgbFolder(folder)) {
    QUARRY_TRY(const SourceParts parts, FindOgbParts(folder, hints));
    return OpenParts(parts, hints);
  }
  if (IsGraphBoltFolder(folder)) return OpenGraphBolt(folder, hints);
  if (IsPaperFolder(folder) && hints.types) {
    QUARRY_TRY(const TypedParts parts, FindTypedPaperParts(folder, hints));
    SourceHints others = hints;
    others.labels.clear();  // which are the papers'
    return OpenTypedParts(parts, others);
  }
  if (IsPaperFolder(folder)) {
    QUARRY_TRY(const SourceParts parts, FindPaperParts(folder, hints));
    return OpenParts(parts, hints);
  }
  if (IsMariusFolder(folder)) {
    QUARRY_TRY(const SourceParts parts, FindMariusParts(folder));
    return OpenParts(parts, hints);
  }
  if (FirstNamed(folder, kEdgeNames, kEdgeSuffixes).empty() && IsTypedFolder(folder)) {
    QUARRY_TRY(const TypedParts typed, FindTypedParts(folder));
    return OpenTypedParts(typed, hints);
  }
  QUARRY_TRY(const SourceParts parts, FindArrayParts(folder));
  if (parts.edges.empty() && hints.edges.empty()) {
    if (IsTriplesFolder(folder)) return OpenTriplesFolder(folder, parts, hints);
    const std::string unused = UnusedFiles(folder, parts, hints);
    return MakeStatus(
        Code::kNotFound,
        "{}: no edges found{}; looked for edges.npy (also .npz .csv .tsv .txt, each text also .gz), "
        "edges_<relation>.npy, folders SOURCE__RELATION__DESTINATION with edges.npy, train.txt with triples, "
        "OGB's raw/edge.csv.gz and raw/data.npz, "
        "processed/paper of "
        "MAG240M and IGB, and Marius' edges/train_edges.bin",
        folder, unused.empty() ? "" : " in " + unused);
  }
  const std::string unused = UnusedFiles(folder, parts, hints);
  if (!unused.empty()) LogWarn("{}: not imported: {}", folder, unused);
  return OpenParts(parts, hints);
}

Result<Dataset> OpenFile(const std::string& path, const SourceHints& hints) {
  QUARRY_TRY([[maybe_unused]] const uint64_t bytes, RegularFileBytes(path));
  SourceParts parts;
  parts.edges.emplace_back("", path);
  if (IsArrayArchive(path)) {  // may hold more than edges; OpenParts takes what it finds
    parts.features = parts.targets = parts.labels = parts.train = parts.valid = parts.test = path;
  }
  return OpenParts(parts, hints);
}

}  // namespace

std::string FirstFile(const std::string& stem, const std::vector<std::string>& suffixes) {
  std::error_code error;
  for (const std::string& suffix : suffixes) {
    if (fs::is_regular_file(stem + suffix, error)) return stem + suffix;
  }
  return "";
}

Result<SourceParts> FindArrayParts(const std::string& folder) {
  SourceParts parts;
  QUARRY_TRY(parts.edges, FindTypedEdges(folder));
  const std::string edges = FirstNamed(folder, kEdgeNames, kEdgeSuffixes);
  if (!edges.empty()) {
    if (!parts.edges.empty()) LogWarn("{} is imported; {} is not", edges, parts.edges[0].second);
    parts.edges.assign(1, {"", edges});
  }
  parts.features = FirstNamed(folder, kRowNames, kRowSuffixes);
  if (parts.features.empty() && !FirstFile(folder + "/features_indptr", {".npy"}).empty()) {
    parts.features = folder + "/features";
    parts.features_are_csr_files = true;
  }
  parts.targets = FirstNamed(folder, {"targets"}, kRowSuffixes);
  parts.place_features = FirstNamed(folder, {"place_features"}, {".npy"});
  parts.time_features = FirstNamed(folder, {"time_features"}, {".npy"});
  parts.labels = FirstNamed(folder, kLabelNames, kIntSuffixes);
  parts.train = FindSplit(folder, {"train"});
  parts.valid = FindSplit(folder, {"valid", "val"});
  parts.test = FindSplit(folder, {"test"});
  parts.readme = folder + "/README.txt";
  QUARRY_TRY(parts.metadata, ReadMetadata(folder + "/metadata.yaml"));
  if (edges.empty()) QUARRY_RETURN_IF_ERROR(OrderRelations(folder, parts));
  parts.node_count = parts.metadata.num_nodes;
  parts.node_count_from = folder + "/metadata.yaml";
  return parts;
}

Result<Dataset> OpenDataset(const std::string& path, const SourceHints& hints) {
  std::error_code error;
  if (hints.types && !IsPaperFolder(path)) {
    return MakeStatus(
        Code::kUsage,
        "{}: --types is for MAG240M and IGB, which are taken for their papers without it; other sources "
        "with types are taken whole",
        path);
  }
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return MakeStatus(Code::kNotFound, "{}: no such file or folder to import", path);
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  auto dataset = fs::is_directory(status) ? OpenFolder(trimmed, hints) : OpenFile(trimmed, hints);
  if (dataset.ok()) dataset->source = trimmed;
  return dataset;
}

}  // namespace quarry
