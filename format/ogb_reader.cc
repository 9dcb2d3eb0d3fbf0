// OGB's node-property folders: raw/edge.csv.gz, raw/node-feat.csv.gz, ..., split/<name>/train.csv.gz.
#include <algorithm>
#include <filesystem>

#include "dataset_parts.h"
#include "text_lines.h"

namespace quarry {
namespace {

const std::vector<std::string> kCsv = {".csv.gz", ".csv"};

// The one folder below split/. A node is in one split of a database, so that several need a choice.
Result<std::string> FindSplit(const std::string& folder) {
  std::vector<std::string> splits;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/split", error)) {
    if (!FirstFile(entry.path().string() + "/train", kCsv).empty()) splits.push_back(entry.path().string());
  }
  std::sort(splits.begin(), splits.end());
  if (splits.empty()) return std::string();
  if (splits.size() == 1) return splits[0];
  return MakeStatus(
      Code::kInvalidArgument,
      "{}/split holds {} splits; choose one with --train {}/train.csv.gz --valid ... --test ...", folder,
      splits.size(), splits[0]);
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
    return MakeStatus(Code::kUnsupported,
                      "{}: lists several graphs; Quarry imports node-property sets, of one graph", path);
  }
  QUARRY_RETURN_IF_ERROR(lines->status());
  return static_cast<uint64_t>(count);
}

}  // namespace

bool IsOgbFolder(const std::string& folder) { return !FirstFile(folder + "/raw/edge", kCsv).empty(); }

Result<SourceParts> FindOgbParts(const std::string& folder, const SourceHints& hints) {
  const std::string raw = folder + "/raw/";
  SourceParts parts;
  parts.edges.emplace_back("", FirstFile(raw + "edge", kCsv));
  parts.features = FirstFile(raw + "node-feat", kCsv);
  parts.labels = FirstFile(raw + "node-label", kCsv);
  const std::string nodes = FirstFile(raw + "num-node-list", kCsv);
  if (!nodes.empty()) {
    QUARRY_TRY(parts.node_count, ReadNodeCount(nodes));
    parts.node_count_from = nodes;
  }
  if (!hints.train.empty() || !hints.valid.empty() || !hints.test.empty()) return parts;
  QUARRY_TRY(const std::string split, FindSplit(folder));
  if (split.empty()) return parts;
  parts.train = FirstFile(split + "/train", kCsv);
  parts.valid = FirstFile(split + "/valid", kCsv);
  parts.test = FirstFile(split + "/test", kCsv);
  return parts;
}

}  // namespace quarry
