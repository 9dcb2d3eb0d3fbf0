// OGB's folders: raw/ as text (edge.csv.gz, node-feat.csv.gz, ...) or as arrays (data.npz), and
// split/<name>/.
//
// Node-property sets have labels, and splits of nodes as text. Link-property sets have none; their raw/ holds
// the edges to train on, and their splits are files of torch.save, or what somebody has saved instead.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "array_archive.h"
#include "dataset_parts.h"
#include "quarry/base/log.h"
#include "text_lines.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kCsv = {".csv.gz", ".csv"};
const std::vector<std::string> kLinks = {".npz", ".npy", ".csv.gz", ".csv", ".pt"};

// The folders below split/ that have a train file with one of the suffixes, by name.
std::vector<std::string> ListSplits(const std::string& folder, const std::vector<std::string>& suffixes) {
  std::vector<std::string> splits;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder + "/split", error)) {
    if (!FirstFile(entry.path().string() + "/train", suffixes).empty())
      splits.push_back(entry.path().string());
  }
  std::sort(splits.begin(), splits.end());
  return splits;
}

// The one folder below split/. A node is in one split of a database, so that several need a choice.
Result<std::string> FindNodeSplit(const std::string& folder) {
  const std::vector<std::string> splits = ListSplits(folder, kCsv);
  if (splits.empty()) return std::string();
  if (splits.size() == 1) return splits[0];
  return MakeStatus(
      Code::kInvalidArgument,
      "{}/split holds {} splits; choose one with --train {}/train.csv.gz --valid ... --test ...", folder,
      splits.size(), splits[0]);
}

Status SeveralGraphs(const std::string& place) {
  return MakeStatus(Code::kUnsupported, "{}: lists several graphs; Quarry imports sets of one graph", place);
}

Result<uint64_t> ReadNodeCount(const std::string& path) {
  QUARRY_TRY(const auto lines, LineReader::Open(path));
  std::string_view line;
  int64_t count = -1;
  const bool read = lines->Next(&line);
  QUARRY_RETURN_IF_ERROR(lines->status());
  if (!read || !ParseInteger(Trim(line), &count) || count < 0) {
    return MakeStatus(Code::kInvalidArgument, "{}: line 1 holds no node count", path);
  }
  while (lines->Next(&line)) {
    if (Trim(line).empty()) continue;
    return SeveralGraphs(path);
  }
  QUARRY_RETURN_IF_ERROR(lines->status());
  return static_cast<uint64_t>(count);
}

// num_nodes_list of data.npz.
Result<uint64_t> ReadNodeCountArray(const std::string& path) {
  QUARRY_TRY(const ArrayArchive archive, OpenNpz(path));
  QUARRY_TRY(const NpyArray list, archive.Open("num_nodes_list"));
  QUARRY_TRY(const auto cursor, IntCursor::Open(list, 0, list.header.items, IntRole::kId));
  std::array<int64_t, 2> counts{};
  QUARRY_TRY(const size_t n, cursor->Read(counts));
  if (n > 1) return SeveralGraphs(list.name);
  if (n == 0 || counts[0] < 0) {
    return MakeStatus(Code::kInvalidArgument, "{}: holds no node count", list.name);
  }
  return static_cast<uint64_t>(counts[0]);
}

// Values of edges (features, years), which a database has no place for.
void NoteEdgeValues(const std::string& raw) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(raw, error)) {
    const std::string name = entry.path().filename().string();
    const bool values = name.starts_with("edge-feat.") || name.starts_with("edge_");
    if (values && !name.starts_with("edge_reltype.") && !name.starts_with("edge_weight."))
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  if (!names.empty()) LogInfo("{}: {}: edges are imported without these values", raw, fmt::join(names, ", "));
}

// Moves parts.edges to parts.links where edges have relations or there are edges to predict.
Status FindLinkParts(const std::string& folder, SourceParts& parts) {
  NoteEdgeValues(folder + "/raw");
  LinkParts links{.train = parts.edges[0].second,
                  .train_relations = FirstFile(folder + "/raw/edge_reltype", kCsv)};
  const std::vector<std::string> splits = ListSplits(folder, kLinks);
  if (splits.size() > 1) {
    return MakeStatus(Code::kInvalidArgument, "{}/split holds {} splits; leave one of them there", folder,
                      splits.size());
  }
  for (size_t i = 0; i < splits.size() * 3; i++) {
    const std::string stem = splits[0] + std::array{"/train", "/valid", "/test"}[i];
    const std::string found = FirstFile(stem, kLinks);
    if (found.empty()) continue;
    std::array{&links.train, &links.valid, &links.test}[i]->assign(found);
    if (i == 0) links.train_relations.clear();
  }
  if (links.train_relations.empty() && links.train == parts.edges[0].second && links.valid.empty() &&
      links.test.empty()) {
    return Status::Ok();
  }
  parts.edges.clear();
  parts.links = std::move(links);
  return Status::Ok();
}

// num-node-dict: a line of names of types, and one of how many nodes each has.
Result<std::vector<std::pair<std::string, uint64_t>>> ReadNodeCounts(const std::string& path,
                                                                     const std::string& raw) {
  if (path.empty()) {
    return MakeStatus(Code::kNotFound,
                      "{}: lists types of nodes, and num-node-dict.csv.gz, which counts them, is not there",
                      raw);
  }
  QUARRY_TRY(const auto lines, LineReader::Open(path));
  std::vector<std::pair<std::string, uint64_t>> counts;
  std::string_view line;
  const auto cells = [&line] {
    std::vector<std::string> split(1);
    for (const char c : Trim(line)) {
      if (c == ',') {
        split.emplace_back();
      } else {
        split.back() += c;
      }
    }
    return split;
  };
  if (lines->Next(&line)) {
    for (std::string& name : cells()) counts.emplace_back(std::move(name), 0);
  }
  std::vector<std::string> numbers;
  if (lines->Next(&line)) numbers = cells();
  QUARRY_RETURN_IF_ERROR(lines->status());
  bool sound = !counts.empty() && numbers.size() == counts.size();
  for (size_t i = 0; sound && i < counts.size(); ++i) {
    int64_t count = -1;
    sound = ParseInteger(numbers[i], &count) && count >= 0;
    counts[i].second = static_cast<uint64_t>(count);
  }
  if (sound) return counts;
  return MakeStatus(Code::kInvalidArgument, "{}: is not a line of types of nodes and one of their counts",
                    path);
}

// split/NAME/TYPE/train.csv.gz. Edges to be predicted, which lie in split/NAME/train.pt, are left out.
Status FindTypedSplits(const std::string& folder, TypedParts& typed) {
  std::vector<std::string> splits;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder + "/split", error)) {
    if (entry.is_directory(error)) splits.push_back(entry.path().string());
  }
  std::ranges::sort(splits);
  if (splits.size() > 1) {
    return MakeStatus(Code::kInvalidArgument, "{}/split holds {} splits; leave one of them there", folder,
                      splits.size());
  }
  for (const std::string& split : splits) {
    for (TypedParts::Nodes& type : typed.nodes) {
      type.parts.train = FirstFile(split + "/" + type.name + "/train", kCsv);
      type.parts.valid = FirstFile(split + "/" + type.name + "/valid", kCsv);
      type.parts.test = FirstFile(split + "/" + type.name + "/test", kCsv);
    }
    if (!FirstFile(split + "/valid", kLinks).empty()) {
      LogWarn("{}: the edges to be predicted are not imported: a graph with types has training edges alone",
              split);
    }
  }
  return Status::Ok();
}

bool HasSeveralTypes(const std::string& folder) {
  return !FirstFile(folder + "/raw/triplet-type-list", kCsv).empty() ||
         !FirstFile(folder + "/raw/edge_index_dict", {".npz"}).empty();
}

}  // namespace

bool IsTypedOgbFolder(const std::string& folder) {
  std::error_code error;
  return !FirstFile(folder + "/raw/triplet-type-list", kCsv).empty() &&
         fs::is_directory(folder + "/raw/relations", error);
}

Result<TypedParts> FindTypedOgbParts(const std::string& folder) {
  const std::string raw = folder + "/raw/";
  TypedParts typed;
  QUARRY_TRY(const auto counts, ReadNodeCounts(FirstFile(raw + "num-node-dict", kCsv), raw));
  for (const auto& [name, count] : counts) {
    SourceParts parts;
    parts.node_count = count;
    parts.node_count_from = FirstFile(raw + "num-node-dict", kCsv);
    parts.features = FirstFile(raw + "node-feat/" + name + "/node-feat", kCsv);
    parts.labels = FirstFile(raw + "node-label/" + name + "/node-label", kCsv);
    typed.nodes.push_back({name, std::move(parts)});
  }
  QUARRY_RETURN_IF_ERROR(FindTypedSplits(folder, typed));
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(raw + "relations", error)) {
    std::optional<TypedParts::Edges> edges = ParseEdgeType(entry.path().filename().string());
    if (!edges.has_value()) continue;
    NoteEdgeValues(entry.path().string());
    edges->path = FirstFile(entry.path().string() + "/edge", kCsv);
    if (edges->path.empty()) {
      return MakeStatus(Code::kNotFound, "{}: no edges found; looked for edge.csv.gz", entry.path().string());
    }
    typed.edges.push_back(*std::move(edges));
  }
  if (error) return ErrnoStatus(error.value(), "list", raw + "relations");
  std::ranges::sort(typed.edges, {}, &TypedParts::Edges::path);
  return typed;
}

bool IsOgbFolder(const std::string& folder) {
  return !FirstFile(folder + "/raw/edge", kCsv).empty() ||
         !FirstFile(folder + "/raw/data", {".npz"}).empty() || HasSeveralTypes(folder);
}

Result<SourceParts> FindOgbParts(const std::string& folder, const SourceHints& hints) {
  const std::string raw = folder + "/raw/";
  if (HasSeveralTypes(folder)) {
    return MakeStatus(
        Code::kUnsupported,
        "{}: nodes of several types, each numbered from 0 on; Quarry takes one numbering: shift the "
        "ids of each type and write train.txt, valid.txt and test.txt with triples",
        raw);
  }
  SourceParts parts;
  const std::string arrays = FirstFile(raw + "data", {".npz"});
  if (arrays.empty()) {
    parts.edges.emplace_back("", FirstFile(raw + "edge", kCsv));
    parts.features = FirstFile(raw + "node-feat", kCsv);
    parts.labels = FirstFile(raw + "node-label", kCsv);
    parts.node_count_from = FirstFile(raw + "num-node-list", kCsv);
    if (!parts.node_count_from.empty()) {
      QUARRY_TRY(parts.node_count, ReadNodeCount(parts.node_count_from));
    }
  } else {
    parts.edges.emplace_back("", arrays);
    parts.features = arrays;
    parts.labels = FirstFile(raw + "node-label", {".npz"});
    parts.node_count_from = arrays;
    QUARRY_TRY(parts.node_count, ReadNodeCountArray(arrays));
  }
  if (!hints.train.empty() || !hints.valid.empty() || !hints.test.empty()) return parts;
  if (parts.labels.empty() && hints.labels.empty()) {
    QUARRY_RETURN_IF_ERROR(FindLinkParts(folder, parts));
    return parts;
  }
  QUARRY_TRY(const std::string split, FindNodeSplit(folder));
  if (split.empty()) return parts;
  parts.train = FirstFile(split + "/train", kCsv);
  parts.valid = FirstFile(split + "/valid", kCsv);
  parts.test = FirstFile(split + "/test", kCsv);
  return parts;
}

}  // namespace quarry
