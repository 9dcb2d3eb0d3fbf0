// Compiled with -ffp-contract=off (client/CMakeLists.txt), as synthetic_graph.cc.
#include "generator/weather.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <numbers>
#include <utility>

#include "generator/array_writer.h"
#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/thread.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/format/types.h"
#include "quarry/service/work_folder.h"

namespace quarry {
namespace {

constexpr uint64_t kNoiseStream = 1;

// sin(2 pi turns), by basic operations alone; to about 1e-15.
double SinOfTurns(double turns) {
  turns -= std::floor(turns + 0.5);       // [-1/2, 1/2)
  if (turns > 0.25) turns = 0.5 - turns;  // sin(pi - x) = sin(x)
  if (turns < -0.25) turns = -0.5 - turns;
  const double x = 2 * std::numbers::pi * turns;
  double term = x, sum = x;
  for (int k = 1; k <= 11; k++) {
    term *= -x * x / ((2 * k) * (2 * k + 1));
    sum += term;
  }
  return sum;
}
double CosOfTurns(double turns) { return SinOfTurns(turns + 0.25); }

double DeviationOf(const GaussianTable& table) {
  double squares = 0;
  for (const float value : table) squares += double{value} * double{value};
  return std::sqrt(2 * squares / static_cast<double>(table.size()));
}

Status CheckWeather(const WeatherOptions& o) {
  const auto wrong = [](std::string_view name, auto value, std::string_view must) {
    return MakeStatus(Code::kUsage, "{} is {}; it must be {}", name, value, must);
  };
  if (o.rows < 2 || o.columns < 4 || o.rows > 1 << 15 || o.columns > 1 << 16 || o.columns % 2 != 0) {
    return wrong("--weather", fmt::format("{}x{}", o.rows, o.columns),
                 "2 to 32768 latitudes by 4 to 65536 longitudes, an even number");
  }
  if (o.levels < 1 || o.levels > 1000) return wrong("--levels", o.levels, "from 1 to 1000");
  if (o.hours < 4 * WeatherGrid::kLag) return wrong("--hours", o.hours, "at least 24");
  if (o.hours > kNodeCountMax / (o.rows * o.columns)) {
    return wrong("--hours", o.hours,
                 fmt::format("at most {}: an hour of the grid has {} nodes, and a database at most {}",
                             kNodeCountMax / (o.rows * o.columns), o.rows * o.columns, kNodeCountMax));
  }
  if (!(o.noise > 0 && o.noise <= 1000)) return wrong("--noise", o.noise, "above 0 and at most 1000");
  if (!(o.diffusion > 0 && o.diffusion <= 0.5)) {
    return wrong("--diffusion", o.diffusion, "above 0 and at most 0.5");
  }
  if (!(o.diurnal >= 0 && o.diurnal <= 1000)) return wrong("--diurnal", o.diurnal, "from 0 to 1000");
  for (const double share : {o.valid_share, o.test_share}) {
    if (!(share >= 0 && share <= 0.5)) return wrong("a share of hours", share, "from 0% to 50%");
  }
  if (o.valid_share + o.test_share > 0.9) {
    return wrong("the sum of the shares", o.valid_share + o.test_share, "at most 90%");
  }
  return Status::Ok();
}

// Makes hours six at a time, since none of six needs another of them: threads take one each.
class WeatherHours {
 public:
  WeatherHours(const WeatherGrid& grid, uint64_t hours, unsigned threads)
      : grid_(grid), hours_(hours), threads_(threads), values_(grid.places() * grid.dim()) {
    for (std::vector<float>& hour : lag_) hour.resize(values_);
  }

  // What it holds: six hours, and those that threads make of them.
  static uint64_t Bytes(const WeatherGrid& grid, unsigned threads) {
    return (WeatherGrid::kLag + std::min<uint64_t>(threads, WeatherGrid::kLag)) * grid.places() * grid.dim() *
           sizeof(float);
  }

  Result<std::span<const std::byte>> Next() {
    if (next_ % WeatherGrid::kLag == 0) QUARRY_RETURN_IF_ERROR(MakeSix());
    return std::as_bytes(std::span<const float>(lag_[next_++ % WeatherGrid::kLag]));
  }

 private:
  Status MakeSix() {
    std::atomic<uint64_t> taken{0};
    return RunOnThreads("weather", std::min<unsigned>(threads_, WeatherGrid::kLag), [&](unsigned) {
      std::vector<float> made(values_);
      for (uint64_t i = taken++; i < WeatherGrid::kLag && next_ + i < hours_; i = taken++) {
        grid_.Values(next_ + i, lag_[i], made);
        lag_[i].swap(made);
      }
      return Status::Ok();
    });
  }

  const WeatherGrid& grid_;
  const uint64_t hours_;
  const unsigned threads_;
  const size_t values_;  // of an hour
  std::vector<float> lag_[WeatherGrid::kLag];
  uint64_t next_ = 0;
};

Status CheckMemory(uint64_t bytes) {
  if (bytes <= MemoryLimitBytes()) return Status::Ok();
  return MakeStatus(Code::kOutOfBudget,
                    "the hours that weather is made of take {}, and the machine or cgroup allows {}: give a "
                    "smaller --weather, fewer --levels or fewer --threads",
                    FormatBytes(bytes), FormatBytes(MemoryLimitBytes()));
}

Status WriteEdgesOf(ArrayWriter& writer, const WeatherGrid& grid, WeatherGrid::Side side) {
  const uint64_t count = grid.places();
  const auto value = [&](uint64_t i) { return i < count ? grid.Neighbor(side, i) : i - count; };
  return writer.Write(fmt::format("edges_{}.npy", WeatherGrid::kSideNames[side]), ElementType::kInt64,
                      {2, count}, FillBy<int64_t>(value));
}

// Columns of places or of hours, [rows, dim], of which `row_of` makes a row.
template <typename RowOf>
Status WriteColumns(ArrayWriter& writer, const std::string& name, uint64_t rows, uint64_t dim,
                    const RowOf& row_of) {
  std::vector<float> row(dim);
  std::vector<float> all;
  for (uint64_t i = 0; i < rows; i++) {
    row_of(i, std::span(row));
    all.insert(all.end(), row.begin(), row.end());
  }
  return writer.WriteInOrder(name, ElementType::kFloat32, {rows, dim}, [&] {
    return Result<std::span<const std::byte>>(std::as_bytes(std::span(all)));
  });
}

// Where the hours of training end, and those of validation: hours from one bound to the next, less those without one six
// hours later.
struct WeatherSplits {
  uint64_t train_end, valid_end, test_end;
  explicit WeatherSplits(const WeatherOptions& options) {
    const auto share = [&](double of_hours) {
      return static_cast<uint64_t>(of_hours * static_cast<double>(options.hours));
    };
    test_end = options.hours - WeatherGrid::kLag;
    valid_end = test_end - std::min(share(options.test_share), test_end / 2);
    train_end = valid_end - std::min(share(options.valid_share), valid_end - 1);
  }
};

Status WriteHours(ArrayWriter& writer, const std::string& name, uint64_t places, uint64_t begin,
                  uint64_t end) {
  const auto value = [&](uint64_t i) { return begin * places + i; };
  return writer.Write(name, ElementType::kInt64, {(end - begin) * places}, FillBy<int64_t>(value));
}

std::string Describe(const WeatherOptions& o, const WeatherGrid& grid, uint64_t edge_count) {
  return fmt::format(
      "num_nodes: {}\nnum_times: {}\nnum_edges: {}\nfeature_dim: {}\n"
      "generator: quarry generate --weather {}x{}\nlevels: {}\nnoise: {}\nnoise_floor: {}\ndiffusion: {}\n"
      "diurnal: {}\nseed: {}\nvalid_share: {}\ntest_share: {}\n",
      grid.places() * o.hours, o.hours, edge_count, grid.dim(), o.rows, o.columns, o.levels, o.noise,
      grid.noise_floor(), o.diffusion, o.diurnal, o.seed, o.valid_share, o.test_share);
}

}  // namespace

// Two draws of half the variance make a value of the noise.
WeatherGrid::WeatherGrid(const WeatherOptions& options)
    : options_(options),
      noise_seed_(MixSeed(options.seed, kNoiseStream)),
      noise_(MakeGaussianTable(options.noise * std::sqrt(0.5))),
      first_scale_(std::sqrt(0.5 / options.diffusion)),
      floor_(DeviationOf(noise_)),
      forcing_(24 * options.columns) {
  for (size_t i = 0; i < forcing_.size(); i++) {
    const double hour = static_cast<double>(i / options.columns) / 24;
    const double longitude = static_cast<double>(i % options.columns) / static_cast<double>(options.columns);
    forcing_[i] = options.diurnal * SinOfTurns(hour + longitude);
  }
}

uint64_t WeatherGrid::Neighbor(Side side, uint64_t place) const {
  const uint64_t columns = options_.columns, column = place % columns, row = place / columns;
  const uint64_t first = place - column;  // of the row
  const uint64_t beyond_pole = first + (column + columns / 2) % columns;
  switch (side) {
    case kEast:
      return first + (column + 1) % columns;
    case kNorth:
      return row == 0 ? beyond_pole : place - columns;
    case kSouth:
      return row + 1 == options_.rows ? beyond_pole : place + columns;
    default:
      return first + (column + columns - 1) % columns;
  }
}

double WeatherGrid::Noise(uint64_t hour, uint64_t place, uint64_t column) const {
  const uint64_t position = (hour * places() + place) * dim() + column;
  const uint64_t bits = Mix64(noise_seed_ ^ Mix64(position));
  return double{noise_[bits % kGaussianLevels]} + double{noise_[(bits >> kGaussianBits) % kGaussianLevels]};
}

void WeatherGrid::Values(uint64_t hour, std::span<const float> before, std::span<float> out) const {
  const uint64_t width = dim();
  for (uint64_t place = 0; place < places(); place++) {
    const std::span<float> row = out.subspan(place * width, width);
    if (hour < kLag) {
      for (uint64_t c = 0; c < width; c++) {
        row[c] = static_cast<float>(first_scale_ * Noise(hour, place, c));
      }
      continue;
    }
    const float* sides[kSides];
    for (const Side side : {kEast, kNorth, kSouth, kWest}) {
      sides[side] = before.data() + Neighbor(side, place) * width;
    }
    const float* const here = before.data() + place * width;
    const double forcing = Forcing(hour, place);
    for (uint64_t c = 0; c < width; c++) {
      double sum = 0;
      for (const float* const side : sides) sum += double{side[c]};
      const double stays = Moves(c) ? sides[kWest][c] : here[c], mean = sum / static_cast<double>(kSides);
      row[c] = static_cast<float>((1 - options_.diffusion) * stays + options_.diffusion * mean + forcing +
                                  Noise(hour, place, c));
    }
  }
}

void WeatherGrid::PlaceColumns(uint64_t place, std::span<float> out) const {
  const auto share = [](uint64_t part, uint64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  const double longitude = share(place % options_.columns, options_.columns);
  const double latitude = 0.25 - share(2 * (place / options_.columns) + 1, 4 * options_.rows);  // of a turn
  const double values[] = {SinOfTurns(longitude), CosOfTurns(longitude), SinOfTurns(latitude),
                           CosOfTurns(latitude)};
  for (size_t i = 0; i < out.size(); i++) out[i] = static_cast<float>(values[i]);
}

void WeatherGrid::TimeColumns(uint64_t hour, std::span<float> out) const {
  out[0] = static_cast<float>(static_cast<double>(hour / 24 % 365) / 365);
  out[1] = static_cast<float>(static_cast<double>(hour % 24) / 24);
}

Result<WeatherSummary> GenerateWeather(IoBackend& backend, const std::string& path,
                                       const WeatherOptions& options, unsigned threads,
                                       const ProgressFunction& progress) {
  assert(threads >= 1);
  QUARRY_RETURN_IF_ERROR(CheckWeather(options));
  const WeatherGrid grid(options);
  const WeatherSplits splits(options);
  const uint64_t places = grid.places(), dim = grid.dim();
  QUARRY_RETURN_IF_ERROR(CheckMemory(WeatherHours::Bytes(grid, threads)));
  const uint64_t edge_count = WeatherGrid::kSides * places;
  const uint64_t bytes_total =
      places * options.hours * dim * sizeof(float) + splits.test_end * places * sizeof(int64_t) +
      2 * edge_count * sizeof(int64_t) +
      (places * WeatherGrid::kPlaceColumns + options.hours * WeatherGrid::kTimeColumns) * sizeof(float);
  QUARRY_TRY(WorkFolder folder, WorkFolder::Make(backend, path, ".generating", "`quarry generate`"));
  QUARRY_RETURN_IF_ERROR(CheckSpace(folder.path(), bytes_total));
  ArrayWriter writer(backend, folder.path(), bytes_total, progress);
  QUARRY_RETURN_IF_ERROR(writer.AllocateBuffers(threads));
  for (const WeatherGrid::Side side :
       {WeatherGrid::kEast, WeatherGrid::kNorth, WeatherGrid::kSouth, WeatherGrid::kWest}) {
    QUARRY_RETURN_IF_ERROR(WriteEdgesOf(writer, grid, side));
  }
  QUARRY_RETURN_IF_ERROR(
      WriteColumns(writer, "place_features.npy", places, WeatherGrid::kPlaceColumns,
                   [&](uint64_t place, std::span<float> row) { grid.PlaceColumns(place, row); }));
  QUARRY_RETURN_IF_ERROR(
      WriteColumns(writer, "time_features.npy", options.hours, WeatherGrid::kTimeColumns,
                   [&](uint64_t hour, std::span<float> row) { grid.TimeColumns(hour, row); }));
  {
    const ScopedSpan span("generate features");
    WeatherHours hours(grid, options.hours, threads);
    QUARRY_RETURN_IF_ERROR(writer.WriteInOrder("features.npy", ElementType::kFloat32,
                                               {options.hours, places, dim}, [&] { return hours.Next(); }));
  }
  QUARRY_RETURN_IF_ERROR(WriteHours(writer, "train_idx.npy", places, 0, splits.train_end));
  QUARRY_RETURN_IF_ERROR(WriteHours(writer, "valid_idx.npy", places, splits.train_end, splits.valid_end));
  QUARRY_RETURN_IF_ERROR(WriteHours(writer, "test_idx.npy", places, splits.valid_end, splits.test_end));
  QUARRY_RETURN_IF_ERROR(
      WriteText(backend, folder.path() + "/metadata.yaml", Describe(options, grid, edge_count)));
  QUARRY_RETURN_IF_ERROR(folder.Publish());
  return WeatherSummary{.places = places,
                        .hours = options.hours,
                        .dim = dim,
                        .edge_count = edge_count,
                        .noise_floor = grid.noise_floor(),
                        .bytes = writer.bytes_done()};
}

}  // namespace quarry
