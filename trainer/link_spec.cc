#include <cmath>

#include "quarry/base/units.h"
#include "quarry/format/fanouts.h"
#include "quarry/sampling/sampler.h"
#include "quarry/trainer/link.h"
#include "quarry/trainer/link_train.h"

namespace quarry {

std::string_view DecoderName(DecoderKind kind) {
  switch (kind) {
    case DecoderKind::kDot:
      return "dot";
    case DecoderKind::kDistMult:
      return "distmult";
    case DecoderKind::kComplEx:
      return "complex";
    case DecoderKind::kTransE:
      return "transe";
    case DecoderKind::kRotatE:
      return "rotate";
  }
  return "";
}

Result<DecoderKind> ParseDecoder(std::string_view name) {
  for (const DecoderKind kind : kDecoderKinds) {
    if (name == DecoderName(kind)) return kind;
  }
  return MakeStatus(Code::kUsage,
                    "there is no decoder '{}'; there are dot, distmult, complex, transe and rotate", name);
}

std::string_view LinkLossName(LinkLoss loss) { return loss == LinkLoss::kSoftmax ? "softmax" : "margin"; }

Result<LinkLoss> ParseLinkLoss(std::string_view name) {
  for (const LinkLoss loss : {LinkLoss::kSoftmax, LinkLoss::kMargin}) {
    if (name == LinkLossName(loss)) return loss;
  }
  return MakeStatus(Code::kUsage, "there is no loss '{}'; the losses are softmax and margin", name);
}

std::string_view RegularizationName(Regularization kind) {
  switch (kind) {
    case Regularization::kNone:
      return "none";
    case Regularization::kL2:
      return "l2";
    case Regularization::kN3:
      return "n3";
  }
  return "";
}

Status CheckLinkSpec(const LinkSpec& spec) {
  if (spec.dim == 0) return Status(Code::kInvalidArgument, "vectors need at least one dimension");
  if (spec.is_complex() && spec.dim % 2 != 0) {
    return MakeStatus(Code::kInvalidArgument,
                      "{} halves its vectors into real and imaginary parts, but {} dimensions are odd",
                      DecoderName(spec.decoder), spec.dim);
  }
  if (spec.loss == LinkLoss::kMargin && !(std::isfinite(spec.margin) && spec.margin > 0)) {
    return MakeStatus(Code::kInvalidArgument, "the margin is {}, but must be a positive number", spec.margin);
  }
  const float weight = spec.regularization_weight;
  if (spec.regularization == Regularization::kNone) {
    if (weight == 0) return Status::Ok();
    return MakeStatus(Code::kInvalidArgument,
                      "the regularization weight is {}, but there is no regularization", weight);
  }
  if (std::isfinite(weight) && weight > 0) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument,
                    "the regularization weight of {} is {}, but must be a positive number",
                    RegularizationName(spec.regularization), weight);
}

Status CheckLinkTrainOptions(const LinkTrainOptions& options) {
  const auto check = [](bool good, std::string_view name, double value, std::string_view range) {
    if (good) return Status::Ok();
    return MakeStatus(Code::kUsage, "{} is {}, but must be {}", name, value, range);
  };
  const auto between = [&](std::string_view name, uint32_t value, uint32_t low, uint32_t high) {
    return check(value >= low && value <= high, name, value, fmt::format("{} to {}", low, high));
  };
  if (const Status spec = CheckLinkSpec(options.spec); !spec.ok()) {
    return Status(Code::kUsage, std::string(spec.message()));
  }
  const float rate = options.optimizer_options.learning_rate;
  QUARRY_RETURN_IF_ERROR(between("dim", options.spec.dim, 1, 1 << 16));
  QUARRY_RETURN_IF_ERROR(between("batch size", options.batch_edges, 1, 1 << 24));
  QUARRY_RETURN_IF_ERROR(between("chunk", options.chunk_edges, 1, 1 << 24));
  QUARRY_RETURN_IF_ERROR(between("negatives", options.negatives, 1, 1 << 24));
  QUARRY_RETURN_IF_ERROR(check(options.degree_share >= 0 && options.degree_share <= 1, "degree share",
                               options.degree_share, "from 0 to 1"));
  QUARRY_RETURN_IF_ERROR(check(std::isfinite(rate) && rate > 0, "learning rate", rate, "above 0"));
  if (options.schedule != LearningSchedule::kConstant) {
    QUARRY_RETURN_IF_ERROR(between("schedule epochs", options.schedule_epochs, 1, UINT32_MAX));
  }
  QUARRY_RETURN_IF_ERROR(check(std::isfinite(options.init_scale) && options.init_scale >= 0, "init scale",
                               options.init_scale, "0 or more"));
  QUARRY_RETURN_IF_ERROR(between("epochs", options.epochs, 1, UINT32_MAX));
  QUARRY_RETURN_IF_ERROR(between("batches in flight", options.batches_in_flight, 1, 1024));
  QUARRY_RETURN_IF_ERROR(between("staleness", options.staleness, 1, 1024));
  QUARRY_RETURN_IF_ERROR(between("workers", options.workers, 1, 1024));
  QUARRY_RETURN_IF_ERROR(between("threads", options.compute_threads, 1, 1024));
  const std::vector<uint32_t>& fanouts = options.encoder_fanouts;
  QUARRY_RETURN_IF_ERROR(check(fanouts.size() <= NeighborSampler::kHopsMax, "number of fanouts",
                               static_cast<double>(fanouts.size()),
                               fmt::format("at most {}", NeighborSampler::kHopsMax)));
  for (const uint32_t fanout : fanouts) {
    if (fanout == kAllNeighbors) continue;
    QUARRY_RETURN_IF_ERROR(between("fanout", fanout, 1, NeighborSampler::kFanoutMax));
  }
  if (!fanouts.empty()) {
    QUARRY_RETURN_IF_ERROR(
        CheckModel(options.encoder, static_cast<uint32_t>(fanouts.size()), options.spec.dim));
    if (options.encoder.needs_degrees()) {
      return Status(Code::kUsage,
                    "an encoder knows no degrees, which gcn's norm both takes: take norm right");
    }
    if (options.encoder.needs_weights()) return Status(Code::kUsage, "an encoder knows no weights of edges");
    QUARRY_RETURN_IF_ERROR(check(options.encoder.attention_dropout == 0, "attention dropout",
                                 options.encoder.attention_dropout, "0: an encoder drops nothing"));
  }
  if (options.feature_dim > 0 && fanouts.empty()) {
    return Status(Code::kUsage, "features are given to an encoder, and there is none");
  }
  const float encoder_rate = options.encoder_learning_rate;
  QUARRY_RETURN_IF_ERROR(check(std::isfinite(encoder_rate) && encoder_rate > 0, "encoder learning rate",
                               encoder_rate, "above 0"));
  // Places in a batch are 32-bit, and so are its scores' in the decoder.
  const uint64_t chunks = CeilDiv(options.batch_edges, options.chunk_edges);
  return check(options.batch_edges + chunks * options.negatives < uint64_t{1} << 28, "batch size",
               options.batch_edges, "less for so many negatives: the two make 2^28 rows or more");
}

}  // namespace quarry
