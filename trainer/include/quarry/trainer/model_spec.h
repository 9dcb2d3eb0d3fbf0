// ModelSpec: which graph neural network is trained, and its own settings: those that make it what it is, as
// --model and the options beside it say.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "quarry/base/status.h"
#include "quarry/format/road_spec.h"

namespace quarry {

enum class GnnKind : uint8_t {
  kSage,  // Hamilton, Ying, Leskovec 2017
  kGcn,   // Kipf, Welling 2017
  kGat,   // Velickovic et al. 2018
  kGin,   // Xu, Hu, Leskovec, Jegelka 2019
  // Over edges with relations:
  kRgcn,  // Schlichtkrull et al. 2018
  kRgat,  // Busbridge et al. 2019
};
// What becomes of the rows of a node's neighbors.
enum class Aggregator : uint8_t { kMean, kMax, kSum };

// Whether a neighbor's row counts as much as its edge weighs.
enum class EdgeWeights : uint8_t { kOff, kOn };

// What GCN divides a neighbor's row by.
enum class GcnNorm : uint8_t {
  kRight,  // the number of rows that a node is given: 1 + its sampled neighbors
  kBoth,   // sqrt of (1 + the node's degree) (1 + the neighbor's), in the whole graph
};

template <>
struct EnumNames<GnnKind> {
  static constexpr std::string_view kWhat = "model";
  static constexpr std::string_view kNames[] = {"sage", "gcn", "gat", "gin", "rgcn", "rgat"};
};
template <>
struct EnumNames<Aggregator> {
  static constexpr std::string_view kWhat = "aggregator";
  static constexpr std::string_view kNames[] = {"mean", "max", "sum"};
};
template <>
struct EnumNames<GcnNorm> {
  static constexpr std::string_view kWhat = "norm";
  static constexpr std::string_view kNames[] = {"right", "both"};
};

template <>
struct EnumNames<EdgeWeights> {
  static constexpr std::string_view kWhat = "edge weights";
  static constexpr std::string_view kNames[] = {"off", "on"};
};

struct ModelSpec {
  static constexpr uint32_t kHeadsMax = 64, kBasesMax = 64;

  GnnKind model = GnnKind::kSage;
  Aggregator aggregator = Aggregator::kMean;     // SAGE's
  GcnNorm gcn_norm = GcnNorm::kRight;            // GCN's
  uint32_t heads = 4;                            // GAT's and R-GAT's: they share the hidden width
  double attention_dropout = 0;                  // GAT's: rate for its coefficients
  EdgeWeights edge_weights = EdgeWeights::kOff;  // of SAGE's mean and sum, and of GCN with the norm right
  uint32_t bases = 8;                            // R-GCN's and R-GAT's: matrices that relations share

  // Whether a model must know how many neighbors every node of the graph has (TrainOptions::degrees).
  bool needs_degrees() const { return model == GnnKind::kGcn && gcn_norm == GcnNorm::kBoth; }
  // Whether it must know what every edge of a block weighs (TrainOptions::weights).
  bool needs_weights() const { return edge_weights == EdgeWeights::kOn; }
  // Whether rows are summed by weights of the block's messages (message_weights.h).
  bool weighs_messages() const { return needs_degrees() || needs_weights(); }
  // Whether it must know the relation of every edge (TrainOptions::inputs).
  bool needs_relations() const { return model == GnnKind::kRgcn || model == GnnKind::kRgat; }
  // Whether batches must say which edges they have.
  bool looks_at_edges() const { return needs_weights() || needs_relations(); }
  // Whether attention has heads.
  bool has_heads() const { return model == GnnKind::kGat || model == GnnKind::kRgat; }
  bool operator==(const ModelSpec&) const = default;
};

// A field of ModelSpec, as options, settings of runs and JSON have it: this is their one list.
struct ModelField {
  std::string_view name;  // "attention-dropout": the option is --name
  std::string_view help;
  std::span<const GnnKind> only_of = {};         // empty: every model has it
  std::string_view values;                       // what may stand there, in words
  std::span<const std::string_view> names = {};  // one of which stands there; empty: a number
  std::string_view type;                         // what the help calls it: NAME, UINT or FLOAT
  std::string (*text)(const ModelSpec&);
  bool (*take)(std::string_view text, ModelSpec&);  // false: not one of the values; the spec is as before

  bool IsOf(GnnKind model) const { return only_of.empty() || std::ranges::count(only_of, model) > 0; }
  std::string Owners() const;  // "gat and rgat"
};
std::span<const ModelField> ModelFields();

// "--model gat --heads 4 --attention-dropout 0": the model and all of its fields. SAGE's aggregator,
// GCN's norm and weights of edges are left out where they are the first, so that runs that were trained before there was another have the
// same settings now.
std::string ToSettings(const ModelSpec& spec);

// kUsage names what does not fit: heads that do not share the hidden width evenly, a value out of range, weights of edges of
// a model that does not sum rows.
Status CheckModel(const ModelSpec& spec, uint32_t layers, uint32_t hidden);

}  // namespace quarry
