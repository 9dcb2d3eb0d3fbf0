#include "generator/generate.h"
#include "generator/weather.h"

#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "option_values.h"
#include "print_json.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"

namespace quarry::cli {
namespace {

struct GenerateArguments {
  std::string path;
  GenerateOptions options;
  std::string nodes = "1M";
  std::string dtype = "float32";
  std::string train_share = "1%", valid_share = "0.5%", test_share = "0.5%";
  std::string grid;  // --weather
  WeatherOptions weather;
  unsigned threads = 0;
  bool json = false;
};

void PrintText(const GenerateArguments& arguments, const GenerateSummary& summary, double seconds) {
  const GenerateOptions& options = arguments.options;
  Print("{}: {} nodes, {} edges, {} classes, features {} x {} {}: {} in {:.1f} s ({})\n", arguments.path,
        options.node_count, summary.edge_count, options.class_count, options.node_count, options.dim,
        ElementTypeName(options.element_type), FormatBytes(summary.bytes), seconds,
        FormatRate(static_cast<double>(summary.bytes), seconds));
}

void PrintSummaryJson(const GenerateArguments& arguments, const GenerateSummary& summary, double seconds) {
  const GenerateOptions& options = arguments.options;
  const nlohmann::ordered_json json = {
      {"path", arguments.path},      {"nodes", options.node_count},
      {"edges", summary.edge_count}, {"classes", options.class_count},
      {"dim", options.dim},          {"element_type", ElementTypeName(options.element_type)},
      {"seed", options.seed},        {"bytes", summary.bytes},
      {"seconds", seconds},          {"peak_rss_bytes", PeakRssBytes()}};
  PrintJson(json);
}

// "36x72": latitudes and longitudes.
Status ParseGrid(const std::string& text, WeatherOptions& options) {
  const char* const end = text.data() + text.size();
  const auto [x, rows] = std::from_chars(text.data(), end, options.rows);
  if (rows == std::errc() && x != end && *x == 'x') {
    const auto [rest, columns] = std::from_chars(x + 1, end, options.columns);
    if (columns == std::errc() && rest == end) return Status::Ok();
  }
  return MakeStatus(Code::kUsage, "--weather '{}' is no grid of latitudes x longitudes, such as 36x72", text);
}

Status RunWeather(GenerateArguments& arguments, unsigned threads) {
  WeatherOptions& options = arguments.weather;
  QUARRY_RETURN_IF_ERROR(ParseGrid(arguments.grid, options));
  options.noise = arguments.options.noise;
  options.seed = arguments.options.seed;
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  const double start = MonotonicSeconds();
  ProgressBar progress;
  QUARRY_TRY(const WeatherSummary made,
             GenerateWeather(*backend, arguments.path, options, threads, progress.AsFunction()));
  progress.Clear();
  const double seconds = MonotonicSeconds() - start;
  if (arguments.json) {
    PrintJson(nlohmann::ordered_json{{"path", arguments.path},
                                     {"nodes", made.places * made.hours},
                                     {"places", made.places},
                                     {"times", made.hours},
                                     {"edges", made.edge_count},
                                     {"dim", made.dim},
                                     {"noise_floor", made.noise_floor},
                                     {"seed", options.seed},
                                     {"bytes", made.bytes},
                                     {"seconds", seconds},
                                     {"peak_rss_bytes", PeakRssBytes()}});
    return Status::Ok();
  }
  Print("{}: {} places at {} hours, {} edges, features {} x {} float32: {} in {:.1f} s ({})\n",
        arguments.path, made.places, made.hours, made.edge_count, made.places * made.hours, made.dim,
        FormatBytes(made.bytes), seconds, FormatRate(static_cast<double>(made.bytes), seconds));
  Print("the best forecast of feature@+{} has an RMSE of {:.6g}\n", WeatherGrid::kLag, made.noise_floor);
  return Status::Ok();
}

Status Run(GenerateArguments& arguments) {
  GenerateOptions& options = arguments.options;
  // One thread more than processors: it computes while another waits for its write.
  const unsigned threads = arguments.threads > 0 ? arguments.threads : ProcessorCount() + 1;
  if (!arguments.grid.empty()) return RunWeather(arguments, threads);
  QUARRY_TRY(options.node_count, ParseCount(arguments.nodes));
  QUARRY_TRY(options.element_type, ParseElementType(arguments.dtype));
  QUARRY_TRY(options.train_share, ParseShare("--train-share", arguments.train_share));
  QUARRY_TRY(options.valid_share, ParseShare("--valid-share", arguments.valid_share));
  QUARRY_TRY(options.test_share, ParseShare("--test-share", arguments.test_share));
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  const double start = MonotonicSeconds();
  ProgressBar progress;
  QUARRY_TRY(const GenerateSummary summary,
             Generate(*backend, arguments.path, options, threads, progress.AsFunction()));
  progress.Clear();
  const double seconds = MonotonicSeconds() - start;
  arguments.json ? PrintSummaryJson(arguments, summary, seconds) : PrintText(arguments, summary, seconds);
  return Status::Ok();
}

}  // namespace

void AddGenerate(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("generate", "make a synthetic graph to try Quarry on");
  auto arguments = std::make_shared<GenerateArguments>();
  GenerateOptions& options = arguments->options;
  verb->add_option("DIR", arguments->path, "folder to create")->required();
  CLI::Option* const nodes =
      verb->add_option("--nodes", arguments->nodes, "number of nodes: 50k, 1M, 2.5M")->capture_default_str();
  CLI::Option* const degree =
      verb->add_option("--degree", options.degree, "mean degree")->capture_default_str();
  CLI::Option* const dim = verb->add_option("--dim", options.dim, "features per node")->capture_default_str();
  CLI::Option* const classes =
      verb->add_option("--classes", options.class_count, "communities, and values of the label")
          ->capture_default_str();
  CLI::Option* const exponent =
      verb->add_option("--exponent", options.exponent, "of the in-degree's power law")->capture_default_str();
  CLI::Option* const homophily =
      verb->add_option("--homophily", options.homophily, "probability that an edge stays in its class")
          ->capture_default_str();
  verb->add_option("--noise", options.noise,
                   "standard deviation of features around the class's centroid, or of the weather around its "
                   "best forecast")
      ->capture_default_str();
  verb->add_option("--seed", options.seed, "the same seed gives the same bytes on every machine")
      ->capture_default_str();
  CLI::Option* const dtype =
      verb->add_option("--dtype", arguments->dtype, "of the features: float32 or float16")
          ->capture_default_str();
  CLI::Option* const train =
      verb->add_option("--train-share", arguments->train_share, "nodes to train on: 1% or 0.01")
          ->capture_default_str();
  CLI::Option* const valid = verb->add_option("--valid-share", arguments->valid_share, "nodes to validate on")
                                 ->capture_default_str();
  CLI::Option* const test =
      verb->add_option("--test-share", arguments->test_share, "nodes to test on")->capture_default_str();
  WeatherOptions& weather = arguments->weather;
  CLI::Option* const grid =
      verb->add_option(
              "--weather", arguments->grid,
              "instead: weather on a grid of latitudes x longitudes, hour after hour: six variables, "
              "whose values six hours later are known but for --noise; the last tenth of the hours is "
              "to test on, the one before to validate on")
          ->type_name("LATxLON");
  for (CLI::Option* const other :
       {nodes, degree, dim, classes, exponent, homophily, dtype, train, valid, test}) {
    grid->excludes(other);
  }
  verb->add_option("--hours", weather.hours, "of weather")->capture_default_str()->needs(grid);
  verb->add_option("--levels", weather.levels, "at which there is each of the six variables")
      ->capture_default_str()
      ->needs(grid);
  verb->add_option("--diffusion", weather.diffusion,
                   "share of the weather that neighbors replace in six hours")
      ->capture_default_str()
      ->needs(grid);
  verb->add_option("--diurnal", weather.diurnal, "amplitude of what the time of day does to it")
      ->capture_default_str()
      ->needs(grid);
  verb->add_option("--threads", arguments->threads, "default: one more than processors");
  verb->add_flag("--json", arguments->json, "one JSON object on stdout");
  verb->footer(
      "Examples:\n"
      "  quarry generate graph/ --nodes 4M --degree 15 --dim 128 --classes 50 --seed 1\n"
      "  quarry generate weather/ --weather 36x72 --hours 2000");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
