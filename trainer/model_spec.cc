#include "quarry/trainer/model_spec.h"

#include <fmt/format.h>

#include <charconv>

namespace quarry {
namespace {

template <NamedEnum Enum>
bool TakeName(std::string_view text, Enum& value) {
  const Result<Enum> parsed = ParseName<Enum>(text);
  if (parsed.ok()) value = *parsed;
  return parsed.ok();
}

template <typename Number, typename Fits>
bool TakeNumber(std::string_view text, Number& value, const Fits& fits) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !fits(number)) return false;
  value = number;
  return true;
}

constexpr GnnKind kOfSage[] = {GnnKind::kSage}, kOfGcn[] = {GnnKind::kGcn}, kOfGat[] = {GnnKind::kGat},
                  kWithHeads[] = {GnnKind::kGat, GnnKind::kRgat},
                  kWithRelations[] = {GnnKind::kRgcn, GnnKind::kRgat};

constexpr ModelField kFields[] = {
    {.name = "model",
     .help =
         "the graph neural network: GraphSAGE, GCN, GAT or GIN; R-GCN or R-GAT, of graphs with relations or "
         "types",
     .values = "sage, gcn, gat, gin, rgcn or rgat",
     .names = EnumNames<GnnKind>::kNames,
     .type = "NAME",
     .text = [](const ModelSpec& spec) { return std::string(NameOf(spec.model)); },
     .take = [](std::string_view text, ModelSpec& spec) { return TakeName(text, spec.model); }},
    {.name = "aggregator",
     .help = "sage: what becomes of the rows of a node's neighbors",
     .only_of = kOfSage,
     .values = "mean, max or sum",
     .names = EnumNames<Aggregator>::kNames,
     .type = "NAME",
     .text = [](const ModelSpec& spec) { return std::string(NameOf(spec.aggregator)); },
     .take = [](std::string_view text, ModelSpec& spec) { return TakeName(text, spec.aggregator); }},
    {.name = "gcn-norm",
     .help = "gcn: what neighbors' rows are divided by, the sampled number of rows, or the square root of "
             "both nodes' "
             "degrees in the whole graph",
     .only_of = kOfGcn,
     .values = "right or both",
     .names = EnumNames<GcnNorm>::kNames,
     .type = "NAME",
     .text = [](const ModelSpec& spec) { return std::string(NameOf(spec.gcn_norm)); },
     .take = [](std::string_view text, ModelSpec& spec) { return TakeName(text, spec.gcn_norm); }},
    {.name = "heads",
     .help = "gat, rgat: heads of attention, which share the hidden width; the last layer's are averaged",
     .only_of = kWithHeads,
     .values = "a number of heads from 1 to 64",
     .type = "UINT",
     .text = [](const ModelSpec& spec) { return fmt::format("{}", spec.heads); },
     .take =
         [](std::string_view text, ModelSpec& spec) {
           return TakeNumber(text, spec.heads,
                             [](uint32_t heads) { return heads >= 1 && heads <= ModelSpec::kHeadsMax; });
         }},
    {.name = "attention-dropout",
     .help = "gat: of the coefficients of attention",
     .only_of = kOfGat,
     .values = "a share from 0 to below 1",
     .type = "FLOAT",
     .text = [](const ModelSpec& spec) { return fmt::format("{}", spec.attention_dropout); },
     .take =
         [](std::string_view text, ModelSpec& spec) {
           return TakeNumber(text, spec.attention_dropout,
                             [](double share) { return share >= 0 && share < 1; });
         }},
    {.name = "bases",
     .help = "rgcn, rgat: matrices that are added up to each relation's",
     .only_of = kWithRelations,
     .values = "a number of bases from 1 to 64",
     .type = "UINT",
     .text = [](const ModelSpec& spec) { return fmt::format("{}", spec.bases); },
     .take =
         [](std::string_view text, ModelSpec& spec) {
           return TakeNumber(text, spec.bases,
                             [](uint32_t bases) { return bases >= 1 && bases <= ModelSpec::kBasesMax; });
         }},
    {.name = "edge-weights",
     .help = "sage (mean, sum) and gcn (norm right): a neighbor's row counts as much as its edge weighs",
     .values = "off or on",
     .names = EnumNames<EdgeWeights>::kNames,
     .type = "NAME",
     .text = [](const ModelSpec& spec) { return std::string(NameOf(spec.edge_weights)); },
     .take = [](std::string_view text, ModelSpec& spec) { return TakeName(text, spec.edge_weights); }},
};

}  // namespace

std::string ModelField::Owners() const {
  std::string owners;
  for (const GnnKind kind : only_of)
    owners += fmt::format("{}{}", owners.empty() ? "" : " and ", NameOf(kind));
  return owners;
}

std::span<const ModelField> ModelFields() { return kFields; }

std::string ToSettings(const ModelSpec& spec) {
  const ModelSpec by_default;
  std::string settings;
  for (const ModelField& field : kFields) {
    if (!field.IsOf(spec.model)) continue;
    const bool came_later = field.name == std::string_view("aggregator") ||
                            field.name == std::string_view("gcn-norm") ||
                            field.name == std::string_view("edge-weights");
    if (came_later && field.text(spec) == field.text(by_default)) continue;
    settings += fmt::format("{}--{} {}", settings.empty() ? "" : " ", field.name, field.text(spec));
  }
  return settings;
}

Status CheckModel(const ModelSpec& spec, uint32_t layers, uint32_t hidden) {
  for (const ModelField& field : kFields) {
    ModelSpec taken = spec;
    if (field.take(field.text(spec), taken)) continue;
    return MakeStatus(Code::kUsage, "{} is {}, but must be {}", field.name, field.text(spec), field.values);
  }
  const bool sums = (spec.model == GnnKind::kSage && spec.aggregator != Aggregator::kMax) ||
                    (spec.model == GnnKind::kGcn && spec.gcn_norm == GcnNorm::kRight);
  if (spec.needs_weights() && !sums) {
    return MakeStatus(Code::kUsage,
                      "edge-weights on is of sage's mean and sum, and of gcn's norm right, and this is {}",
                      ToSettings(spec));
  }
  if (spec.has_heads() && layers > 1 && hidden % spec.heads != 0) {
    return MakeStatus(Code::kUsage,
                      "{} heads cannot share a hidden width of {} evenly: take a multiple of {}, such as {}",
                      spec.heads, hidden, spec.heads, (hidden / spec.heads + 1) * spec.heads);
  }
  return Status::Ok();
}

}  // namespace quarry
