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
  }
  return "";
}

Result<DecoderKind> ParseDecoder(std::string_view name) {
  for (const DecoderKind kind :
       {DecoderKind::kDot, DecoderKind::kDistMult, DecoderKind::kComplEx, DecoderKind::kTransE}) {
    if (name == DecoderName(kind)) return kind;
  }
  return MakeStatus(Code::kUsage, "there is no decoder '{}'; there are dot, distmult, complex and transe",
                    name);
}

std::string_view LinkLossName(LinkLoss loss) { return loss == LinkLoss::kSoftmax ? "softmax" : "margin"; }

Result<LinkLoss> ParseLinkLoss(std::string_view name) {
  for (const LinkLoss loss : {LinkLoss::kSoftmax, LinkLoss::kMargin}) {
    if (name == LinkLossName(loss)) return loss;
  }
  return MakeStatus(Code::kUsage, "there is no loss '{}'; the losses are softmax and margin", name);
}

Status CheckLinkSpec(const LinkSpec& spec) {
  if (spec.dim == 0) return Status(Code::kInvalidArgument, "vectors need at least one dimension");
  if (spec.decoder == DecoderKind::kComplEx && spec.dim % 2 != 0) {
    return MakeStatus(Code::kInvalidArgument,
                      "complex halves its vectors into real and imaginary parts, but {} dimensions are odd",
                      spec.dim);
  }
  if (spec.loss == LinkLoss::kMargin && !(std::isfinite(spec.margin) && spec.margin > 0)) {
    return MakeStatus(Code::kInvalidArgument, "the margin is {}, but must be a positive number", spec.margin);
  }
  return Status::Ok();
}

}  // namespace quarry
