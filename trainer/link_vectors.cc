#include "link_vectors.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "link_encoder.h"
#include "link_evaluate.h"

namespace quarry {
namespace {

// Calls work(ids, first) with the ids of all rows, one piece behind the other.
template <typename Work>
Status ForRowPieces(const EmbeddingSpec& spec, const Work& work) {
  std::vector<RowId> ids;
  for (RowId first = 0; first < spec.row_count; first += kReadRows) {
    ids.resize(std::min(kReadRows, spec.row_count - first));
    std::iota(ids.begin(), ids.end(), first);
    QUARRY_RETURN_IF_ERROR(work(std::span<const RowId>(ids), first));
  }
  return Status::Ok();
}

}  // namespace

Status ReadRows(EmbeddingTable& table, std::span<const RowId> ids, std::span<float> values) {
  const uint32_t dim = table.spec().dim;
  QUARRY_RETURN_IF_ERROR(table.Prefetch(ids));
  RowBlock block;
  for (size_t first = 0; first < ids.size(); first += kReadRows) {
    const auto piece = ids.subspan(first, std::min<size_t>(kReadRows, ids.size() - first));
    block.ids.assign(piece.begin(), piece.end());
    QUARRY_RETURN_IF_ERROR(table.Read(block));
    std::ranges::copy(block.values, values.begin() + static_cast<ptrdiff_t>(first * dim));
  }
  return Status::Ok();
}

Status CopyTable(EmbeddingTable& from, EmbeddingTable& to) {
  RowBlock block;
  return ForRowPieces(from.spec(), [&](std::span<const RowId> ids, RowId) {
    block.ids.assign(ids.begin(), ids.end());
    QUARRY_RETURN_IF_ERROR(from.Read(block));
    return to.Write(block);
  });
}

Status ReadAll(EmbeddingTable& table, std::vector<float>& values) {
  const EmbeddingSpec& spec = table.spec();
  values.resize(spec.row_count * spec.dim);
  return ForRowPieces(spec, [&](std::span<const RowId> ids, RowId first) {
    return ReadRows(table, ids, std::span(values).subspan(first * spec.dim, ids.size() * spec.dim));
  });
}

uint64_t VectorCopy::Bytes(const LinkTrainOptions& options, const LinkCounts& counts) {
  const uint32_t dim = NodeTableSpec(options, counts.nodes).dim;
  return ScratchRows::Bytes(counts.nodes, dim) + kReadRows * dim * sizeof(float) +
         counts.relations * options.spec.relation_dim() * sizeof(float) +
         2 * LinkEncoderStateBytes(options, counts);
}

Status VectorCopy::Take(EmbeddingTable& nodes, EmbeddingTable* relations, std::vector<std::byte> task_state) {
  empty_ = true;
  node_floats_ = nodes.spec().row_count * nodes.spec().dim;
  QUARRY_RETURN_IF_ERROR(backend_ == nullptr ? ReadAll(nodes, nodes_) : TakeToFile(nodes));
  if (relations != nullptr) QUARRY_RETURN_IF_ERROR(ReadAll(*relations, relations_));
  task_state_ = std::move(task_state);
  empty_ = false;
  return Status::Ok();
}

Status VectorCopy::TakeToFile(EmbeddingTable& nodes) {
  const EmbeddingSpec& spec = nodes.spec();
  file_.reset();  // its place on the disk, before another takes as much
  QUARRY_TRY(file_, ScratchRows::Make(*backend_, folder_, spec.row_count, spec.dim));
  std::vector<float> values;
  return ForRowPieces(spec, [&](std::span<const RowId> ids, RowId) {
    values.resize(ids.size() * spec.dim);
    QUARRY_RETURN_IF_ERROR(ReadRows(nodes, ids, values));
    return file_->Append(values);
  });
}

Status VectorCopy::ReadNodes(std::span<const RowId> ids, std::span<float> values) {
  return file_ != nullptr ? file_->Read(ids, values) : CopyRows(nodes_, ids, values);
}

Status VectorCopy::ReadAllNodes(std::vector<float>& values) {
  values.resize(node_floats_);
  if (file_ != nullptr) return file_->Read(0, values);
  std::ranges::copy(nodes_, values.begin());
  return Status::Ok();
}

}  // namespace quarry
