#include "link_encoder.h"

#include <algorithm>
#include <utility>

#include "graph_memory.h"
#include "layer_bytes.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/format/fanouts.h"
#include "quarry/io/buffer.h"
#include "quarry/sampling/all_neighbors.h"

namespace quarry {
namespace {

// Apart from other streams of the seed.
constexpr uint64_t kNeighborStream = 5;
constexpr uint64_t kWeightStream = 6;

// Each node's list: the other ends of its training edges, both ways.
// These are the training edges alone, however edges were held out, so nothing that is held out can leak. A
// batch's own edges stay in its block. With them left out the loss fell to 1.49 from 1.54 and the filtered
// MRR to .2767 from .2801 (FB15k-237, 10 epochs), and on cora (dot, 5 % and 10 % held out) the MRR from .121
// and .114 to .105 and .111: nodes of the batch are then the only ones that lack edges, which gives the
// answers away.
// `kinds`, where they are asked for: of each edge, its relation, or, taken from its head to its tail, as many as there are
// relations behind that.
Result<std::unique_ptr<Topology>> NeighborsOf(const LinkData& data, std::vector<uint32_t>* kinds) {
  std::vector<uint64_t> indptr(data.node_count + 1);
  for (const Triple& edge : data.train) {
    indptr[edge.head]++;
    indptr[edge.tail]++;
  }
  // indptr[v] is where v's list ends while it is filled from its end, and where it begins afterwards.
  for (uint64_t node = 1; node <= data.node_count; node++) indptr[node] += indptr[node - 1];
  std::vector<NodeId> neighbors(indptr.back());
  if (kinds != nullptr) kinds->resize(indptr.back());
  for (const Triple& edge : data.train) {
    const uint64_t at_head = --indptr[edge.head], at_tail = --indptr[edge.tail];
    neighbors[at_head] = edge.tail;
    neighbors[at_tail] = edge.head;
    if (kinds == nullptr) continue;
    (*kinds)[at_head] = static_cast<uint32_t>(data.relation_count) + edge.relation;
    (*kinds)[at_tail] = edge.relation;
  }
  return Topology::FromMemory(std::move(indptr), neighbors);
}

// With the most that is taken of a node in the place of "all neighbors".
std::vector<uint32_t> FanoutsOf(const LinkTrainOptions& options) {
  std::vector<uint32_t> fanouts = options.encoder_fanouts;
  std::ranges::replace(fanouts, kAllNeighbors, NeighborSampler::kDegreeMax);
  return fanouts;
}

BlockBounds BoundNeighborhood(const LinkTrainOptions& options, const LinkCounts& counts, uint64_t scored) {
  std::vector<uint32_t> fanouts = FanoutsOf(options);
  if (counts.parts != nullptr) {
    for (uint32_t& fanout : fanouts) fanout *= 2;
  }
  BlockBounds bounds = BoundBlock(scored, fanouts, counts.nodes);
  for (uint64_t& edges : bounds.hop_edges) edges = std::min(edges, 2 * counts.train_edges);
  return bounds;
}

// What a batch in flight takes: the block, whose vectors double, its nodes once more, sorted, and the seeds.
uint64_t NeighborhoodBytes(const LinkTrainOptions& options, const BlockBounds& bounds) {
  RoadSpec spec{.fanouts = FanoutsOf(options)};
  for (uint32_t& fanout : spec.fanouts)
    fanout = static_cast<uint32_t>(std::min<uint64_t>(fanout, bounds.edges()));
  const uint64_t block_bytes = (bounds.nodes + bounds.hop_nodes.back() + bounds.edges()) * sizeof(uint32_t);
  const uint64_t number_bytes = bounds.nodes * (sizeof(uint32_t) + 2 * sizeof(uint64_t));
  return 2 * block_bytes + number_bytes + bounds.hop_nodes.front() * sizeof(NodeId) +
         NeighborSampler::ScratchBytesMax({}, bounds.nodes, bounds.edges(), true, spec);
}

uint32_t KindsOf(uint64_t relations) { return static_cast<uint32_t>(2 * relations); }

// What the first layer takes of a node: its vector, or its features.
uint32_t InputDim(const LinkTrainOptions& options) {
  return options.feature_dim > 0 ? options.feature_dim : options.spec.dim;
}

// The layers give `dim` floats, and take as many from each other.
LayerBounds BoundsOf(const LinkTrainOptions& options, const LinkCounts& counts, size_t l) {
  return {.in = l == 0 ? InputDim(options) : options.spec.dim,
          .out = options.spec.dim,
          .first = l == 0 && options.encoder.needs_relations(),
          .last = l + 1 == options.encoder_fanouts.size(),
          .kinds = KindsOf(counts.relations)};
}

std::vector<uint32_t> WidthsOf(const LinkTrainOptions& options) {
  std::vector<uint32_t> widths(options.encoder_fanouts.size() + 1, options.spec.dim);
  widths.front() = InputDim(options);
  return widths;
}

// What the layers take between their passes, the first one's input whole, their outputs, and the parameters with
// gradients, moments and what a step computes of them.
uint64_t LayerBytes(const LinkTrainOptions& options, const LinkCounts& counts, const BlockBounds& bounds) {
  const size_t count = options.encoder_fanouts.size();
  uint64_t bytes = 0;
  for (size_t l = 0; l < count; l++) {
    const size_t hop = count - 1 - l;
    LayerBounds layer = BoundsOf(options, counts, l);
    layer.rows = bounds.hop_nodes[hop];
    layer.sources = l == 0 ? bounds.nodes : bounds.hop_nodes[hop + 1];
    layer.edges = bounds.hop_edges[hop];
    bytes += LayerActivationBytes(options.encoder, layer) + GrownBytes(layer.rows * layer.out) +
             6 * LayerParameters(options.encoder, layer) * sizeof(float);
  }
  return bytes;
}

}  // namespace

LinkEncoder::LinkEncoder(const LinkTrainOptions& options, std::unique_ptr<Topology> topology,
                         std::shared_ptr<const std::vector<uint32_t>> kinds,
                         std::unique_ptr<GnnLayers> layers)
    : input_dim_(InputDim(options)),
      learns_inputs_(options.feature_dim == 0),
      spec_(options.encoder),
      fanouts_(FanoutsOf(options)),
      takes_all_(TakesAll(options.encoder_fanouts)),
      sample_seed_(MixSeed(options.seed, kNeighborStream)),
      topology_(std::move(topology)),
      kinds_(std::move(kinds)),
      layers_(std::move(layers)) {}

Result<std::unique_ptr<LinkEncoder>> LinkEncoder::Make(const LinkData& data, const LinkTrainOptions& options,
                                                       bool by_parts) {
  GnnLayersOptions layers_options{.spec = options.encoder,
                                  .widths = WidthsOf(options),
                                  .learning_rate = options.encoder_learning_rate,
                                  .seed = MixSeed(options.seed, kWeightStream),
                                  .threads = options.compute_threads,
                                  .input_gradients = options.feature_dim == 0,
                                  .split_products = true};
  const bool kinded = options.encoder.needs_relations();
  if (kinded && by_parts) {
    return Status(Code::kUsage,
                  "an encoder that tells relations apart asks for the relations of edges, and lists by parts "
                  "have none");
  }
  std::unique_ptr<Topology> topology;
  if (!by_parts) {
    std::vector<uint32_t> kinds;
    QUARRY_TRY(topology, NeighborsOf(data, kinded ? &kinds : nullptr));
    if (kinded) {
      layers_options.inputs = {.kind_count = KindsOf(data.relation_count),
                               .kinds = std::make_shared<const std::vector<uint32_t>>(std::move(kinds))};
    }
    RoadSpec spec{.fanouts = options.encoder_fanouts};
    QUARRY_RETURN_IF_ERROR(CountAllNeighbors(*topology, nullptr, {}, spec));
    const NeighborSource source{.topology = topology.get(), .takes_all = TakesAll(options.encoder_fanouts)};
    QUARRY_RETURN_IF_ERROR(NeighborSampler::Make(source, spec).status());
  }
  QUARRY_TRY(std::unique_ptr<GnnLayers> layers, GnnLayers::Make(layers_options));
  return std::unique_ptr<LinkEncoder>(
      new LinkEncoder(options, std::move(topology), layers_options.inputs.kinds, std::move(layers)));
}

Status LinkEncoder::Sample(uint64_t batch, std::span<const NodeId> seeds,
                           LinkNeighborhood& neighborhood) const {
  if (neighborhood.sampler == nullptr) {
    const NeighborSource source = topology_ == nullptr
                                      ? NeighborSource{.lists = &step_lists_,
                                                       .sides_apart = true,
                                                       .takes_all = takes_all_,
                                                       .direction = Direction::kBoth}
                                      : NeighborSource{.topology = topology_.get(), .takes_all = takes_all_};
    QUARRY_TRY(neighborhood.sampler,
               NeighborSampler::Make(source, {.fanouts = fanouts_, .edge_ids = kinds_ != nullptr}));
  }
  Block& block = neighborhood.block;
  QUARRY_RETURN_IF_ERROR(neighborhood.sampler->Sample(seeds, MixSeed(sample_seed_, batch), block));
  neighborhood.rows = block.nodes;
  return Status::Ok();
}

BatchView LinkEncoder::View(const LinkNeighborhood& neighborhood, std::span<const float> values) const {
  BatchView view = neighborhood.block.view();
  view.features = {.rows = std::as_bytes(values),
                   .stride_bytes = input_dim_ * sizeof(float),
                   .element_type = ElementType::kFloat32,
                   .dim = input_dim_,
                   .slots = neighborhood.rows};
  return view;
}

Result<std::span<const float>> LinkEncoder::Forward(const LinkNeighborhood& neighborhood,
                                                    std::span<const float> values) {
  QUARRY_RETURN_IF_ERROR(layers_->Forward(View(neighborhood, values), std::nullopt));
  return std::span<const float>(layers_->output());
}

Status LinkEncoder::Backward(const LinkNeighborhood& neighborhood, std::span<const float> values,
                             std::span<float> output_gradients, std::span<float> gradients) {
  QUARRY_RETURN_IF_ERROR(layers_->Backward(View(neighborhood, values), output_gradients.data(),
                                           learns_inputs_ ? gradients.data() : nullptr));
  return layers_->Step();
}

Status LinkEncoder::EncodeAll(std::vector<float>& values) {
  return ForwardGraph(*layers_, topology_->indptr(Adjacency::kCsc), topology_->indices(Adjacency::kCsc),
                      values, kinds_ == nullptr ? std::span<const uint32_t>() : *kinds_);
}

Result<std::unique_ptr<ScratchRows>> LinkEncoder::EncodeParts(
    const PartitionedRoad& road, const std::string& scratch_folder, MemoryBudget& budget,
    const std::function<Status(std::span<const RowId>, std::span<float>)>& read_nodes,
    const std::function<Status(uint64_t done, uint64_t total)>& progress) {
  return quarry::EncodeParts({.partitioning = road.partitioning(),
                              .backend = road.backend(),
                              .scratch_folder = scratch_folder,
                              .layers = *layers_,
                              .spec = spec_,
                              .dim = input_dim_},
                             budget, read_nodes, progress);
}

uint64_t LinkInputNodes(const LinkTrainOptions& options, const LinkCounts& counts, uint64_t scored) {
  if (options.encoder_fanouts.empty()) return std::min(scored, counts.nodes);
  return BoundNeighborhood(options, counts, scored).nodes;
}

// Values and two moments of the parameters of each layer, with the number of floats before each array, behind the steps of
// Adam and a byte (docs/format.md, "Training states").
uint64_t LinkEncoderStateBytes(const LinkTrainOptions& options, const LinkCounts& counts) {
  if (options.encoder_fanouts.empty()) return 0;
  uint64_t bytes = sizeof(uint64_t) + 1;
  for (size_t l = 0; l < options.encoder_fanouts.size(); l++) {
    bytes += 3 * (LayerParameterCount(options.encoder) * sizeof(uint64_t) +
                  LayerParameters(options.encoder, BoundsOf(options, counts, l)) * sizeof(float));
  }
  return bytes;
}

uint64_t LinkEncoderBytes(const LinkTrainOptions& options, const LinkCounts& counts, uint64_t scored) {
  if (options.encoder_fanouts.empty()) return 0;
  const BlockBounds bounds = BoundNeighborhood(options, counts, scored);
  const uint64_t flights = options.mode == AsyncMode::kSync ? 1 : options.batches_in_flight;
  // Edge ids of the blocks, whose vectors double.
  const bool kinded = options.encoder.needs_relations();
  const uint64_t id_bytes = kinded ? 2 * bounds.edges() * sizeof(uint64_t) : 0;
  const uint64_t bytes = flights * (NeighborhoodBytes(options, bounds) + id_bytes) +
                         LayerBytes(options, counts, bounds) + scored * options.spec.dim * sizeof(float);
  if (counts.parts != nullptr) {
    const auto layers = static_cast<uint32_t>(options.encoder_fanouts.size());
    return bytes + EncodePartsBytes(*counts.parts, options.encoder, options.spec.dim, layers, 1);
  }
  const uint64_t neighbor_bytes = 2 * counts.train_edges * sizeof(NodeId);
  const uint64_t kind_bytes = kinded ? 2 * counts.train_edges * sizeof(uint32_t) : 0;
  // While the lists are made, they are there twice.
  return bytes + (counts.nodes + 1) * sizeof(uint64_t) + kind_bytes + neighbor_bytes +
         IoBuffer::MappedBytes(neighbor_bytes) + counts.nodes * sizeof(RowId) +
         ForwardGraphBytes(options.encoder, WidthsOf(options), counts.nodes);
}

}  // namespace quarry
