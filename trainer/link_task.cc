#include "link_task.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "quarry/base/radix_sort.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/sampling/negative_sampler.h"

namespace quarry {
namespace {

constexpr uint64_t kOrderStream = 3;  // apart from other streams of the seed

}  // namespace

// A batch's edges and negatives, and what preparing it sorts.
struct LinkItem final : EmbeddingItemData {
  // sources | destinations | source negatives | destination negatives: ids first, then places among the
  // unique ones, which are the rows that the decoder scores.
  std::vector<uint32_t> nodes;
  std::vector<uint32_t> relations;
  size_t edge_count = 0;
  std::vector<uint64_t> pairs, sorted;
  // With an encoder.
  std::vector<NodeId> seeds;
  LinkNeighborhood neighborhood;
};

namespace {

// Replaces ids by their places among the unique ones, which go to `unique`, ascending.
void Localize(uint64_t id_count, std::vector<uint32_t>& ids, LinkItem& item, std::vector<RowId>& unique) {
  item.pairs.resize(ids.size());
  for (size_t i = 0; i < ids.size(); i++) item.pairs[i] = uint64_t{ids[i]} << 32 | i;
  RadixSortByKey(item.pairs, id_count - 1, item.sorted);
  unique.clear();
  for (const uint64_t pair : item.pairs) {
    const RowId id = pair >> 32;
    if (unique.empty() || unique.back() != id) unique.push_back(id);
    ids[static_cast<uint32_t>(pair)] = static_cast<uint32_t>(unique.size() - 1);
  }
}

}  // namespace

LinkTask::LinkTask(const LinkData& data, const LinkTrainOptions& options, PartitionedRoad* road)
    : data_(data),
      options_(options),
      road_(road),
      has_relations_(options.spec.relation_dim() > 0),
      order_(road == nullptr ? data.train.size() : 0),
      decoder_(options.spec, options.compute_threads),
      optimizer_(options.optimizer_options),
      pool_(options.compute_threads) {
  if (road == nullptr) TakeEnds(data.train);
}

void LinkTask::TakeEnds(std::span<const Triple> edges) {
  if (options_.degree_share == 0) return;
  for (std::vector<NodeId>& ends : ends_) {
    ends.clear();
    ends.reserve(edges.size());
  }
  for (const Triple& edge : edges) {
    ends_[0].push_back(edge.head);
    ends_[1].push_back(edge.tail);
  }
}

uint64_t LinkTask::batch_count() const {
  return road_ != nullptr ? road_->batch_count() : CeilDiv(data_.train.size(), options_.batch_edges);
}

uint64_t LinkTask::EdgesBefore(uint64_t batch) const {
  if (road_ != nullptr) return road_->EdgesBefore(batch);
  return std::min<uint64_t>(batch * options_.batch_edges, data_.train.size());
}

Status LinkTask::StartEpoch(uint32_t epoch, Progress progress, double loss,
                            std::optional<uint64_t> batches_before) {
  epoch_ = epoch;
  const auto rate = [&](float first) {
    return ScheduledRate(first, options_.schedule, options_.schedule_epochs, epoch);
  };
  optimizer_.learning_rate = static_cast<float>(rate(options_.optimizer_options.learning_rate));
  if (encoder_) encoder_->SetLearningRate(rate(options_.encoder_learning_rate));
  progress_ = std::move(progress);
  loss_ = loss;
  edges_done_ = 0;
  if (road_ != nullptr) {
    QUARRY_TRY(first_batch_, road_->BatchesBefore(epoch));
    return road_->StartEpoch(epoch);
  }
  first_batch_ = batches_before.value_or((epoch - 1) * batch_count());
  std::iota(order_.begin(), order_.end(), 0U);
  Rng rng(MixSeed(options_.seed, kOrderStream, epoch));
  for (size_t i = order_.size(); i > 1; i--) std::swap(order_[i - 1], order_[rng.Below(i)]);
  return Status::Ok();
}

Result<uint64_t> LinkTask::Enter(uint64_t batch) {
  if (road_ == nullptr) return batch_count() - batch;
  QUARRY_TRY(const bool entered, road_->Enter(batch));
  const EdgeStep& step = road_->step();
  if (entered) {
    TakeEnds(step.edges());
    if (encoder_) encoder_->TakeStep(*road_);
  }
  return step.first_batch() + step.batch_count() - batch;
}

Status LinkTask::MakeEncoder() {
  if (options_.encoder_fanouts.empty()) return Status::Ok();
  QUARRY_TRY(encoder_, LinkEncoder::Make(data_, options_, road_ != nullptr));
  return Status::Ok();
}

std::vector<std::byte> LinkTask::State() const {
  return encoder_ ? encoder_->State() : std::vector<std::byte>();
}

Status LinkTask::TakeState(std::span<const std::byte> state) {
  if (state.empty()) return Status::Ok();
  if (encoder_) return encoder_->TakeState(state);
  return MakeStatus(Code::kCorruption, "{} bytes of an encoder's state, and there is no encoder",
                    state.size());
}

Status LinkTask::Prepare(EmbeddingItem& item) {
  if (item.data == nullptr) item.data = std::make_unique<LinkItem>();
  auto& link = static_cast<LinkItem&>(*item.data);
  const uint64_t batch = item.batch - first_batch();
  const EdgeStep* const step = road_ == nullptr ? nullptr : &road_->step();
  const uint64_t first = (step == nullptr ? batch : batch - step->first_batch()) * options_.batch_edges;
  const uint64_t edges = step == nullptr ? order_.size() : step->edges().size();
  const size_t count = std::min<uint64_t>(options_.batch_edges, edges - first);
  const auto chunks = static_cast<uint32_t>(CeilDiv(count, options_.chunk_edges));
  const size_t negatives = size_t{chunks} * options_.negatives;
  link.edge_count = count;
  link.nodes.resize(2 * (count + negatives));
  link.relations.resize(has_relations_ ? count : 0);
  for (size_t i = 0; i < count; i++) {
    const Triple& edge = step == nullptr ? data_.train[order_[first + i]] : step->edges()[first + i];
    link.nodes[i] = edge.head;
    link.nodes[count + i] = edge.tail;
    if (has_relations_) link.relations[i] = edge.relation;
  }
  const std::span<NodeId> drawn = std::span(link.nodes).subspan(2 * count);
  DrawNegatives(batch, chunks, drawn.first(negatives), drawn.last(negatives));
  if (step != nullptr && !encoder_) {
    for (uint32_t& node : link.nodes) node = step->NodeAt(node);
  }
  Localize(data_.node_count, link.nodes, link, item.blocks[0].ids);
  if (has_relations_) Localize(data_.relation_count, link.relations, link, item.blocks[1].ids);
  return encoder_ ? SampleNeighbors(item.batch, link, item.blocks[0].ids) : Status::Ok();
}

// `ids` are those of the scored nodes; they become those of the encoder's input nodes.
Status LinkTask::SampleNeighbors(uint64_t batch, LinkItem& link, std::vector<RowId>& ids) const {
  link.seeds.assign(ids.begin(), ids.end());
  QUARRY_RETURN_IF_ERROR(encoder_->Sample(batch, link.seeds, link.neighborhood));
  if (road_ != nullptr) {
    for (uint32_t& node : link.neighborhood.rows) node = road_->step().NodeAt(node);
  }
  Localize(data_.node_count, link.neighborhood.rows, link, ids);
  return Status::Ok();
}

void LinkTask::DrawNegatives(uint64_t batch, uint32_t chunks, std::span<NodeId> source_negatives,
                             std::span<NodeId> destination_negatives) const {
  const NegativeOptions options{.degree_share = options_.degree_share, .seed = options_.seed};
  for (uint32_t side = 0; side < 2; side++) {
    const NegativePool pool{.node_count = road_ == nullptr ? data_.node_count : road_->step().node_count(),
                            .edge_ends = ends_[side]};
    const std::span<NodeId> negatives = side == 0 ? source_negatives : destination_negatives;
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
      SampleNegatives(options, pool, {.epoch = epoch_, .batch = batch, .chunk = chunk, .side = side},
                      negatives.subspan(size_t{chunk} * options_.negatives, options_.negatives));
    }
  }
}

Status LinkTask::Compute(EmbeddingItem& item) {
  const auto& link = static_cast<const LinkItem&>(*item.data);
  RowBlock no_relations;
  RowBlock& node_rows = item.blocks[0];
  RowBlock& relation_rows = has_relations_ ? item.blocks[1] : no_relations;
  QUARRY_RETURN_IF_ERROR(ComputeGradients(link, node_rows, relation_rows));
  pool_.Run(options_.compute_threads, [&](uint32_t part, unsigned) {
    if (options_.feature_dim == 0) Step(node_rows, node_gradients_, part);
    Step(relation_rows, relation_gradients_, part);
  });
  edges_done_ += link.edge_count;
  return progress_ ? progress_(edges_done_) : Status::Ok();
}

Status LinkTask::ComputeGradients(const LinkItem& link, const RowBlock& node_rows,
                                  const RowBlock& relation_rows) {
  const std::span<const uint32_t> nodes = link.nodes;
  const size_t negatives = nodes.size() / 2 - link.edge_count;
  const LinkBatch batch{.sources = nodes.first(link.edge_count),
                        .relations = link.relations,
                        .destinations = nodes.subspan(link.edge_count, link.edge_count),
                        .chunk_edges = options_.chunk_edges,
                        .negative_count = options_.negatives,
                        .source_negatives = nodes.subspan(2 * link.edge_count, negatives),
                        .destination_negatives = nodes.last(negatives)};
  node_gradients_.assign(options_.feature_dim > 0 ? 0 : node_rows.values.size(), 0.0F);
  relation_gradients_.assign(relation_rows.values.size(), 0.0F);
  if (encoder_) return ComputeEncoded(link, batch, node_rows, relation_rows);
  loss_ +=
      decoder_.Compute(batch, node_rows.values, relation_rows.values, node_gradients_, relation_gradients_);
  return Status::Ok();
}

Status LinkTask::ComputeEncoded(const LinkItem& link, const LinkBatch& batch, const RowBlock& node_rows,
                                const RowBlock& relation_rows) {
  QUARRY_TRY(const std::span<const float> outputs, encoder_->Forward(link.neighborhood, node_rows.values));
  output_gradients_.assign(outputs.size(), 0.0F);
  loss_ += decoder_.Compute(batch, outputs, relation_rows.values, output_gradients_, relation_gradients_);
  return encoder_->Backward(link.neighborhood, node_rows.values, output_gradients_, node_gradients_);
}

// One of compute_threads parts of the rows.
void LinkTask::Step(RowBlock& block, std::span<const float> gradients, uint32_t part) {
  const size_t rows = block.ids.size();
  if (rows == 0) return;
  const size_t dim = block.values.size() / rows, state_dim = block.state.size() / rows;
  const size_t parts = options_.compute_threads;
  for (size_t row = rows * part / parts; row < rows * (part + 1) / parts; row++) {
    OptimizerStep(options_.optimizer, optimizer_, gradients.subspan(row * dim, dim),
                  std::span(block.values).subspan(row * dim, dim),
                  std::span(block.state).subspan(row * state_dim, state_dim));
  }
}

}  // namespace quarry
