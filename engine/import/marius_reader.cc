// The folder that marius_preprocess writes: arrays without headers, whose shapes dataset.yaml states.
//
//   dataset.yaml                               counts; -1 = there are none
//   edges/{train,validation,test}_edges.bin    [E, 2] source, destination; or [E, 3], the relation between
//   nodes/{train,validation,test}_nodes.bin    ids
//   nodes/features.bin, nodes/labels.bin       float32 [N, D], int32 [N]
//
// Integers are int32, or int64 where the file's size says so. Edges to predict make it a set for link
// prediction.
#include <filesystem>

#include "byte_source.h"
#include "dataset_parts.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

const NpyType kInt32{'i', 4, "int32"};
const NpyType kInt64{'i', 8, "int64"};
const NpyType kFloat32{'f', 4, "float32"};

// The path, if there is such a file.
std::string FileAt(const std::string& folder, std::string_view name) {
  const std::string path = fmt::format("{}/{}", folder, name);
  std::error_code error;
  return fs::is_regular_file(path, error) ? path : "";
}

struct EdgeLayout {
  NpyType type;
  uint64_t columns = 0;
  uint64_t row_bytes() const { return type.bytes * columns; }
};

// How the training edges are stored, from their number and their file's size.
Result<EdgeLayout> FindEdgeLayout(const std::string& path, uint64_t edge_count, const std::string& yaml) {
  QUARRY_TRY(const uint64_t file_bytes, RegularFileBytes(path));
  for (const NpyType& type : {kInt32, kInt64}) {
    for (const uint64_t columns : {2, 3}) {
      const EdgeLayout layout{type, columns};
      if (file_bytes % layout.row_bytes() == 0 && file_bytes / layout.row_bytes() == edge_count)
        return layout;
    }
  }
  return MakeStatus(
      Code::kInvalidArgument,
      "{}: has {} bytes, which are not {} edges of 2 or 3 integers of 4 or 8 bytes; look into {}'s "
      "num_edges",
      path, file_bytes, edge_count, yaml);
}

class MariusFolder {
 public:
  explicit MariusFolder(std::string folder) : folder_(std::move(folder)), yaml_(folder_ + "/dataset.yaml") {}

  Result<SourceParts> Find() {
    QUARRY_TRY(stated_, ReadMariusMetadata(yaml_));
    QUARRY_TRY(nodes_, Stated(stated_.num_nodes, "num_nodes"));
    parts_.node_count = nodes_;
    parts_.node_count_from = yaml_;
    parts_.metadata.num_classes = stated_.num_classes;
    QUARRY_RETURN_IF_ERROR(FindEdges());
    QUARRY_RETURN_IF_ERROR(FindProperties());
    return std::move(parts_);
  }

 private:
  Result<uint64_t> Stated(std::optional<uint64_t> count, std::string_view key) const {
    if (count.has_value()) return *count;
    return MakeStatus(Code::kInvalidArgument, "{}: states no {}, which tells how the files are laid out",
                      yaml_, key);
  }

  void AddRaw(const std::string& path, const NpyType& type, std::vector<uint64_t> shape) {
    parts_.raw.push_back({path, type, std::move(shape), yaml_});
  }

  Status FindEdges() {
    const std::string train = folder_ + "/edges/train_edges.bin";
    QUARRY_TRY(const uint64_t edge_count, Stated(stated_.num_edges, "num_edges"));
    QUARRY_TRY(layout_, FindEdgeLayout(train, edge_count, yaml_));
    AddRaw(train, layout_.type, {edge_count, layout_.columns});
    LinkParts links{.train = train, .relation_count = stated_.num_relations};
    QUARRY_TRY(links.valid, FindHeldOut("validation", stated_.num_valid));
    QUARRY_TRY(links.test, FindHeldOut("test", stated_.num_test));
    if (layout_.columns == 3 || !links.valid.empty() || !links.test.empty()) {
      parts_.links = std::move(links);
    } else {
      parts_.edges.emplace_back("", train);
    }
    return Status::Ok();
  }

  // `count` is of nodes where there are such nodes.
  Result<std::string> FindHeldOut(std::string_view name, std::optional<uint64_t> count) {
    const std::string path = FileAt(folder_, fmt::format("edges/{}_edges.bin", name));
    if (path.empty()) return path;
    if (!count.has_value() || !FileAt(folder_, fmt::format("nodes/{}_nodes.bin", name)).empty()) {
      QUARRY_TRY(const uint64_t file_bytes, RegularFileBytes(path));
      count = file_bytes / layout_.row_bytes();
    }
    AddRaw(path, layout_.type, {*count, layout_.columns});
    return path;
  }

  Status FindProperties() {
    parts_.features = FileAt(folder_, "nodes/features.bin");
    if (!parts_.features.empty()) {
      QUARRY_TRY(const uint64_t dim, Stated(stated_.feature_dim, "node_feature_dim"));
      AddRaw(parts_.features, kFloat32, {nodes_, dim});
    }
    QUARRY_TRY(parts_.labels, FindInts("nodes/labels.bin", nodes_, "num_nodes"));
    QUARRY_TRY(parts_.train, FindInts("nodes/train_nodes.bin", stated_.num_train, "num_train"));
    QUARRY_TRY(parts_.valid, FindInts("nodes/validation_nodes.bin", stated_.num_valid, "num_valid"));
    QUARRY_TRY(parts_.test, FindInts("nodes/test_nodes.bin", stated_.num_test, "num_test"));
    return Status::Ok();
  }

  Result<std::string> FindInts(std::string_view name, std::optional<uint64_t> stated, std::string_view key) {
    const std::string path = FileAt(folder_, name);
    if (path.empty()) return path;
    QUARRY_TRY(const uint64_t count, Stated(stated, key));
    QUARRY_TRY(const uint64_t file_bytes, RegularFileBytes(path));
    const bool wide = count > 0 && file_bytes / count == kInt64.bytes;
    AddRaw(path, wide ? kInt64 : kInt32, {count});
    return path;
  }

  const std::string folder_;
  const std::string yaml_;
  MariusMetadata stated_;
  uint64_t nodes_ = 0;
  EdgeLayout layout_;
  SourceParts parts_;
};

}  // namespace

bool IsMariusFolder(const std::string& folder) {
  std::error_code error;
  return !FileAt(folder, "edges/train_edges.bin").empty() ||
         (!FileAt(folder, "dataset.yaml").empty() && fs::is_directory(folder + "/edges", error));
}

Result<SourceParts> FindMariusParts(const std::string& folder) { return MariusFolder(folder).Find(); }

}  // namespace quarry
