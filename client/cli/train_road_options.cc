// What of `quarry train` is said of its road, and what of it goes with which.
#include <algorithm>

#include "option_values.h"
#include "quarry/base/units.h"
#include "server_address.h"
#include "train_choice.h"
#include "train_link.h"

namespace quarry::cli {
namespace {

Choices<std::optional<RoadKind>> RoadNames() {
  Choices<std::optional<RoadKind>> names = {{std::string(kAutoRoad), std::nullopt}};
  for (const RoadKind road : {RoadKind::kLive, RoadKind::kPlanned, RoadKind::kFresh}) {
    names.emplace_back(quarry::NameOf(road), road);
  }
  return names;
}

// Roads as a command line says them, as bits.
constexpr unsigned kAuto = 1, kLive = 2, kPlanned = 4, kFresh = 8, kBuilt = 16, kParts = 32;

struct RoadOption {
  const char* option;
  unsigned roads;  // that it has an effect on
  const char* about;
};
constexpr unsigned kWhole = kAuto | kLive | kPlanned | kFresh | kBuilt;
constexpr RoadOption kRoadOptions[] = {
    {"--sampler", kWhole, "lists of neighbors that are whole"},
    {"--batch-dependency", kWhole, "lists of neighbors that are whole"},
    {"--weighted", kWhole, "lists of neighbors that have their weights"},
    {"--cache", kAuto | kLive | kPlanned | kFresh,
     "the rows that stay, and a layout that is there says which do"},
    {"--policy", kPlanned | kFresh, "the cache of layouts that --plan or --road planned builds"},
    {"--epochs-planned", kPlanned, "epochs that repeat, as --plan or --road planned packs them"},
    {"--hash-functions", kPlanned | kFresh, "layouts that --plan or --road planned builds"},
    {"--superbatch", kAuto | kFresh, "batches that the fresh road plans together"},
    {"--disk", kAuto | kPlanned | kFresh, "layouts that --plan or --road planned builds"},
    {"--newest", kAuto | kLive, "batches that are sampled as they are used"},
    {"--seed-order", kAuto | kPlanned | kFresh, "layouts that --plan or --road planned builds"},
};

unsigned RoadOf(const NodeArguments& arguments) {
  if (arguments.parts) return kParts;
  if (arguments.plan) return arguments.resample ? kFresh : kPlanned;
  if (!arguments.layout.empty()) return kBuilt;
  if (!arguments.given_road) {  // nothing is chosen where the engine is a server's
    return IsServerAddress(arguments.path) || arguments.workers.count > 1 ? kLive : kAuto;
  }
  constexpr unsigned kOfKind[] = {kLive, kPlanned, kFresh};
  return kOfKind[static_cast<size_t>(*arguments.given_road)];
}

std::string_view NameOfRoad(unsigned road) {
  if (road == kAuto) return "a road that is chosen";
  if (road == kBuilt) return "--layout";
  if (road == kParts) return "the partitioned road";
  return road == kLive ? "the live road" : road == kPlanned ? "the planned road" : "the fresh road";
}

}  // namespace

void AddRoadChoice(CLI::App* verb, NodeArguments& arguments, bool& partitioned) {
  const Choices<std::optional<RoadKind>> roads = RoadNames();
  std::vector<std::string> names;
  for (const auto& road : roads) names.push_back(road.first);
  names.emplace_back(kPartitionedRoad);
  verb->add_option_function<std::string>(
          "--road",
          [&arguments, &partitioned, roads](const std::string& chosen) {
            partitioned = chosen == kPartitionedRoad;
            for (const auto& [name, road] : roads) {
              if (name == chosen) arguments.given_road = road;
            }
          },
          "auto (default): the one that is predicted to take the least time; live: sample and read; planned: "
          "repeat "
          "packed epochs; fresh: sample and plan every epoch while the one before trains; partitioned: "
          "part by part, as `quarry partition build` has cut the graph")
      ->type_name("NAME")
      ->check(CLI::IsMember(names));
  verb->add_option_function<std::string>(
          "--superbatch",
          [&arguments](const std::string& batches) {
            if (batches != kAutoRoad) arguments.superbatch = std::stoull(batches);
          },
          "auto (default): as many batches are planned together on the fresh road as are predicted to take "
          "the "
          "least time, within memory and --disk; or how many")
      ->type_name("BATCHES")
      ->check(CLI::Validator(
          [number = WholeFrom(1, kUint32Max, "auto, or a number of batches from 1 on", "100")](
              std::string& batches) { return batches == kAutoRoad ? std::string() : number(batches); },
          ""));
  verb->add_flag("--explain", arguments.explain,
                 "print what each road is predicted to take, and train nothing");
}

void TakePartOptions(const CLI::App& verb, const LinkArguments& link, NodeArguments& node) {
  node.parts = {.partitioning = link.partitioning, .parts = link.road};
  if (verb.count("--partition-order") == 0) node.parts->parts.order = PartitionOrder::kNode;
}

Status CheckPlanOptions(const CLI::App& verb, const NodeArguments& arguments) {
  const auto given = [&](const char* option) { return verb.count(option) > 0; };
  const bool fixed = arguments.plan || !arguments.layout.empty();
  for (const char* const option : {"--road", "--explain"}) {
    if (!fixed || !given(option)) continue;
    return MakeStatus(Code::kUsage,
                      "{} is about a road that is still to be chosen, and {} has chosen it: leave one out",
                      option, arguments.layout.empty() ? "--plan" : "--layout");
  }
  if (arguments.resample && given("--epochs-planned")) {
    return Status(Code::kUsage,
                  "--epochs-planned is about epochs that repeat, and --resample every-epoch plans one "
                  "at a time: leave one of them out");
  }
  const unsigned road = RoadOf(arguments);
  for (const RoadOption& option : kRoadOptions) {
    if (!given(option.option) || (option.roads & road) != 0) continue;
    return MakeStatus(Code::kUsage, "{} is about {}, and has no effect on {}: leave it out", option.option,
                      option.about, NameOfRoad(road));
  }
  if (arguments.newest && !IsServerAddress(arguments.path)) {
    return Status(
        Code::kUsage,
        "--newest is of a server's database (unix:SOCKET), which others write to meanwhile; nobody writes to "
        "one that this process has open: leave it out");
  }
  if (given("--resample") && !arguments.plan) {
    return Status(Code::kUsage,
                  "--resample is about the layouts of --plan: give --plan too, or leave it out");
  }
  for (const char* const option : {"--explain", "--dry-run", "--topology"}) {
    if (!arguments.parts || !given(option)) continue;
    return MakeStatus(Code::kUsage, "{} is of the other roads: leave it out with --road partitioned", option);
  }
  if (arguments.parts && arguments.parts->parts.order != PartitionOrder::kNode) {
    return MakeStatus(Code::kUsage, "partition order {} is of link prediction; node classification has node",
                      PartitionOrderName(arguments.parts->parts.order));
  }
  for (const char* const option : {"--explain", "--resume"}) {
    if (!arguments.dry_run || !given(option)) continue;
    return MakeStatus(Code::kUsage,
                      "--dry-run says what a run that begins would do, and {} asks for something else: leave "
                      "one out",
                      option);
  }
  if (!arguments.memory.empty())
    QUARRY_RETURN_IF_ERROR(ParseSize("--memory", arguments.memory, 1024 * kGiB).status());
  return arguments.plan_flags.Check();
}

}  // namespace quarry::cli
