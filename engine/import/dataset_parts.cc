#include "dataset_parts.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "array_archive.h"
#include "edge_weights.h"
#include "quarry/base/log.h"
#include "text_lines.h"

namespace quarry {
namespace {

// A count that several places state: they must agree.
class AgreedCount {
 public:
  explicit AgreedCount(std::string_view what) : what_(what) {}
  Status Add(std::optional<uint64_t> count, const std::string& place, std::string_view unit) {
    if (!count.has_value()) return Status::Ok();
    if (!value_.has_value()) {
      value_ = count;
      first_ = fmt::format("{}: {} {}", place, *count, unit);
    } else if (*value_ != *count) {
      return MakeStatus(Code::kInvalidArgument, "{}: {} {}, but there are {} {} ({})", place, *count, unit,
                        *value_, what_, first_);
    }
    return Status::Ok();
  }
  const std::optional<uint64_t>& value() const { return value_; }

 private:
  const std::string_view what_;
  std::optional<uint64_t> value_;
  std::string first_;
};

const RawFile* FindRaw(const SourceParts& parts, const std::string& path) {
  for (const RawFile& file : parts.raw) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

// An archive that is the whole source may lack any part; one that was found under a part's name holds it.
bool SharedWithEdges(const SourceParts& parts, const std::string& path) {
  if (parts.links.has_value()) return path == parts.links->train;
  return !parts.edges.empty() && path == parts.edges[0].second;
}

struct Opened {
  const SourceParts& parts;
  const SourceHints& hints;
  AgreedCount nodes{"nodes"};
  AgreedCount columns{"columns"};
  AgreedCount times{"times"};
  Dataset dataset;
};

// scipy.sparse.save_npz writes indptr, indices, data, shape, format; others put a prefix before each.
struct CsrKeys {
  std::string prefix;
  bool found = false;
};
CsrKeys FindCsr(const ArrayArchive& archive, const std::vector<std::string>& prefixes) {
  for (const std::string& prefix : prefixes) {
    if (archive.Has(prefix + "indptr") && archive.Has(prefix + "indices")) return {prefix, true};
  }
  return {};
}

// Rows and columns, where the archive states them; refuses formats other than CSR.
Result<std::optional<std::array<uint64_t, 2>>> CsrShape(const ArrayArchive& archive,
                                                        const std::string& prefix) {
  if (archive.Has(prefix + "format")) {
    QUARRY_TRY(const NpyArray tag, archive.Open(prefix + "format"));
    QUARRY_TRY(const std::string format, ReadTag(tag));
    if (format != "csr") {
      return MakeStatus(Code::kInvalidArgument, "{}: is a sparse matrix in {} form; save its .tocsr()",
                        archive.path, Excerpt(format));
    }
  }
  if (!archive.Has(prefix + "shape")) return std::optional<std::array<uint64_t, 2>>();
  QUARRY_TRY(const NpyArray shape, archive.Open(prefix + "shape"));
  QUARRY_TRY(const auto cursor, IntCursor::Open(shape, 0, shape.header.items, IntRole::kId));
  std::array<int64_t, 2> extents{};
  QUARRY_TRY(const size_t count, cursor->Read(extents));
  if (count != 2 || shape.header.items != 2 || extents[0] < 0 || extents[1] < 0) {
    return MakeStatus(Code::kInvalidArgument, "{}: is no shape of a matrix", shape.name);
  }
  return std::optional(
      std::array<uint64_t, 2>{static_cast<uint64_t>(extents[0]), static_cast<uint64_t>(extents[1])});
}

Result<std::unique_ptr<EdgeReader>> OpenArchiveEdges(const std::string& path, AgreedCount& nodes) {
  QUARRY_TRY(const ArrayArchive archive, OpenArrayArchive(path));
  const std::string key = archive.FirstOf({"edges", "edge_index"});
  if (!key.empty()) {
    QUARRY_TRY(const NpyArray edges, archive.Open(key));
    QUARRY_TRY(auto reader, MakeEdgeReader(edges));
    return WithArchivedWeights(std::move(reader), archive, {"edge_weights", "edge_weight"});
  }
  const CsrKeys csr = FindCsr(archive, {"", "adj_"});
  if (csr.found) {
    QUARRY_TRY(const auto shape, CsrShape(archive, csr.prefix));
    QUARRY_TRY(const NpyArray indptr, archive.Open(csr.prefix + "indptr"));
    QUARRY_TRY(const NpyArray indices, archive.Open(csr.prefix + "indices"));
    if (shape.has_value() && (*shape)[0] != (*shape)[1]) {
      return MakeStatus(Code::kInvalidArgument, "{}: an adjacency matrix is square; this one is {} x {}",
                        path, (*shape)[0], (*shape)[1]);
    }
    if (shape.has_value()) QUARRY_RETURN_IF_ERROR(nodes.Add((*shape)[0], path, "rows"));
    QUARRY_TRY(auto reader, MakeCsrEdgeReader(indptr, indices));
    if (!archive.Has(csr.prefix + "data")) return reader;
    QUARRY_TRY(const NpyArray values, archive.Open(csr.prefix + "data"));
    QUARRY_TRY(const bool weighted, AnyButOnes(values));
    return weighted ? WithWeights(std::move(reader), values) : std::move(reader);
  }
  return MakeStatus(
      Code::kInvalidArgument,
      "{}: holds no edges; looked for the keys edges, edge_index, and scipy's indptr and indices", path);
}

// But for weights beside them.
Result<std::unique_ptr<EdgeReader>> OpenBareEdges(Opened& opened, const std::string& path) {
  if (IsArrayArchive(path)) return OpenArchiveEdges(path, opened.nodes);
  if (!IsArrayFile(opened.parts, path)) return OpenTextEdges(path);
  QUARRY_TRY(const NpyArray edges, OpenArrayFile(opened.parts, path));
  return FindRaw(opened.parts, path) != nullptr ? MakePairReader(edges) : MakeEdgeReader(edges);
}

Result<std::unique_ptr<EdgeReader>> OpenEdges(Opened& opened, const std::string& path) {
  QUARRY_TRY(auto edges, OpenBareEdges(opened, path));
  const auto named = opened.parts.weights.find(path);
  return WithWeights(std::move(edges),
                     named != opened.parts.weights.end() ? named->second : WeightsBeside(path));
}

// The number of columns of a CSR matrix, from whoever states it first.
Result<uint64_t> CsrColumns(Opened& opened, const CsrArrays& csr, const std::string& name,
                            std::optional<uint64_t> own_shape) {
  QUARRY_RETURN_IF_ERROR(opened.columns.Add(own_shape, name, "columns in its shape"));
  if (opened.columns.value().has_value()) return *opened.columns.value();
  if (!opened.parts.readme.empty()) {
    QUARRY_TRY(const auto stated, StatedColumns(opened.parts.readme));
    if (stated.has_value()) return *stated;
  }
  QUARRY_TRY(const uint64_t columns, CsrColumnCount(csr.indices));
  LogWarn(
      "{}: nothing states the number of feature columns; taking 1 + the largest index = {} (--dim states it)",
      name, columns);
  return columns;
}

Result<std::unique_ptr<RowReader>> OpenCsrRows(Opened& opened, const CsrArrays& csr, const std::string& name,
                                               std::optional<uint64_t> own_shape) {
  QUARRY_TRY(const uint64_t columns, CsrColumns(opened, csr, name, own_shape));
  if (columns == 0) return MakeStatus(Code::kInvalidArgument, "{}: the matrix has no columns", name);
  return MakeCsrRowReader(csr, columns);
}

// Nothing when an .npz that was not named for its features holds none.
Result<std::unique_ptr<RowReader>> OpenArchiveRows(Opened& opened, const std::string& path, bool required) {
  QUARRY_TRY(const ArrayArchive archive, OpenArrayArchive(path));
  const std::string key = archive.FirstOf({"features", "x", "node_feat"});
  if (!key.empty()) {
    QUARRY_TRY(const NpyArray rows, archive.Open(key));
    return MakeRowReader(rows, opened.hints.u2_is_bfloat16);
  }
  // In an archive of its own, scipy's bare names are the features; beside edges they are the adjacency.
  const CsrKeys csr = FindCsr(archive, required ? std::vector<std::string>{"features_", "attr_", ""}
                                                : std::vector<std::string>{"features_", "attr_"});
  if (csr.found) {
    QUARRY_TRY(const auto shape, CsrShape(archive, csr.prefix));
    CsrArrays arrays;
    QUARRY_TRY(arrays.indptr, archive.Open(csr.prefix + "indptr"));
    QUARRY_TRY(arrays.indices, archive.Open(csr.prefix + "indices"));
    QUARRY_TRY(arrays.data, archive.Open(csr.prefix + "data"));
    const std::optional<uint64_t> columns = shape.has_value() ? std::optional((*shape)[1]) : std::nullopt;
    return OpenCsrRows(opened, arrays, path, columns);
  }
  if (!required) return std::unique_ptr<RowReader>();
  return MakeStatus(Code::kInvalidArgument,
                    "{}: holds no features; looked for the keys features, x, node_feat, and scipy's indptr",
                    path);
}

// --dtype, of features that lie in a file without a header.
Result<NpyType> RawRowType(const std::string& name) {
  const NpyType known[] = {
      {'f', 4, "float32"}, {'f', 2, "float16"}, {'B', 2, "bfloat16"}, {'f', 8, "float64"}};
  for (const NpyType& type : known) {
    if (type.name == name) return type;
  }
  return MakeStatus(Code::kUsage, "--dtype {} is none of float32, float16, bfloat16, float64", name);
}

// Whether the file has no header although its name ends in .npy, as IGB's memory maps.
Result<bool> LacksHeader(const Opened& opened, const std::string& path) {
  if (FindRaw(opened.parts, path) != nullptr) return false;
  QUARRY_TRY(const std::string prefix, ReadPrefix(path, kNpyMagic.size()));
  return prefix != kNpyMagic;
}

Result<NpyArray> OpenRowFile(const Opened& opened, const std::string& path) {
  QUARRY_TRY(const bool headerless, LacksHeader(opened, path));
  if (!headerless) return OpenArrayFile(opened.parts, path);
  const std::optional<uint64_t> nodes = opened.nodes.value();
  const std::optional<uint64_t> columns = opened.columns.value();
  if (opened.hints.raw_type.empty() || !nodes.has_value() || !columns.has_value()) {
    QUARRY_TRY(const std::string prefix, ReadPrefix(path, 8));
    return MakeStatus(
        Code::kInvalidArgument,
        "{}: has no .npy header (it looks like {}); if these are plain rows, as a memory map has them, "
        "state --nodes, --dim and --dtype",
        path, DescribePrefix(prefix));
  }
  QUARRY_TRY(const NpyType type, RawRowType(opened.hints.raw_type));
  return OpenRawArray(path, type, {*nodes, *columns}, "--nodes, --dim and --dtype");
}

// Where features have no header, IGB's labels have none either; they are float32 whatever the features are.
Result<NpyArray> OpenLabelFile(const Opened& opened, const std::string& path) {
  QUARRY_TRY(const bool headerless, LacksHeader(opened, path));
  const std::optional<uint64_t> nodes = opened.nodes.value();
  if (!headerless || opened.hints.raw_type.empty() || !nodes.has_value())
    return OpenArrayFile(opened.parts, path);
  return OpenRawArray(path, {'f', 4, "float32"}, {*nodes}, "--nodes");
}

Result<std::unique_ptr<RowReader>> OpenRows(Opened& opened) {
  const SourceParts& parts = opened.parts;
  const bool stated = !opened.hints.features.empty();
  const std::string path = stated ? opened.hints.features : parts.features;
  if (path.empty()) return std::unique_ptr<RowReader>();
  if (!stated && parts.features_are_csr_files) {
    CsrArrays csr;
    QUARRY_TRY(csr.indptr, OpenNpy(path + "_indptr.npy"));
    QUARRY_TRY(csr.indices, OpenNpy(path + "_indices.npy"));
    QUARRY_TRY(csr.data, OpenNpy(path + "_data.npy"));
    return OpenCsrRows(opened, csr, path + "_indptr.npy", std::nullopt);
  }
  if (IsArrayArchive(path)) return OpenArchiveRows(opened, path, stated || !SharedWithEdges(parts, path));
  if (!IsArrayFile(parts, path)) return OpenTextRows(path, opened.nodes.value().value_or(0));
  QUARRY_TRY(NpyArray rows, OpenRowFile(opened, path));
  const bool has_times =
      opened.times.value().has_value() || !parts.place_features.empty() || !parts.time_features.empty();
  if (has_times && rows.dims() == 3 && rows.extent(0) > 0) {  // [times, places, columns]
    QUARRY_RETURN_IF_ERROR(opened.times.Add(rows.extent(0), path, "times in its shape"));
    rows.header.shape = {rows.extent(0) * rows.extent(1), rows.extent(2)};
  }
  if (const std::string scales = ScalesBeside(path); !scales.empty()) {
    QUARRY_TRY(const NpyArray values, OpenNpy(scales));
    return MakeScaledRowReader(rows, values);
  }
  return MakeRowReader(rows, opened.hints.u2_is_bfloat16);
}

// What a model may learn to give of nodes, beside their labels. Nothing where an archive that was not named for it has none.
Result<std::unique_ptr<RowReader>> OpenTargetRows(Opened& opened) {
  const bool stated = !opened.hints.targets.empty();
  const std::string& path = stated ? opened.hints.targets : opened.parts.targets;
  if (path.empty()) return std::unique_ptr<RowReader>();
  if (IsArrayArchive(path)) {
    QUARRY_TRY(const ArrayArchive archive, OpenArrayArchive(path));
    const std::string key = archive.FirstOf({"targets"});
    if (key.empty() && !stated) return std::unique_ptr<RowReader>();
    QUARRY_TRY(const NpyArray rows, archive.Open("targets"));
    return MakeTargetReader(rows);
  }
  if (!IsArrayFile(opened.parts, path)) return OpenTextRows(path, opened.nodes.value().value_or(0));
  QUARRY_TRY(const NpyArray rows, OpenArrayFile(opened.parts, path));
  return MakeTargetReader(rows);
}

// What places have at all times, or times at all places.
Result<std::unique_ptr<RowReader>> OpenColumns(const Opened& opened, const std::string& path, uint64_t rows,
                                               std::string_view what) {
  if (path.empty()) return std::unique_ptr<RowReader>();
  if (opened.dataset.times == 1) {
    return MakeStatus(Code::kInvalidArgument, "{}: columns of {} are of a graph at several times, and {}",
                      path, what,
                      opened.times.value().has_value()
                          ? "this one has one: make them columns of its features"
                          : "nothing says how many there are: state them with --times, or as num_times in "
                            "metadata.yaml");
  }
  if (opened.dataset.features == nullptr) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}: columns of {} are joined to the features, and there are none", path, what);
  }
  QUARRY_TRY(const NpyArray array, OpenArrayFile(opened.parts, path));
  QUARRY_TRY(auto reader, MakeRowReader(array, opened.hints.u2_is_bfloat16));
  if (reader->row_count() == rows) return reader;
  return MakeStatus(Code::kInvalidArgument, "{}: {} rows, but there are {} {}", path, reader->row_count(),
                    rows, what);
}

Status OpenTimes(Opened& opened) {
  const SourceParts& parts = opened.parts;
  const uint64_t times = opened.times.value().value_or(1), nodes = opened.nodes.value().value_or(0);
  if (times == 0 || nodes % times != 0) {
    return MakeStatus(Code::kInvalidArgument, "{} nodes are no whole number of places at each of {} times",
                      nodes, times);
  }
  if (times > 1 && nodes == 0) {
    return MakeStatus(Code::kInvalidArgument,
                      "a graph at {} times has nodes for each: state with --nodes how many in all", times);
  }
  opened.dataset.times = times;
  QUARRY_TRY(opened.dataset.place_features,
             OpenColumns(opened, parts.place_features, nodes / times, "places"));
  QUARRY_TRY(opened.dataset.time_features, OpenColumns(opened, parts.time_features, times, "times"));
  return Status::Ok();
}

// `keys`: where an archive has them.
Result<std::unique_ptr<IntReader>> OpenInts(Opened& opened, const std::string& hint, const std::string& found,
                                            IntRole role, const std::vector<std::string>& keys) {
  const std::string path = hint.empty() ? found : hint;
  if (path.empty()) return std::unique_ptr<IntReader>();
  const bool archived = IsArrayArchive(path);
  if (!archived && !IsArrayFile(opened.parts, path)) return OpenTextInts(path, role);
  NpyArray values;
  if (archived) {
    QUARRY_TRY(const ArrayArchive archive, OpenArrayArchive(path));
    const std::string key = archive.FirstOf(keys);
    if (key.empty() && hint.empty() && SharedWithEdges(opened.parts, path))
      return std::unique_ptr<IntReader>();
    QUARRY_TRY(values, archive.Open(key.empty() ? keys[0] : key));
  } else {
    QUARRY_TRY(values,
               role == IntRole::kLabel ? OpenLabelFile(opened, path) : OpenArrayFile(opened.parts, path));
  }
  const std::optional<uint64_t> nodes = opened.nodes.value();
  if (role == IntRole::kId && values.header.type.kind == 'b' && nodes.has_value() &&
      values.header.items != *nodes) {
    return MakeStatus(Code::kInvalidArgument, "{}: a mask of {} items for {} nodes", values.name,
                      values.header.items, *nodes);
  }
  return MakeIntReader(values, role);
}

Status OpenAllEdges(Opened& opened) {
  auto edges = opened.parts.edges;
  if (!opened.hints.edges.empty()) edges.assign(1, {"", opened.hints.edges});
  uint64_t counted = 0;
  bool all_counted = true;
  for (const auto& [name, path] : edges) {
    QUARRY_TRY(auto reader, OpenEdges(opened, path));
    all_counted = all_counted && reader->count().has_value();
    counted += reader->count().value_or(0);
    opened.dataset.edges.push_back({.name = name, .path = path, .reader = std::move(reader)});
  }
  const std::optional<uint64_t> stated = opened.parts.metadata.num_edges;
  if (stated.has_value() && all_counted && *stated != counted && opened.hints.edges.empty()) {
    return MakeStatus(Code::kInvalidArgument, "{}: {} edges, but metadata.yaml says num_edges {}",
                      edges[0].second, counted, *stated);
  }
  return Status::Ok();
}

Status OpenProperties(Opened& opened) {
  const SourceParts& parts = opened.parts;
  const SourceHints& hints = opened.hints;
  Dataset& dataset = opened.dataset;
  AgreedCount& nodes = opened.nodes;
  QUARRY_TRY(dataset.features, OpenRows(opened));
  if (dataset.features != nullptr) {
    const std::string& path = hints.features.empty() ? parts.features : hints.features;
    QUARRY_RETURN_IF_ERROR(nodes.Add(dataset.features->row_count(), path, "rows"));
    QUARRY_RETURN_IF_ERROR(opened.columns.Add(dataset.features->dim(), path, "columns"));
  }
  QUARRY_TRY(dataset.targets, OpenTargetRows(opened));
  if (dataset.targets != nullptr) {
    const std::string& path = hints.targets.empty() ? parts.targets : hints.targets;
    QUARRY_RETURN_IF_ERROR(nodes.Add(dataset.targets->row_count(), path, "rows"));
  }
  QUARRY_TRY(dataset.labels, OpenInts(opened, hints.labels, parts.labels, IntRole::kLabel,
                                      {"labels", "y", "label", "node_label"}));
  if (dataset.labels != nullptr) {
    const std::string& path = hints.labels.empty() ? parts.labels : hints.labels;
    QUARRY_RETURN_IF_ERROR(nodes.Add(dataset.labels->count(), path, "labels"));
  }
  QUARRY_TRY(dataset.train,
             OpenInts(opened, hints.train, parts.train, IntRole::kId, {"train_idx", "train_mask", "train"}));
  QUARRY_TRY(dataset.valid, OpenInts(opened, hints.valid, parts.valid, IntRole::kId,
                                     {"valid_idx", "val_idx", "valid_mask", "val_mask", "valid"}));
  QUARRY_TRY(dataset.test, OpenInts(opened, hints.test, parts.test, IntRole::kId,
                                    {"test_idx", "test_mask", "test", "test-whole", "test-dev"}));
  return Status::Ok();
}

// The arrays of an archive that no part of a graph is looked for under.
void TellUnusedArrays(const std::string& path) {
  if (!IsArrayArchive(path)) return;
  const Result<ArrayArchive> archive = OpenArrayArchive(path);
  if (!archive.ok()) return;
  constexpr std::string_view kUsed[] = {
      "edges",     "edge_index",     "edge_weights",  "edge_weight", "features", "x",
      "node_feat", "targets",        "labels",        "y",           "label",    "node_label",
      "train_idx", "train_mask",     "train",         "valid_idx",   "val_idx",  "valid_mask",
      "val_mask",  "valid",          "test_idx",      "test_mask",   "test",     "test-whole",
      "test-dev",  "indptr",         "indices",       "data",        "shape",    "format",
      "num_nodes", "num_nodes_list", "num_edges_list"};
  constexpr std::string_view kPrefixes[] = {"adj_", "features_", "attr_"};
  std::string unused;
  for (const ArrayArchive::Member& member : archive->members) {
    const bool used =
        std::ranges::find(kUsed, member.key) != std::end(kUsed) ||
        std::ranges::any_of(kPrefixes, [&](auto prefix) { return member.key.starts_with(prefix); });
    if (!used) unused += (unused.empty() ? "" : ", ") + Excerpt(member.key);
  }
  if (!unused.empty()) LogWarn("{}: not imported: {}", path, unused);
}

}  // namespace

std::string ScalesBeside(const std::string& path) {
  constexpr std::string_view kSuffix = ".npy";
  if (!path.ends_with(kSuffix)) return "";
  return FirstFile(path.substr(0, path.size() - kSuffix.size()) + "_scale", {".npy"});
}

bool IsArrayFile(const SourceParts& parts, const std::string& path) {
  return path.ends_with(".npy") || FindRaw(parts, path) != nullptr;
}

Result<NpyArray> OpenArrayFile(const SourceParts& parts, const std::string& path) {
  const RawFile* const raw = FindRaw(parts, path);
  return raw == nullptr ? OpenNpy(path) : OpenRawArray(path, raw->type, raw->shape, raw->stated_by);
}

Result<Dataset> OpenParts(const SourceParts& parts, const SourceHints& hints) {
  Opened opened{.parts = parts, .hints = hints};
  const auto hint_of = [](uint64_t value) { return value == 0 ? std::nullopt : std::optional(value); };
  QUARRY_RETURN_IF_ERROR(opened.nodes.Add(hint_of(hints.node_count), "--nodes", "nodes"));
  QUARRY_RETURN_IF_ERROR(opened.nodes.Add(parts.node_count, parts.node_count_from, "nodes"));
  QUARRY_RETURN_IF_ERROR(opened.columns.Add(hint_of(hints.feature_dim), "--dim", "columns"));
  if (hints.features.empty()) {  // metadata.yaml describes the folder's own features
    QUARRY_RETURN_IF_ERROR(opened.columns.Add(parts.metadata.feature_dim, parts.node_count_from, "columns"));
  }
  QUARRY_RETURN_IF_ERROR(opened.times.Add(hint_of(hints.times), "--times", "times"));
  QUARRY_RETURN_IF_ERROR(opened.times.Add(parts.metadata.num_times, parts.node_count_from, "times"));
  if (!parts.links.has_value()) QUARRY_RETURN_IF_ERROR(OpenAllEdges(opened));
  QUARRY_RETURN_IF_ERROR(OpenProperties(opened));
  QUARRY_RETURN_IF_ERROR(OpenTimes(opened));
  if (hints.edges.empty() && parts.edges.size() == 1) TellUnusedArrays(parts.edges[0].second);
  if (parts.links.has_value())
    QUARRY_RETURN_IF_ERROR(OpenLinks(parts, hints, opened.nodes.value(), opened.dataset));
  opened.dataset.node_count = opened.nodes.value();
  opened.dataset.class_count = parts.metadata.num_classes;
  if (opened.dataset.node_count == std::optional<uint64_t>(0) && !opened.dataset.edges.empty()) {
    return MakeStatus(Code::kInvalidArgument, "{}: the source holds no nodes", opened.dataset.edges[0].path);
  }
  return std::move(opened.dataset);
}

Result<Dataset> OpenArrays(const SourceHints& hints) { return OpenParts(SourceParts(), hints); }

}  // namespace quarry
