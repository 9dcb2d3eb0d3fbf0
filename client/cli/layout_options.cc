#include "layout_options.h"

#include <algorithm>

#include "option_values.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/format/fanouts.h"
#include "quarry/sampling/sampler.h"
#include "quarry/storage/row_sources.h"
#include "quarry/storage/times.h"

namespace quarry::cli {

CLI::Validator FanoutRange() {
  static const std::string words =
      fmt::format("a number of neighbors from 1 to {}, one for each hop", NeighborSampler::kFanoutMax);
  return WholeFrom(1, NeighborSampler::kFanoutMax, words.c_str(), "--fanout 10,15,20");
}

CLI::Validator FanoutRangeOrAll() {
  return {[](std::string& text) {
            if (text != "all") return FanoutRange()(text);
            text = std::to_string(kAllNeighbors);
            return std::string();
          },
          ""};
}

void LayoutFlags::AddPlanOptions(CLI::App* verb) {
  verb->add_option("--disk", disk,
                   "the most that the layout may take: 3x (times the feature bytes), 20GiB; "
                   "default: no limit");
  verb->add_option("--epochs-planned", epochs, "epochs sampled ahead, which training then repeats")
      ->check(WholeFrom(1, kUint32Max, "a number of epochs from 1 on", "5"))
      ->capture_default_str();
  AddChoice(verb, "--policy", policy, "which rows stay in memory");
  AddChoice(verb, "--seed-order", road.seed_order,
            "random, or proximity: seeds near each other share batches");
  verb->add_option("--hash-functions", hash_functions,
                   "of the MinHash order of segment caches; 0: by node id")
      ->capture_default_str();
}

void LayoutFlags::AddRoadOptions(CLI::App* verb) {
  verb->add_option("--batch-size", road.batch_size, "seed nodes (link: edges) a mini-batch")
      ->check(WholeFrom(1, 1e12, "a number of seeds from 1 on", "1024"))
      ->capture_default_str();
  AddChoice(verb, "--direction", road.direction, "along which edges neighbors send");
  verb->add_flag("--replace", road.replace, "draw neighbors with replacement: always as many as the fanout");
  AddChoice(
      verb, "--sampler", road.sampler,
      "neighbor, or labor: the nodes of a hop draw the same neighbors where they can, so that batches have "
      "fewer nodes");
  // One batch alike is every batch anew, and specs of the same batches are equal.
  verb->add_option_function<uint32_t>(
          "--batch-dependency",
          [this](uint32_t batches) { road.batch_dependency = batches > 1 ? batches : 0; },
          "with labor: batches that a node is drawn alike in, so that they have much the same nodes; 0: each "
          "is drawn anew")
      ->check(WholeFrom(0, kUint32Max, "a number of batches", "64"))
      ->default_str("0");
  verb->add_flag("--weighted", road.weighted,
                 "draw neighbors with probability proportional to the weights of their edges");
  verb->add_option("--cache", cache,
                   "rows that stay in memory: a size, a share of the feature bytes, or auto: as many as "
                   "--memory has room for; "
                   "`layout build`, and on a server, 10%")
      ->capture_default_str();
}

void LayoutFlags::AddTo(CLI::App* verb) {
  verb->add_option("--fanout", road.fanouts, "neighbors a hop, from the seeds outwards")
      ->delimiter(',')
      ->check(FanoutRange())
      ->capture_default_str();
  AddRoadOptions(verb);
  verb->add_option("--seed", road.seed, "of order and samples")->capture_default_str();
  verb->add_option("--threads", threads, "default: processors");
  AddPlanOptions(verb);
  verb->add_flag("--edge-ids", road.edge_ids,
                 "batches say which edges they have, as --model rgcn and rgat and --edge-weights ask");
}

Status DrawByType(const Manifest& manifest, const std::vector<uint32_t>& fanouts, RoadSpec& road) {
  std::vector<uint32_t> types_into(manifest.node_types.size());
  for (const EdgeTypeRecord& type : manifest.edge_types) types_into[type.destination]++;
  const uint32_t most = *std::ranges::max_element(types_into);
  std::vector<uint32_t> sums, by_type;
  for (const uint32_t fanout : fanouts) {
    if (uint64_t{fanout} * most > NeighborSampler::kTypedFanoutMax) {
      return MakeStatus(
          Code::kUsage,
          "--fanout {} is drawn by edges of each type, of which {} lead into one type of nodes, and "
          "a node draws at most {} in a hop: give {} or less",
          fanout, most, NeighborSampler::kTypedFanoutMax, NeighborSampler::kTypedFanoutMax / most);
    }
    sums.push_back(fanout * most);
    by_type.insert(by_type.end(), manifest.edge_types.size(), fanout);
  }
  road.edge_ids = false;  // types are told without
  road.fanouts = std::move(sums);
  road.relation_fanouts = std::move(by_type);
  return Status::Ok();
}

std::vector<uint32_t> GivenFanouts(const RoadSpec& spec) {
  std::vector<uint32_t> fanouts = spec.fanouts;
  const size_t types = spec.relation_fanouts.size() / std::max<size_t>(1, fanouts.size());
  for (size_t hop = 0; hop < fanouts.size() && types > 0; hop++) {
    fanouts[hop] = std::ranges::max(std::span(spec.relation_fanouts).subspan(hop * types, types));
  }
  return fanouts;
}

std::string SampleFlags(const RoadSpec& spec) {
  std::string flags =
      fmt::format("--fanout {} --batch-size {} --direction {}", fmt::join(GivenFanouts(spec), ","),
                  spec.batch_size, NameOf(spec.direction));
  if (spec.replace) flags += " --replace";
  if (spec.sampler != SamplerKind::kNeighbor) flags += fmt::format(" --sampler {}", NameOf(spec.sampler));
  if (spec.batch_dependency > 0) flags += fmt::format(" --batch-dependency {}", spec.batch_dependency);
  if (spec.weighted) flags += " --weighted";
  return flags;
}

Result<uint64_t> ParseCache(const std::string& text, uint64_t feature_bytes) {
  constexpr uint64_t kAutomaticDivisor = 10;
  if (text == kCacheAuto) return feature_bytes / kAutomaticDivisor;
  const Result<uint64_t> bytes = ParseBytes(text, feature_bytes);
  if (!bytes.ok()) {
    return MakeStatus(Code::kUsage, "--cache: {}, a share of the feature bytes", bytes.status().message());
  }
  if (text.ends_with('%') && *bytes > feature_bytes) {
    return MakeStatus(Code::kUsage, "--cache {}: all rows are 100%; write a share up to that, such as 10%",
                      text);
  }
  return bytes;
}

Status LayoutFlags::Check() const {
  constexpr uint64_t kAnyBytes = 1024 * kGiB;  // shares are of the features, which nobody knows yet
  QUARRY_RETURN_IF_ERROR(ParseCache(cache, kAnyBytes).status());
  return disk.empty() ? Status::Ok() : ParseDisk(disk, kAnyBytes).status();
}

Result<uint64_t> ParseDisk(const std::string& text, uint64_t feature_bytes) {
  if (!text.ends_with('x')) return ParseSize("--disk", text, feature_bytes);
  char* end = nullptr;
  const double times = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size() - 1 || !(times > 0) || times > 1e6) {
    return MakeStatus(Code::kUsage,
                      "--disk {}: a size such as 20GiB, or a multiple of the feature bytes such as 3x", text);
  }
  const double bytes = times * static_cast<double>(feature_bytes);
  if (!(bytes >= 1 && bytes < 0x1p63)) {
    return MakeStatus(Code::kUsage, "--disk {}: {} of features times that is no size", text,
                      FormatBytes(feature_bytes));
  }
  return static_cast<uint64_t>(bytes);
}

Result<uint64_t> FeatureBytes(const Manifest& manifest, const std::string& name) {
  const TableRecord* const table = manifest.FindTable(name);
  if (table != nullptr) return table->row_count * RowBytes(table->element_type, table->dim);
  return MakeStatus(Code::kInvalidArgument, "the database has no node features (table \"{}\")", name);
}

Result<uint64_t> FeatureBytes(const Manifest& manifest, const RoadSpec& road) {
  if (road.relation_fanouts.empty()) return FeatureBytes(manifest, road.feature_table);
  uint64_t bytes = 0;
  for (const NodeTypeRecord& type : manifest.node_types) {
    if (type.feature_table.empty()) continue;
    QUARRY_TRY(const uint64_t of_type, FeatureBytes(manifest, type.feature_table));
    bytes += of_type;
  }
  if (bytes > 0) return bytes;
  return Status(Code::kInvalidArgument, "the database has features of no type of nodes");
}

Result<FeatureGeometry> RowsOf(const Manifest& manifest, const RoadSpec& road) {
  QUARRY_RETURN_IF_ERROR(FeatureBytes(manifest, road).status());
  uint64_t rows = 0, bytes = 0;
  for (const SourceRecord& table : SourceRecordsOf(manifest, road)) {
    const TableRecord& record = *table.record;
    if (road.relation_fanouts.empty()) {
      return FeatureGeometry::Make(record.element_type, FeatureDim(manifest, road), record.row_count);
    }
    rows += record.row_count;
    bytes += record.row_count * record.row_stride();
  }
  return FeatureGeometry::Make(ElementType::kFloat32, CeilDiv(bytes, rows * sizeof(float)), rows);
}

uint32_t FeatureDim(const Manifest& manifest, const RoadSpec& road) {
  return road.relation_fanouts.empty()
             ? BatchDim(manifest, road.topology, *manifest.FindTable(road.feature_table))
             : 0;
}

Result<LayoutSpec> LayoutFlags::ToSpec(const Manifest& manifest) const {
  LayoutSpec spec{.name = name,
                  .road = road,
                  .epochs = epochs,
                  .policy = policy,
                  .hash_functions = hash_functions,
                  .threads = threads > 0 ? threads : ProcessorCount()};
  const bool has_table = manifest.FindTable(road.feature_table) != nullptr;
  if (by_type || (!has_table && !manifest.edge_types.empty())) {
    QUARRY_RETURN_IF_ERROR(DrawByType(manifest, road.fanouts, spec.road));
  }
  QUARRY_TRY(const uint64_t feature_bytes, FeatureBytes(manifest, spec.road));
  QUARRY_TRY(spec.road.cache_bytes, ParseCache(cache, feature_bytes));
  if (!disk.empty()) {
    QUARRY_TRY(spec.disk_bytes, ParseDisk(disk, feature_bytes));
  }
  return spec;
}

}  // namespace quarry::cli
