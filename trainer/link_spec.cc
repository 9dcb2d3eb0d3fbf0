#include <cmath>

#include "quarry/trainer/link.h"

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

}  // namespace quarry
