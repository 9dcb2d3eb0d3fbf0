#include "generator/generate.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <numeric>
#include <sstream>

#include "generator/weather.h"
#include "quarry/base/progress.h"
#include "quarry/format/checksum.h"
#include "support/fault_backend.h"
#include "support/file_text.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kFiles[] = {"edges.npy",    "features.npy",  "labels.npy",   "metadata.yaml",
                                  "test_idx.npy", "train_idx.npy", "valid_idx.npy"};

// An array of T, read by the rules of the .npy format and nothing of Quarry's.
template <typename T>
std::vector<T> ReadArray(const fs::path& path, const std::string& descr, const std::string& shape) {
  const std::string bytes = testing_util::FileText(path);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t header_bytes = static_cast<uint8_t>(bytes.at(8)) + 256 * static_cast<uint8_t>(bytes.at(9));
  const std::string header = bytes.substr(10, header_bytes);
  EXPECT_EQ((10 + header_bytes) % 64, 0u);
  EXPECT_EQ(header.back(), '\n');
  EXPECT_EQ(header.substr(0, header.find_last_not_of(" \n") + 1),
            "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }");
  const std::string data = bytes.substr(10 + header_bytes);
  EXPECT_EQ(data.size() % sizeof(T), 0u);
  std::vector<T> values(data.size() / sizeof(T));
  if (!data.empty()) std::memcpy(values.data(), data.data(), data.size());
  return values;
}

// Over all files, in the order of their names.
uint64_t ChecksumOf(const fs::path& folder) {
  std::string all;
  for (const char* name : kFiles) all += testing_util::FileText(folder / name);
  return Checksum64(std::as_bytes(std::span(all)));
}

class GenerateTest : public testing::Test {
 protected:
  GenerateTest() : root_(fs::path(testing::TempDir()) / ("generate_test-" + std::to_string(getpid()))) {
    fs::create_directories(root_);
  }
  ~GenerateTest() override { fs::remove_all(root_); }

  std::string Path(const std::string& name) const { return (root_ / name).string(); }
  Status Make(const std::string& name, const GenerateOptions& options, unsigned threads = 2,
              const ProgressFunction& progress = {}) {
    return Generate(*backend_, Path(name), options, threads, progress).status();
  }
  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_)) names.push_back(entry.path().filename());
    return names;
  }

  const fs::path root_;
  std::unique_ptr<IoBackend> backend_ = MakeThreadBackend(4);
};

const GenerateOptions kSmall = {.node_count = 1003,
                                .degree = 7.5,
                                .dim = 33,
                                .class_count = 5,
                                .seed = 42,
                                .train_share = 0.5,
                                .valid_share = 0.25,
                                .test_share = 0.25};

TEST_F(GenerateTest, TheBytesOfASeedNeverChange) {
  ASSERT_OK(Make("a", kSmall));
  // A change of this number means that every graph ever generated changes: say so in the release's notes.
  EXPECT_EQ(ChecksumOf(Path("a")), 17687211692765537601u);
}

TEST_F(GenerateTest, TheSameSeedGivesTheSameBytesForAnyNumberOfThreads) {
  GenerateOptions options{
      .node_count = 30'011, .dim = 131, .class_count = 7};  // several chunks, cut inside rows
  ASSERT_OK(Make("one", options, 1));
  ASSERT_OK(Make("five", options, 5));
  for (const char* name : kFiles)
    EXPECT_EQ(testing_util::FileText(Path("one") + "/" + name),
              testing_util::FileText(Path("five") + "/" + name))
        << name;
  options.seed = 2;
  ASSERT_OK(Make("other", options));
  EXPECT_NE(ChecksumOf(Path("one")), ChecksumOf(Path("other")));
}

TEST_F(GenerateTest, WritesArraysThatNumPyReads) {
  ASSERT_OK(Make("a", kSmall));
  const std::string a = Path("a");
  EXPECT_EQ(ReadArray<int64_t>(a + "/edges.npy", "<i8", "(2, 7523)").size(), 2 * 7523u);
  EXPECT_EQ(ReadArray<float>(a + "/features.npy", "<f4", "(1003, 33)").size(), 1003 * 33u);
  EXPECT_EQ(ReadArray<int64_t>(a + "/labels.npy", "<i8", "(1003,)").size(), 1003u);
  const std::string metadata = testing_util::FileText(a + "/metadata.yaml");
  EXPECT_THAT(metadata, HasSubstr("num_nodes: 1003\nnum_edges: 7523\nfeature_dim: 33\nnum_classes: 5\n"));
  EXPECT_THAT(metadata, HasSubstr("seed: 42\n"));
}

TEST_F(GenerateTest, Float16FeaturesAreTheRoundedFloat32Ones) {
  GenerateOptions options = kSmall;
  ASSERT_OK(Make("full", options));
  options.element_type = ElementType::kFloat16;
  ASSERT_OK(Make("half", options));
  const auto full = ReadArray<float>(Path("full") + "/features.npy", "<f4", "(1003, 33)");
  const auto half = ReadArray<uint16_t>(Path("half") + "/features.npy", "<f2", "(1003, 33)");
  std::vector<float> decoded(half.size());
  DecodeRow(ElementType::kFloat16, std::as_bytes(std::span(half)), decoded);
  for (size_t i = 0; i < full.size(); i++)
    ASSERT_NEAR(full[i], decoded[i], std::abs(full[i]) * 0x1p-11 + 1e-7) << i;
}

TEST_F(GenerateTest, SplitsAreDisjointAscendingAndOfTheStatedShares) {
  const GenerateOptions options{
      .node_count = 100'000, .degree = 1, .dim = 1, .train_share = 0.1, .valid_share = 0.02, .test_share = 0};
  ASSERT_OK(Make("a", options));
  const auto read = [&](const char* name) {
    const std::string path = Path("a") + "/" + name;
    const uint64_t count = (fs::file_size(path) - 4096) / 8;
    return ReadArray<int64_t>(path, "<i8", "(" + std::to_string(count) + ",)");
  };
  const auto train = read("train_idx.npy"), valid = read("valid_idx.npy"), test = read("test_idx.npy");
  EXPECT_NEAR(static_cast<double>(train.size()), 10'000, 400);
  EXPECT_NEAR(static_cast<double>(valid.size()), 2'000, 200);
  EXPECT_TRUE(test.empty());
  EXPECT_TRUE(std::ranges::is_sorted(train));
  EXPECT_TRUE(std::ranges::is_sorted(valid));
  std::vector<int64_t> both;
  std::ranges::set_intersection(train, valid, std::back_inserter(both));
  EXPECT_TRUE(both.empty());
  EXPECT_LT(train.back(), 100'000);
}

// One graph that the tests of distributions share.
class GeneratedGraphTest : public testing::Test {
 protected:
  static constexpr uint64_t kNodes = 200'000, kEdges = 3'000'000, kDim = 64, kClasses = 20;
  static void SetUpTestSuite() {
    const fs::path folder =
        fs::path(testing::TempDir()) / ("generated_graph_test-" + std::to_string(getpid()));
    const GenerateOptions options{.node_count = kNodes, .dim = kDim, .class_count = kClasses};
    ASSERT_OK(Generate(*MakeThreadBackend(2), folder.string(), options, 2, {}));
    edges_ = ReadArray<int64_t>(folder / "edges.npy", "<i8", "(2, 3000000)");
    labels_ = ReadArray<int64_t>(folder / "labels.npy", "<i8", "(200000,)");
    features_ = ReadArray<float>(folder / "features.npy", "<f4", "(200000, 64)");
    fs::remove_all(folder);
  }
  static void TearDownTestSuite() {
    edges_.clear();
    labels_.clear();
    features_.clear();
  }
  static int64_t Source(uint64_t edge) { return edges_[edge]; }
  static int64_t Destination(uint64_t edge) { return edges_[kEdges + edge]; }

  // Slope of log P(degree >= k) between two degrees: 1 - exponent for a power law.
  static double TailSlope(const std::vector<uint64_t>& degrees, uint64_t low, uint64_t high) {
    const auto at_least = [&](uint64_t k) {
      return static_cast<double>(
          std::ranges::count_if(degrees, [k](uint64_t degree) { return degree >= k; }));
    };
    return std::log(at_least(high) / at_least(low)) /
           std::log(static_cast<double>(high) / static_cast<double>(low));
  }

  // The share of nodes whose row in `rows` is nearest to the centroid of their own class.
  static double NearestCentroidAccuracy(const std::vector<float>& rows) {
    std::vector<double> centroids(kClasses * kDim);
    std::vector<double> sizes(kClasses);
    for (uint64_t node = 0; node < kNodes; node++) {
      const auto label = static_cast<size_t>(labels_[node]);
      sizes[label]++;
      for (uint64_t d = 0; d < kDim; d++) centroids[label * kDim + d] += rows[node * kDim + d];
    }
    for (uint64_t i = 0; i < centroids.size(); i++) centroids[i] /= sizes[i / kDim];
    uint64_t right = 0;
    for (uint64_t node = 0; node < kNodes; node += 20) {
      uint64_t nearest = 0;
      double least = INFINITY;
      for (uint64_t c = 0; c < kClasses; c++) {
        double distance = 0;
        for (uint64_t d = 0; d < kDim; d++) {
          const double difference = rows[node * kDim + d] - centroids[c * kDim + d];
          distance += difference * difference;
        }
        if (distance < least) {
          least = distance;
          nearest = c;
        }
      }
      right += nearest == static_cast<uint64_t>(labels_[node]);
    }
    return static_cast<double>(right) * 20 / kNodes;
  }

  static inline std::vector<int64_t> edges_, labels_;
  static inline std::vector<float> features_;
};

TEST_F(GeneratedGraphTest, NodeIdsAreInRangeAndNoEdgeIsALoop) {
  for (uint64_t e = 0; e < kEdges; e++) {
    ASSERT_TRUE(Source(e) >= 0 && Source(e) < static_cast<int64_t>(kNodes)) << e;
    ASSERT_TRUE(Destination(e) >= 0 && Destination(e) < static_cast<int64_t>(kNodes)) << e;
    ASSERT_NE(Source(e), Destination(e)) << e;
  }
}

TEST_F(GeneratedGraphTest, ClassesHaveEqualSizes) {
  std::vector<uint64_t> sizes(kClasses);
  for (int64_t label : labels_) sizes.at(static_cast<size_t>(label))++;
  EXPECT_THAT(sizes, testing::Each(kNodes / kClasses));
}

TEST_F(GeneratedGraphTest, DegreesFollowTheirPowerLaws) {
  std::vector<uint64_t> in(kNodes), out(kNodes);
  for (uint64_t e = 0; e < kEdges; e++) {
    out[static_cast<size_t>(Source(e))]++;
    in[static_cast<size_t>(Destination(e))]++;
  }
  EXPECT_NEAR(TailSlope(in, 50, 500), 1 - 2.1, 0.15);
  EXPECT_NEAR(TailSlope(out, 30, 150), 1 - 3.1, 0.35);
  EXPECT_LT(std::ranges::count(in, 0u), kNodes / 100) << "nearly every node has a neighbor to learn from";
  EXPECT_GT(*std::ranges::max_element(in), 50 * *std::ranges::min_element(in) + 1000) << "hubs exist";
}

TEST_F(GeneratedGraphTest, EdgesStayInTheirClassWithTheProbabilityOfHomophily) {
  uint64_t same = 0;
  for (uint64_t e = 0; e < kEdges; e++) {
    same += labels_[static_cast<size_t>(Source(e))] == labels_[static_cast<size_t>(Destination(e))];
  }
  EXPECT_NEAR(static_cast<double>(same) / kEdges, 0.7, 0.002);
}

TEST_F(GeneratedGraphTest, NeighborhoodMeansTellTheClassAndSingleRowsDoNot) {
  std::vector<float> means = features_;  // a node's own row counts as one of its neighbors
  std::vector<float> counts(kNodes, 1);
  for (uint64_t e = 0; e < kEdges; e++) {
    const auto source = static_cast<size_t>(Source(e)), destination = static_cast<size_t>(Destination(e));
    counts[destination]++;
    for (uint64_t d = 0; d < kDim; d++) means[destination * kDim + d] += features_[source * kDim + d];
  }
  for (uint64_t i = 0; i < means.size(); i++) means[i] /= counts[i / kDim];
  const double alone = NearestCentroidAccuracy(features_);
  const double averaged = NearestCentroidAccuracy(means);
  RecordProperty("accuracy_alone", std::to_string(alone));
  RecordProperty("accuracy_averaged", std::to_string(averaged));
  EXPECT_GT(alone, 0.2) << "rows carry a hint";
  EXPECT_LT(alone, 0.6);
  EXPECT_GT(averaged, alone + 0.25);
}

TEST_F(GeneratedGraphTest, FeaturesAreGaussianAroundTheirCentroids) {
  double mean = 0, square = 0, fourth = 0;
  for (float x : features_) {
    mean += x;
    square += static_cast<double>(x) * x;
    fourth += std::pow(x, 4);
  }
  const auto count = static_cast<double>(features_.size());
  const double variance = square / count;
  EXPECT_NEAR(mean / count, 0, 0.05);
  EXPECT_NEAR(variance, 1 + 4.0 / kDim, 0.03);  // the noise, and a centroid of norm 2
  EXPECT_NEAR(fourth / count / variance / variance, 3, 0.1);
}

TEST_F(GenerateTest, ExistingFoldersAreRefusedAndKept) {
  fs::create_directory(Path("a"));
  const Status status = Make("a", kSmall);
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("a")));
  EXPECT_TRUE(fs::is_empty(Path("a")));
  EXPECT_THAT(Entries(), testing::ElementsAre("a"));
}

TEST_F(GenerateTest, ATrailingSlashMeansTheSameFolder) {
  ASSERT_OK(Make("a/", kSmall));
  EXPECT_THAT(Entries(), testing::ElementsAre("a"));
}

TEST_F(GenerateTest, ALeftoverOfAKilledRunIsReplaced) {
  fs::create_directories(Path("a.generating/x"));
  ASSERT_OK(Make("a", kSmall));
  EXPECT_THAT(Entries(), testing::ElementsAre("a"));
  EXPECT_FALSE(fs::exists(Path("a/x")));
}

TEST_F(GenerateTest, AFolderThatAnotherProcessGeneratesIsBusyAndLeftAlone) {
  fs::create_directories(Path("a.generating/x"));
  const int other = open(Path("a.generating").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  EXPECT_EQ(Make("a", kSmall).code(), Code::kBusy);
  EXPECT_TRUE(fs::exists(Path("a.generating/x")));
  close(other);
}

TEST_F(GenerateTest, CancellingLeavesNothing) {
  int calls = 0;
  const Status status = Make("a", kSmall, 3, [&](std::string_view, uint64_t done, uint64_t total) {
    EXPECT_LE(done, total + total / 10);
    return ++calls == 2 ? MakeStatus(Code::kCancelled, "enough") : Status::Ok();
  });
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_THAT(Entries(), testing::IsEmpty());
}

TEST_F(GenerateTest, AnyOperationThatFailsIsReportedAndLeavesNothing) {
  FaultBackend faulty(*backend_);
  for (const FaultKind kind : {FaultKind::kCreate, FaultKind::kWrite, FaultKind::kSync, FaultKind::kRename}) {
    for (uint64_t at = 1;; at++) {
      SCOPED_TRACE("operation " + std::to_string(at) + " of kind " + std::to_string(static_cast<int>(kind)));
      faulty.SetPlans({{.kind = kind, .at = at, .error = ENOSPC}});
      const Status status = Generate(faulty, Path("a"), kSmall, 2, {}).status();
      if (faulty.strikes() == 0) {
        EXPECT_GT(at, 1u) << "no operation of this kind";
        ASSERT_OK(status);
        fs::remove_all(Path("a"));
        break;
      }
      EXPECT_EQ(status.code(), Code::kNoSpace) << status.ToString();
      // Only the very last operation, the sync of the parent folder, comes after the folder has its name.
      if (fs::exists(Path("a"))) {
        EXPECT_EQ(kind, FaultKind::kSync);
        EXPECT_EQ(ChecksumOf(Path("a")), 17687211692765537601u);
        fs::remove_all(Path("a"));
      }
      EXPECT_THAT(Entries(), testing::IsEmpty());
    }
  }
}

TEST_F(GenerateTest, OptionsOutOfRangeAreNamed) {
  const auto refused = [&](auto change, const std::string& flag) {
    GenerateOptions options = kSmall;
    change(options);
    const Status status = Make("a", options);
    EXPECT_EQ(status.code(), Code::kUsage) << flag;
    EXPECT_THAT(std::string(status.message()), HasSubstr(flag));
    EXPECT_THAT(Entries(), testing::IsEmpty());
  };
  refused([](GenerateOptions& o) { o.class_count = 1; }, "--classes");
  refused([](GenerateOptions& o) { o.node_count = 9; }, "--nodes");
  refused([](GenerateOptions& o) { o.node_count = uint64_t{1} << 32; }, "--nodes");
  refused([](GenerateOptions& o) { o.degree = 0; }, "--degree");
  refused([](GenerateOptions& o) { o.degree = NAN; }, "--degree");
  refused([](GenerateOptions& o) { o.dim = 0; }, "--dim");
  refused([](GenerateOptions& o) { o.exponent = 1; }, "--exponent");
  refused([](GenerateOptions& o) { o.homophily = 1.5; }, "--homophily");
  refused([](GenerateOptions& o) { o.noise = -1; }, "--noise");
  refused([](GenerateOptions& o) { o.element_type = ElementType::kInt64; }, "--dtype");
  refused([](GenerateOptions& o) { o.train_share = 0.9; }, "shares");
}

const WeatherOptions kWeather = {
    .rows = 9, .columns = 16, .hours = 300, .levels = 2, .noise = 0.7, .diffusion = 0.1, .seed = 3};
constexpr const char* kWeatherFiles[] = {"edges_east.npy", "edges_north.npy",   "edges_south.npy",
                                         "edges_west.npy", "features.npy",      "metadata.yaml",
                                         "test_idx.npy",   "time_features.npy", "train_idx.npy",
                                         "valid_idx.npy",  "place_features.npy"};

// The formula of the header by hand, over the edges that are written: what is left over is the noise, of the deviation that
// is told, and of no value of it does another one tell.
TEST_F(GenerateTest, WeatherIsItsBestForecastAndNoise) {
  const auto made = GenerateWeather(*backend_, Path("sky"), kWeather, 3, {});
  ASSERT_OK(made);
  const std::string sky = Path("sky") + "/";
  constexpr size_t kPlaces = 9 * 16, kDim = 12;
  const auto x = ReadArray<float>(sky + "features.npy", "<f4", "(300, 144, 12)");
  std::vector<std::vector<size_t>> from(kPlaces);  // east, north, south, west
  for (const char* const side : {"east", "north", "south", "west"}) {
    const auto edges = ReadArray<int64_t>(sky + "edges_" + side + ".npy", "<i8", "(2, 144)");
    for (size_t i = 0; i < kPlaces; i++) from[edges[kPlaces + i]].push_back(edges[i]);
  }
  for (size_t p = 0; p < kPlaces; p++) {
    const size_t row = p / 16, column = p % 16;
    EXPECT_EQ(from[p][0], row * 16 + (column + 1) % 16);
    EXPECT_EQ(from[p][1], row == 0 ? (column + 8) % 16 : p - 16);
    EXPECT_EQ(from[p][2], row == 8 ? row * 16 + (column + 8) % 16 : p + 16);
    EXPECT_EQ(from[p][3], row * 16 + (column + 15) % 16);
  }
  double squares = 0, products = 0, before = 0, persistence = 0;
  size_t count = 0;
  for (size_t hour = 6; hour < 300; hour++) {
    for (size_t p = 0; p < kPlaces; p++) {
      const double turns = static_cast<double>(hour % 24) / 24 + static_cast<double>(p % 16) / 16;
      for (size_t c = 0; c < kDim; c++) {
        const auto at = [&](size_t place) { return double{x[((hour - 6) * kPlaces + place) * kDim + c]}; };
        double mean = 0;
        for (const size_t neighbor : from[p]) mean += at(neighbor) / 4;
        const double forecast = 0.9 * (c < 6 ? at(p) : at(from[p][3])) + 0.1 * mean +
                                0.5 * std::sin(2 * std::numbers::pi * turns);
        const double value = x[(hour * kPlaces + p) * kDim + c], left = value - forecast;
        squares += left * left;
        products += left * before;
        before = left;
        persistence += (value - at(p)) * (value - at(p));
        count++;
      }
    }
  }
  const double n = static_cast<double>(count);
  EXPECT_NEAR(made->noise_floor, 0.7, 0.7 * 5e-3);
  EXPECT_NEAR(std::sqrt(squares / n), made->noise_floor, 5 * made->noise_floor / std::sqrt(2 * n));
  EXPECT_NEAR(products / squares, 0, 5 / std::sqrt(n));
  EXPECT_GT(std::sqrt(persistence / n), 2 * made->noise_floor);

  const auto places = ReadArray<float>(sky + "place_features.npy", "<f4", "(144, 4)");
  EXPECT_NEAR(places[4 * 4], 1, 1e-6) << "a quarter of the way around";
  EXPECT_NEAR(places[4 * 16 * 4 + 2], 0, 1e-6) << "the equator";
  EXPECT_NEAR(places[3], std::cos(std::numbers::pi * (0.5 - 1.0 / 18)), 1e-6) << "the northernmost row";
  const auto times = ReadArray<float>(sky + "time_features.npy", "<f4", "(300, 2)");
  EXPECT_EQ(times[2 * 30], 1.0F / 365);
  EXPECT_EQ(times[2 * 30 + 1], 0.25F);
  // Each hour that has one six hours later is in one split, in their order.
  const auto train = ReadArray<int64_t>(sky + "train_idx.npy", "<i8", "(33696,)");
  const auto valid = ReadArray<int64_t>(sky + "valid_idx.npy", "<i8", "(4320,)");
  const auto test = ReadArray<int64_t>(sky + "test_idx.npy", "<i8", "(4320,)");
  EXPECT_EQ(train.front(), 0);
  EXPECT_EQ(valid.front(), train.back() + 1);
  EXPECT_EQ(test.front(), valid.back() + 1);
  EXPECT_EQ(test.back(), static_cast<int64_t>(294 * kPlaces) - 1);
}

TEST_F(GenerateTest, WeatherOfASeedIsTheSameForAnyNumberOfThreads) {
  ASSERT_OK(GenerateWeather(*backend_, Path("one"), kWeather, 1, {}));
  ASSERT_OK(GenerateWeather(*backend_, Path("five"), kWeather, 5, {}));
  for (const char* const name : kWeatherFiles) {
    EXPECT_EQ(testing_util::FileText(fs::path(Path("one")) / name),
              testing_util::FileText(fs::path(Path("five")) / name))
        << name;
  }
  WeatherOptions other = kWeather;
  other.seed = 4;
  ASSERT_OK(GenerateWeather(*backend_, Path("other"), other, 2, {}));
  EXPECT_NE(testing_util::FileText(Path("one") + "/features.npy"),
            testing_util::FileText(Path("other") + "/features.npy"));
}

TEST_F(GenerateTest, WeatherThatCannotBeIsRefused) {
  const auto refused = [&](const WeatherOptions& options) {
    const Status status = GenerateWeather(*backend_, Path("sky"), options, 1, {}).status();
    EXPECT_EQ(status.code(), Code::kUsage);
    EXPECT_TRUE(Entries().empty());
    return std::string(status.message());
  };
  EXPECT_THAT(refused({.columns = 7}), HasSubstr("--weather is 36x7"));
  EXPECT_THAT(refused({.hours = 23}), HasSubstr("--hours is 23"));
  EXPECT_THAT(refused({.rows = 180, .columns = 360, .hours = 100'000}), HasSubstr("at most 66280"));
  EXPECT_THAT(refused({.diffusion = 0}), HasSubstr("--diffusion"));
  EXPECT_THAT(refused({.noise = 0}), HasSubstr("--noise"));
  // No machine holds nine hours of a day of 67 million places with 6,000 columns.
  const WeatherOptions large{.rows = 8192, .columns = 8192, .hours = 24, .levels = 1000};
  EXPECT_THAT(GenerateWeather(*backend_, Path("sky"), large, 3, {}),
              IsStatus(Code::kOutOfBudget, HasSubstr("take 13.2 TiB, and the machine or cgroup allows")));
  EXPECT_TRUE(Entries().empty());
}

}  // namespace
}  // namespace quarry
