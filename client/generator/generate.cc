#include "generator/generate.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <span>
#include <vector>

#include "generator/array_writer.h"
#include "generator/synthetic_graph.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/service/work_folder.h"

namespace quarry {
namespace {

Status CheckOptions(const GenerateOptions& o) {
  const auto wrong = [](std::string_view name, auto value, std::string_view must) {
    return MakeStatus(Code::kUsage, "{} is {}; it must be {}", name, value, must);
  };
  if (o.class_count < 2) return wrong("--classes", o.class_count, "at least 2");
  if (o.node_count < 2 * o.class_count) return wrong("--nodes", o.node_count, "at least twice --classes");
  if (o.node_count > kNodeCountMax) return wrong("--nodes", o.node_count, "at most 4294967294");
  if (!(o.degree > 0) || o.degree > 1e6) return wrong("--degree", o.degree, "above 0 and at most a million");
  if (o.dim < 1 || o.dim > 65536) return wrong("--dim", o.dim, "from 1 to 65536");
  if (o.class_count * o.dim > 1 << 28) return wrong("--classes", o.class_count, "at most 2^28 / dim");
  if (!(o.exponent >= 1.5 && o.exponent <= 10)) return wrong("--exponent", o.exponent, "from 1.5 to 10");
  if (!(o.homophily >= 0 && o.homophily <= 1)) return wrong("--homophily", o.homophily, "from 0 to 1");
  if (!(o.noise >= 0 && o.noise <= 1000)) return wrong("--noise", o.noise, "from 0 to 1000");
  if (o.element_type != ElementType::kFloat32 && o.element_type != ElementType::kFloat16) {
    return wrong("--dtype", ElementTypeName(o.element_type), "float32 or float16");
  }
  for (double share : {o.train_share, o.valid_share, o.test_share}) {
    if (!(share >= 0 && share <= 1)) return wrong("a share of nodes", share, "from 0% to 100%");
  }
  const double shares = o.train_share + o.valid_share + o.test_share;
  if (shares > 1) return wrong("the sum of the shares", shares, "at most 100%");
  return Status::Ok();
}

Status WriteEdges(ArrayWriter& writer, const SyntheticGraph& graph) {
  const ScopedSpan span("generate edges");
  const uint64_t edge_count = graph.edge_count();
  const auto value = [&](uint64_t i) {
    return i < edge_count ? graph.Source(i) : graph.Destination(i - edge_count);
  };
  return writer.Write("edges.npy", ElementType::kInt64, {2, edge_count}, FillBy<int64_t>(value));
}

Status WriteFeatures(ArrayWriter& writer, const SyntheticGraph& graph, const GenerateOptions& options) {
  const ScopedSpan span("generate features");
  const ElementType type = options.element_type;
  const uint64_t element_bytes = ElementBytes(type);
  // Chunks begin and end inside rows: those are made whole, and their part is taken.
  const auto fill = [&](uint64_t first, std::span<std::byte> out) {
    std::vector<float> row(options.dim);
    while (!out.empty()) {
      const uint64_t begin = first % options.dim;
      const uint64_t count = std::min(options.dim - begin, out.size() / element_bytes);
      const bool in_place = type == ElementType::kFloat32 && count == options.dim;
      const std::span<float> values =
          in_place ? std::span(reinterpret_cast<float*>(out.data()), options.dim) : std::span(row);
      graph.Features(first / options.dim, values);
      if (!in_place) EncodeRow(type, values.subspan(begin, count), out.first(count * element_bytes));
      first += count;
      out = out.subspan(count * element_bytes);
    }
  };
  return writer.Write("features.npy", type, {options.node_count, options.dim}, fill);
}

Status WriteSplit(ArrayWriter& writer, const SyntheticGraph& graph, uint64_t node_count, Split split,
                  const std::string& name) {
  const ScopedSpan span("generate a split", static_cast<uint64_t>(split));
  std::vector<NodeId> nodes;
  for (uint64_t node = 0; node < node_count; node++) {
    if (graph.SplitOf(node) == split) nodes.push_back(static_cast<NodeId>(node));
  }
  const auto value = [&](uint64_t i) { return nodes[i]; };
  return writer.Write(name, ElementType::kInt64, {nodes.size()}, FillBy<int64_t>(value));
}

Status WriteMetadata(IoBackend& backend, const std::string& folder, const GenerateOptions& o,
                     uint64_t edge_count) {
  const std::string text = fmt::format(
      "num_nodes: {}\nnum_edges: {}\nfeature_dim: {}\nnum_classes: {}\n"
      "generator: quarry generate\ndegree: {}\nexponent: {}\nhomophily: {}\nnoise: {}\nseed: {}\ndtype: {}\n"
      "train_share: {}\nvalid_share: {}\ntest_share: {}\n",
      o.node_count, edge_count, o.dim, o.class_count, o.degree, o.exponent, o.homophily, o.noise, o.seed,
      ElementTypeName(o.element_type), o.train_share, o.valid_share, o.test_share);
  return WriteText(backend, folder + "/metadata.yaml", text);
}

}  // namespace

Result<GenerateSummary> Generate(IoBackend& backend, const std::string& path, const GenerateOptions& options,
                                 unsigned threads, const ProgressFunction& progress) {
  assert(threads >= 1);
  QUARRY_RETURN_IF_ERROR(CheckOptions(options));
  const SyntheticGraph graph(options);
  const double shares = options.train_share + options.valid_share + options.test_share;
  const uint64_t node_bytes = sizeof(int64_t) + options.dim * ElementBytes(options.element_type);
  const uint64_t bytes_total =
      2 * sizeof(int64_t) * graph.edge_count() + options.node_count * node_bytes +
      static_cast<uint64_t>(shares * static_cast<double>(options.node_count)) * sizeof(int64_t);
  QUARRY_TRY(WorkFolder folder, WorkFolder::Make(backend, path, ".generating", "`quarry generate`"));
  QUARRY_RETURN_IF_ERROR(CheckSpace(folder.path(), bytes_total));
  ArrayWriter writer(backend, folder.path(), bytes_total, progress);
  QUARRY_RETURN_IF_ERROR(writer.AllocateBuffers(threads));
  const auto label = [&](uint64_t node) { return graph.Label(node); };
  QUARRY_RETURN_IF_ERROR(WriteEdges(writer, graph));
  QUARRY_RETURN_IF_ERROR(WriteFeatures(writer, graph, options));
  QUARRY_RETURN_IF_ERROR(
      writer.Write("labels.npy", ElementType::kInt64, {options.node_count}, FillBy<int64_t>(label)));
  for (const auto& [split, name] :
       {std::pair(Split::kTrain, "train_idx.npy"), std::pair(Split::kValid, "valid_idx.npy"),
        std::pair(Split::kTest, "test_idx.npy")}) {
    QUARRY_RETURN_IF_ERROR(WriteSplit(writer, graph, options.node_count, split, name));
  }
  QUARRY_RETURN_IF_ERROR(WriteMetadata(backend, folder.path(), options, graph.edge_count()));
  QUARRY_RETURN_IF_ERROR(folder.Publish());
  return GenerateSummary{graph.edge_count(), writer.bytes_done()};
}

}  // namespace quarry
