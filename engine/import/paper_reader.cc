// MAG240M and IGB: citations between papers, below processed/. Their other types of nodes stay out, unless all are asked for.
//
//   paper/node_feat.npy                       [N, D]; in IGB's large and full sets without a header
//   paper/node_label.npy                      MAG240M's; IGB's are node_label_19.npy, node_label_2K.npy
//   paper___cites___paper/edge_index.npy      MAG240M: [2, E]
//   paper__cites__paper/edge_index.npy        IGB: [E, 2]
//
// MAG240M's split_dict.pt, beside processed/, has the nodes of each split by its name.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "dataset_parts.h"
#include "quarry/base/log.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

Result<std::string> FindLabels(const std::string& papers, const SourceHints& hints) {
  if (!hints.labels.empty()) return std::string();
  const std::string one = FirstFile(papers + "/node_label", {".npy"});
  const std::string few = FirstFile(papers + "/node_label_19", {".npy"});
  const std::string many = FirstFile(papers + "/node_label_2K", {".npy"});
  if (!one.empty()) return one;
  if (few.empty() || many.empty()) return few.empty() ? many : few;
  return MakeStatus(Code::kInvalidArgument,
                    "{} and node_label_2K.npy are both there; choose one of them with --labels", few);
}

// Relations other than the citations, for a note.
std::string OtherRelations(const std::string& processed, const std::string& citations) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(processed, error)) {
    const std::string path = entry.path().string();
    if (path != citations && !FirstFile(path + "/edge_index", {".npy"}).empty())
      names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

bool IsPaperFolder(const std::string& folder) {
  std::error_code error;
  return fs::is_directory(folder + "/processed/paper", error);
}

Result<SourceParts> FindPaperParts(const std::string& folder, const SourceHints& hints) {
  const std::string processed = folder + "/processed";
  SourceParts parts;
  for (const char* name : {"/paper___cites___paper", "/paper__cites__paper"}) {
    const std::string edges = FirstFile(processed + name + "/edge_index", {".npy"});
    if (edges.empty()) continue;
    parts.edges.assign(1, {"", edges});
    const std::string others = OtherRelations(processed, processed + name);
    if (!others.empty()) {
      LogInfo("{}: papers and their citations are imported, without {} (--types imports them)", folder,
              others);
    }
  }
  if (parts.edges.empty() && hints.edges.empty()) {
    return MakeStatus(Code::kNotFound,
                      "{}: no edges found; looked for paper___cites___paper/edge_index.npy (MAG240M) and "
                      "paper__cites__paper/edge_index.npy (IGB)",
                      processed);
  }
  parts.features = FirstFile(processed + "/paper/node_feat", {".npy"});
  QUARRY_TRY(parts.labels, FindLabels(processed + "/paper", hints));
  if (hints.train.empty() && hints.valid.empty() && hints.test.empty()) {
    parts.train = parts.valid = parts.test = FirstFile(folder + "/split_dict", {".pt"});
  }
  return parts;
}

Result<TypedParts> FindTypedPaperParts(const std::string& folder, const SourceHints& hints) {
  QUARRY_TRY(TypedParts typed, FindTypedParts(folder + "/processed"));
  const auto papers = std::ranges::find(typed.nodes, std::string("paper"), &TypedParts::Nodes::name);
  if (papers == typed.nodes.end()) {
    return MakeStatus(Code::kNotFound, "{}/processed: no edges of papers were found", folder);
  }
  QUARRY_TRY(papers->parts.labels, FindLabels(folder + "/processed/paper", hints));
  if (!hints.labels.empty()) papers->parts.labels = hints.labels;
  const std::string splits = FirstFile(folder + "/split_dict", {".pt"});
  papers->parts.train = papers->parts.valid = papers->parts.test = splits;
  return typed;
}

}  // namespace quarry
