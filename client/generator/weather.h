// A generated record of weather to try regression on (Waleffe §2.4): a grid of latitudes and longitudes, hour after hour, of
// which the best forecast is known, and how far it is off.
//
//   places     rows x columns cells of the grid; a place's edges come from its neighbors to the east, the north, the south
//              and the west, a relation each. Longitudes wrap around, and beyond a pole lies the opposite longitude, so that
//              each place has four
//   columns    variables x levels: six variables (temperature, geopotential, humidity, and the eastward, the northward and
//              the vertical wind) at each of the levels
//   x(t + 6) = (1 - diffusion) y + diffusion mean(x of the neighbors) + diurnal sin(2 pi (hour / 24 + longitude / 360)) + e
//              at hour t + 6, all else at t. y is x itself or, of the winds, x of the western neighbor: what stays of them
//              moves one cell to the east. e is Gaussian noise, another for each value
//
// So no forecast of x(t + 6) from x(t) has an RMSE below the deviation of e, and the formula above has it. The first six hours
// are noise alone, of the deviation at which neighbors differ as they do later on, so that there is no beginning to wait for.
//
// Every value is a function of (options, position), computed by integers and IEEE basic operations only, as all that is
// generated.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/distribution.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/io/backend.h"

namespace quarry {

struct WeatherOptions {
  uint64_t rows = 36;     // latitudes, from the north
  uint64_t columns = 72;  // longitudes, to the east
  uint64_t hours = 2000;
  uint64_t levels = 13;                        // of pressure
  double noise = 1;                            // deviation of e
  double diffusion = 0.05;                     // share of a value that its neighbors replace in six hours
  double diurnal = 0.5;                        // amplitude of the forcing
  double valid_share = 0.1, test_share = 0.1;  // of the hours, behind those to train on
  uint64_t seed = 1;
};

class WeatherGrid {
 public:
  static constexpr uint64_t kVariables = 6;
  static constexpr uint64_t kWinds = 3;  // the first of the variables that move
  static constexpr uint64_t kLag = 6;    // hours
  static constexpr uint64_t kPlaceColumns = 4, kTimeColumns = 2;
  // The sides of a place, in the order of their names, which those of the relations are.
  enum Side : uint8_t { kEast, kNorth, kSouth, kWest, kSides };
  static constexpr std::string_view kSideNames[kSides] = {"east", "north", "south", "west"};

  // REQUIRES: options that GenerateWeather has checked.
  explicit WeatherGrid(const WeatherOptions& options);

  uint64_t places() const { return options_.rows * options_.columns; }
  uint64_t dim() const { return kVariables * options_.levels; }
  bool Moves(uint64_t column) const { return column / options_.levels >= kWinds; }
  // The deviation of the noise as it is drawn, from finitely many levels: what the best forecast is off.
  double noise_floor() const { return floor_; }

  uint64_t Neighbor(Side side, uint64_t place) const;

  double Forcing(uint64_t hour, uint64_t place) const {
    return forcing_[hour % 24 * options_.columns + place % options_.columns];
  }
  double Noise(uint64_t hour, uint64_t place, uint64_t column) const;
  // The values of an hour ([places, dim]); `before`: those of six hours before, which the first six hours have not.
  void Values(uint64_t hour, std::span<const float> before, std::span<float> out) const;

  // sin and cos of the longitude, and of the latitude of the middle of the cell.
  void PlaceColumns(uint64_t place, std::span<float> out) const;
  // The day of the year and the hour of the day, as shares of a year of 365 days and of a day.
  void TimeColumns(uint64_t hour, std::span<float> out) const;

 private:
  const WeatherOptions options_;
  const uint64_t noise_seed_;
  const GaussianTable noise_;  // half of it, by variance: two draws make one
  const double first_scale_;   // of the noise that the first hours are
  double floor_ = 0;
  std::vector<double> forcing_;  // [24 x columns]
};

struct WeatherSummary {
  uint64_t places = 0, hours = 0, dim = 0, edge_count = 0;
  double noise_floor = 0;  // the least RMSE of a forecast over the lag
  uint64_t bytes = 0;      // written
};

// Writes the folder `path` that `quarry import` takes as it is: features.npy [hours, places, dim], place_features.npy,
// time_features.npy, a file of edges for each side, train_idx.npy, valid_idx.npy and test_idx.npy, whose hours have one six
// hours later, and metadata.yaml. Built, published and refused as Generate does. Holds six hours of the grid, and
// one more for each of up to six threads; kOutOfBudget where there is not as much memory.
Result<WeatherSummary> GenerateWeather(IoBackend& backend, const std::string& path,
                                       const WeatherOptions& options, unsigned threads,
                                       const ProgressFunction& progress);

}  // namespace quarry
