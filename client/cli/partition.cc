// quarry partition build|list|explain|drop DB [NAME]: stored partitionings, for training on graphs whose nodes
// and edges both outgrow memory.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "opened_store.h"
#include "option_values.h"
#include "partition.h"
#include "print_json.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/format/wire.h"
#include "quarry/partition/partition_buffer.h"
#include "quarry/partition/stored_partitioning.h"
#include "record_json.h"
#include "server_address.h"

namespace quarry::cli {

double CutShare(const PartitioningRecord& record) {
  return record.edge_count == 0
             ? 0
             : static_cast<double>(record.cut_edges) / static_cast<double>(record.edge_count);
}

Json PartitioningJson(const Manifest& manifest, const PartitioningRecord& record) {
  Json json = FieldsOf(record);
  Rename(json, "file_bytes", "disk_bytes");
  json["disk_bytes"] = record.total_bytes();
  json["cut_share"] = CutShare(record);
  json["fresh"] = IsFresh(manifest, record);
  json["servable"] = IsServable(manifest, record);
  const TopologyRecord* const topology = manifest.FindTopology(record.topology);
  json["edges_changed"] = topology == nullptr ? 0 : topology->ChangedSince(record.timestamp);
  return json;
}

namespace {

constexpr PartitionOrder kOrders[] = {PartitionOrder::kBeta, PartitionOrder::kComet, PartitionOrder::kEuler,
                                      PartitionOrder::kNode};

struct PartitionArguments {
  std::string path;
  std::string name = "default";
  std::string memory;
  bool json = false;
  // build
  wire::BuildPartitioning build;  // but for its name, and for these:
  std::string chunk = "10%";
  std::string table = "feature";
  // explain
  uint32_t buffer = 0;  // 0: by auto-tuning
  uint32_t logical = 0;
  uint32_t training_parts = 0;  // 0: all
  uint64_t seed = 0;
};

Result<std::unique_ptr<Database>> OpenPartitioned(const PartitionArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckNoServer("partition", arguments.path));
  DatabaseOptions options;
  if (!arguments.memory.empty()) {
    QUARRY_TRY(options.memory_bytes, ParseSize("--memory", arguments.memory, 0));
  }
  return Database::Open(arguments.path, std::move(options));
}

// What has become of its data since, and what to do.
std::string_view AgeOf(const Manifest& manifest, const PartitioningRecord& record) {
  if (IsFresh(manifest, record)) return "";
  return IsServable(manifest, record)
             ? ", of the graph as it was then: --method kept takes in what came since"
             : ", of data that the database no longer has: build it again";
}

void PrintPartitioning(const Manifest& manifest, const PartitioningRecord& record) {
  Print("partitioning {}: {} parts of {} nodes, by {}\n", record.name, record.part_count,
        FormatCount(static_cast<double>(record.node_count)), record.method);
  Print("  edges      {}, of which {:.2f} % lie between parts\n",
        FormatCount(static_cast<double>(record.edge_count)), 100 * CutShare(record));
  Print("  disk       {} in {}, {}\n", FormatBytes(record.total_bytes()), record.directory,
        record.table.empty() ? std::string("without rows") : fmt::format("rows of table {}", record.table));
  Print("  built in   {:.1f} s{}\n", record.build_seconds, AgeOf(manifest, record));
}

Status BuildPartition(const PartitionArguments& arguments) {
  constexpr uint64_t kWhole = 1'000'000'000;
  QUARRY_TRY(const uint64_t chunk, ParseSize("--chunk", arguments.chunk, kWhole));
  if (!arguments.chunk.ends_with('%') || chunk == 0 || chunk > kWhole) {
    return MakeStatus(Code::kUsage, "--chunk {}: a share of the edges, such as 10%", arguments.chunk);
  }
  wire::BuildPartitioning build = arguments.build;
  build.name = arguments.name;
  build.chunk_share = static_cast<double>(chunk) / static_cast<double>(kWhole);
  if (arguments.table == "none") {
    build.rows = false;
  } else {
    build.table = arguments.table;
  }
  const wire::Maintain request = {build};
  if (const Status fits = wire::CheckRequest(request); !fits.ok())
    return Status(Code::kUsage, std::string(fits.message()));
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path, arguments.memory));
  QUARRY_TRY(const std::string folder, FolderOf(*store));
  ProgressBar bar;
  const std::string left = fmt::format(
      "the partitionings are as they were; the next build, or `quarry partition drop {} {}`, removes what "
      "there is of this one",
      folder, arguments.name);
  const auto built = store->Maintain(request.task, bar.AsFunction(left));
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(built.status());
  QUARRY_TRY(const Manifest newest, ManifestOf(*store, arguments.path));
  const PartitioningRecord* const record = newest.FindPartitioning(arguments.name);
  if (record == nullptr) {
    return MakeStatus(Code::kNotFound, "partitioning \"{}\" was built, and dropped meanwhile",
                      arguments.name);
  }
  if (arguments.json) {
    Json json = PartitioningJson(newest, *record);
    json["peak_rss_bytes"] = PeakRssBytes();
    PrintJson(json);
    return Status::Ok();
  }
  PrintPartitioning(newest, *record);
  return Status::Ok();
}

Status ListPartitionings(const PartitionArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path, arguments.memory));
  QUARRY_TRY(const Manifest manifest, ManifestOf(*store, arguments.path));
  Json json = Json::array();
  for (const PartitioningRecord& record : manifest.partitionings) {
    arguments.json ? json.push_back(PartitioningJson(manifest, record)) : PrintPartitioning(manifest, record);
  }
  if (arguments.json) {
    PrintJson(json);
  } else if (manifest.partitionings.empty()) {
    QUARRY_TRY(const std::string folder, FolderOf(*store));
    Print("no partitionings; `quarry partition build {}` makes one\n", folder);
  }
  return Status::Ok();
}

// What an epoch costs in one order.
struct OrderCost {
  SwapSpec spec;
  Status status;  // why there is none
  SwapCost swaps;
  uint64_t swaps_min = 0;
  double bias = 0;
  double seconds = 0;
  uint64_t memory_bytes = 0;
};

OrderCost CostOfOrder(const PartitionDirectory& directory, const SwapSpec& spec,
                      const DeviceProfile& device) {
  OrderCost cost{.spec = spec};
  const Result<SwapPlan> plan = PlanSwaps(spec);
  cost.status = plan.status();
  if (!plan.ok()) return cost;
  cost.swaps = CostOf(*plan, directory.PartBytes(), directory.BucketBytes());
  // The least in which every two parts meet; of one set none.
  cost.swaps_min = spec.order == PartitionOrder::kNode ? cost.swaps.swaps : SwapsMin(spec.parts, spec.buffer);
  cost.bias = EdgePermutationBias(*plan, directory.BucketEdges());
  cost.seconds = device.ReadSeconds(cost.swaps.bytes_read, cost.swaps.parts_read + cost.swaps.buckets_read);
  cost.memory_bytes = PartitionBuffer::Bytes(directory, *plan, {});
  return cost;
}

struct PartitionExplanation {
  PartitioningRecord record;
  SwapSpec spec;  // without an order
  uint64_t request_bytes = 0;
  uint32_t parts_tuned = 0;  // 0: none would do
  bool measured = false;
  std::vector<OrderCost> orders;
};

Result<PartitionExplanation> ExplainOrders(Database& database, const PartitionArguments& arguments) {
  QUARRY_TRY(const auto opened,
             StoredPartitioning::Open(database.store(), database.budget(), arguments.name));
  const PartitionDirectory& directory = opened->directory();
  const std::shared_ptr<const Manifest> manifest = database.manifest();
  const DeviceProfile device = ProfileOf(*manifest);
  PartitionExplanation explanation{.record = opened->record()};
  explanation.measured = manifest->device.has_value();
  explanation.request_bytes = RequestBytesAt(device, kBandwidthShare);
  const TuneOptions tune{.memory_bytes = database.budget().available_bytes(),
                         .request_bytes = explanation.request_bytes};
  const TopologyRecord& topology = *manifest->FindTopology(explanation.record.topology);
  const auto fresh = TuneParts(*manifest, topology, explanation.record.table, device, tune.memory_bytes);
  if (fresh.ok()) explanation.parts_tuned = fresh->parts;
  SwapSpec& spec = explanation.spec;
  spec = {.parts = directory.parts(),
          .buffer = arguments.buffer,
          .logical = arguments.logical,
          .training_parts = arguments.training_parts > 0     ? arguments.training_parts
                            : directory.training_parts() > 0 ? directory.training_parts()
                                                             : directory.parts(),
          .seed = arguments.seed};
  if (spec.buffer == 0) {
    QUARRY_TRY(const PartitionTuning tuning, TuneBuffer(directory, tune));
    spec.buffer = tuning.buffer;
  }
  if (spec.logical == 0) spec.logical = std::max<uint32_t>(2, 2 * spec.parts / spec.buffer);
  for (const PartitionOrder order : kOrders) {
    SwapSpec own = spec;
    own.order = order;
    explanation.orders.push_back(CostOfOrder(directory, own, device));
  }
  return explanation;
}

Json ExplanationJson(const PartitionExplanation& explanation) {
  Json json = {{"name", explanation.record.name},
               {"parts", explanation.spec.parts},
               {"buffer", explanation.spec.buffer},
               {"logical", explanation.spec.logical},
               {"seed", explanation.spec.seed},
               {"request_bytes", explanation.request_bytes},
               {"device_measured", explanation.measured},
               {"parts_tuned", explanation.parts_tuned == 0 ? Json(nullptr) : Json(explanation.parts_tuned)},
               {"orders", Json::array()}};
  for (const OrderCost& cost : explanation.orders) {
    Json order = {{"order", PartitionOrderName(cost.spec.order)}};
    if (!cost.status.ok()) {
      order["refused"] = cost.status.message();
    } else {
      order.update({{"steps", cost.swaps.steps},
                    {"swaps", cost.swaps.swaps},
                    {"swaps_min", cost.swaps_min},
                    {"parts_read", cost.swaps.parts_read},
                    {"buckets_read", cost.swaps.buckets_read},
                    {"bytes_read", cost.swaps.bytes_read},
                    {"predicted_seconds", cost.seconds},
                    {"bias", cost.bias},
                    {"largest_step", cost.swaps.largest_step},
                    {"memory_bytes", cost.memory_bytes}});
    }
    json["orders"].push_back(std::move(order));
  }
  return json;
}

void PrintPartitionExplanation(const PartitionExplanation& explanation, const std::string& database) {
  Print("partitioning {}: {} parts, {} of them held; {} logical ones\n\n", explanation.record.name,
        explanation.spec.parts, explanation.spec.buffer, explanation.spec.logical);
  Print("{:<6} {:>7} {:>7} {:>7} {:>9} {:>11} {:>8} {:>6} {:>8} {:>11}\n", "order", "sets", "swaps", "least",
        "buckets", "read", "seconds", "bias", "largest", "memory");
  for (const OrderCost& cost : explanation.orders) {
    if (!cost.status.ok()) {
      Print("{:<6} {}\n", PartitionOrderName(cost.spec.order), cost.status.message());
      continue;
    }
    Print("{:<6} {:>7} {:>7} {:>7} {:>9} {:>11} {:>8.2f} {:>6.3f} {:>8.2f} {:>11}\n",
          PartitionOrderName(cost.spec.order), cost.swaps.steps, cost.swaps.swaps, cost.swaps_min,
          cost.swaps.buckets_read, FormatBytes(cost.swaps.bytes_read), cost.seconds, cost.bias,
          cost.swaps.largest_step, FormatBytes(cost.memory_bytes));
  }
  if (explanation.parts_tuned > 0) {
    Print("\nReads of {} reach {:.0f} % of the device's bandwidth: this graph would be cut into {} parts.\n",
          FormatBytes(explanation.request_bytes), 100 * kBandwidthShare, explanation.parts_tuned);
  }
  if (!explanation.measured) {
    Print("The device is not measured: these are the figures of a default one; run `quarry calibrate {}`.\n",
          database);
  }
}

Status ExplainPartitioning(const PartitionArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<Database> database, OpenPartitioned(arguments));
  QUARRY_TRY(const PartitionExplanation explanation, ExplainOrders(*database, arguments));
  if (arguments.json) {
    PrintJson(ExplanationJson(explanation));
  } else {
    PrintPartitionExplanation(explanation, arguments.path);
  }
  return Status::Ok();
}

Status DropPartition(const PartitionArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path));
  return store->Maintain(wire::DropPartitioning{arguments.name}).status();
}

CLI::App* AddPartitionVerb(CLI::App* partition, const std::string& name, const std::string& help,
                           const std::shared_ptr<PartitionArguments>& arguments, Action& action,
                           Status (*run)(const PartitionArguments&)) {
  CLI::App* verb = partition->add_subcommand(name, help);
  verb->add_option("DB", arguments->path, name == "explain" ? "database folder" : kAddressHelp)->required();
  if (name != "list") verb->add_option("NAME", arguments->name, "of the partitioning")->capture_default_str();
  if (name != "drop") {
    verb->add_flag("--json", arguments->json, "JSON on stdout");
    verb->add_option("--memory", arguments->memory,
                     "cap on what the engine holds (default 80% of what the machine or cgroup allows)");
  }
  verb->callback([arguments, run, &action] { action = [arguments, run] { return run(*arguments); }; });
  return verb;
}

}  // namespace

void AddPartition(CLI::App& app, Action& action) {
  CLI::App* partition = app.add_subcommand("partition", "cut a graph into parts that are read whole");
  partition->require_subcommand(1);
  const auto make = [] { return std::make_shared<PartitionArguments>(); };
  auto arguments = make();
  CLI::App* build = AddPartitionVerb(partition, "build", "choose a part for each node, and store the parts",
                                     arguments, action, BuildPartition);
  AddChoice(build, "--method", arguments->build.method,
            "which partitioner; kept: the parts that nodes have, and where edges alone came and went, by the "
            "buckets that changed");
  build->add_option("--parts", arguments->build.parts,
                    "default: as many as the device reads well, by the graph's size");
  build->add_option("--chunk", arguments->chunk, "grem: the share of the edges that it has in memory")
      ->capture_default_str();
  build->add_option("--table", arguments->table, "whose rows parts have; none: edges alone")
      ->capture_default_str();
  build->add_flag(
      "--training-first", arguments->build.training_first,
      "put the training nodes into parts of their own, which stay in memory while others take turns");
  build->add_option("--topology", arguments->build.topology, "what is cut")->capture_default_str();
  build->add_option("--seed", arguments->build.seed, "of the partitioner")->capture_default_str();
  build->footer(
      "All or nothing: interrupted, it leaves the database as it was. One of the same name is replaced.\n"
      "Example: quarry partition build db/ --method grem --parts 64 --chunk 10%");
  AddPartitionVerb(partition, "list", "the partitionings of a database", make(), action, ListPartitionings)
      ->footer("Example: quarry partition list db/ --json");
  arguments = make();
  CLI::App* explain = AddPartitionVerb(partition, "explain", "what an epoch reads in each order of the parts",
                                       arguments, action, ExplainPartitioning);
  explain->add_option("--buffer", arguments->buffer,
                      "parts that are held at once; default: what the memory allows");
  explain->add_option("--logical", arguments->logical, "logical parts; default: so many that two are held");
  explain->add_option(
      "--training-parts", arguments->training_parts,
      "how many of the first parts have training nodes; default: as many as have, all without labels");
  explain->add_option("--seed", arguments->seed, "of the epoch")->capture_default_str();
  explain->footer("Example: quarry partition explain db/ --memory 8GiB");
  AddPartitionVerb(partition, "drop", "remove a partitioning, and what an interrupted build of it left",
                   make(), action, DropPartition)
      ->footer("Example: quarry partition drop db/ default");
}

}  // namespace quarry::cli
