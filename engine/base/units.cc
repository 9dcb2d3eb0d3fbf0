#include "quarry/base/units.h"

#include <cctype>
#include <charconv>
#include <cmath>

namespace quarry {
namespace {

struct Unit {
  std::string_view suffix;
  double scale;
};

constexpr Unit kByteUnits[] = {
    {"", 1},      {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
    {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
};
constexpr Unit kCountUnits[] = {{"", 1}, {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"B", 1e9}};

// Splits "1.5GiB" into 1.5 and "GiB"; false when there is no number, or one that is negative or not finite.
bool SplitNumber(std::string_view text, double* number, std::string_view* suffix) {
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, *number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(*number) || *number < 0 || text.front() == '-') return false;
  *suffix = std::string_view(rest, static_cast<size_t>(end - rest));
  while (!suffix->empty() && suffix->front() == ' ') suffix->remove_prefix(1);
  return true;
}

bool SameIgnoringCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++) {
    if (std::tolower(static_cast<unsigned char>(a[i])) != std::tolower(static_cast<unsigned char>(b[i])))
      return false;
  }
  return true;
}

Result<uint64_t> Scale(std::string_view text, double value) {
  if (!(value < 0x1p63)) return MakeStatus(Code::kUsage, "size '{}' is larger than 2^63", text);
  return static_cast<uint64_t>(std::llround(value));
}

}  // namespace

Result<uint64_t> ParseBytes(std::string_view text, uint64_t whole_bytes) {
  double number = 0;
  std::string_view suffix;
  if (!text.empty() && SplitNumber(text, &number, &suffix)) {
    if (suffix == "%") return Scale(text, number / 100 * static_cast<double>(whole_bytes));
    for (const Unit& unit : kByteUnits) {
      if (SameIgnoringCase(suffix, unit.suffix)) return Scale(text, number * unit.scale);
    }
  }
  return MakeStatus(Code::kUsage, "'{}' is not a size; write 512MiB, 2GB, 1.5GiB or 10%", text);
}

Result<uint64_t> ParseCount(std::string_view text) {
  double number = 0;
  std::string_view suffix;
  if (!text.empty() && SplitNumber(text, &number, &suffix)) {
    for (const Unit& unit : kCountUnits) {
      if (suffix == unit.suffix) return Scale(text, number * unit.scale);
    }
  }
  return MakeStatus(Code::kUsage, "'{}' is not a count; write 1000, 50k or 1.5M", text);
}

std::string FormatBytes(uint64_t bytes) {
  constexpr std::string_view kSuffixes[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t step = 0;
  while (value >= 1024 && step + 1 < std::size(kSuffixes)) {
    value /= 1024;
    step++;
  }
  if (step == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, kSuffixes[step]);
}

std::string FormatCount(double count) {
  constexpr std::string_view kSuffixes[] = {"", " k", " M", " G", " T"};
  size_t step = 0;
  while (std::abs(count) >= 1000 && step + 1 < std::size(kSuffixes)) {
    count /= 1000;
    step++;
  }
  if (step == 0) return fmt::format("{:g}", std::round(count * 100) / 100);
  return fmt::format("{:.{}f}{}", count, count < 10 ? 2 : count < 100 ? 1 : 0, kSuffixes[step]);
}

}  // namespace quarry
