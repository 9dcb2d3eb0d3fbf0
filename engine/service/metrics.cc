#include "quarry/service/metrics.h"

#include <algorithm>
#include <cassert>
#include <cctype>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>
#include <variant>

#include "quarry/base/mutex.h"
#include "quarry/format/wire.h"

namespace quarry {
namespace {

constexpr double kBucketsPerOctave = 4;
constexpr size_t kShownEvery = 4;  // one in so many buckets is shown to Prometheus
constexpr std::string_view kKinds[] = {"counter", "histogram", "gauge"};

uint64_t Total(const Histogram::Counts& counts) {
  uint64_t total = 0;
  for (const uint64_t count : counts) total += count;
  return total;
}

bool IsMetricName(std::string_view name) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == ':'; };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::ranges::all_of(name, allowed);
}

// How Prometheus writes infinities and NaN.
std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// {kind="x"} and le="1" to {kind="x",le="1"}.
std::string WithLabel(const std::string& labels, const std::string& label) {
  if (labels.empty()) return "{" + label + "}";
  return labels.substr(0, labels.size() - 1) + "," + label + "}";
}

// name{kind="a b",table="c"} as the wire takes names: name_a_b_c.
std::string WireName(const std::string& name, const std::string& labels, std::string_view end = "") {
  std::string wire = name;
  bool quoted = false;
  for (const char c : labels) {
    if (c == '"') {
      if (!quoted) wire += '_';
      quoted = !quoted;
    } else if (quoted) {
      wire += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' ? c : '_';
    }
  }
  return wire.substr(0, wire::kNameBytesMax - end.size()).append(end);
}

void AppendHistogram(const std::string& name, const std::string& labels, const Histogram& histogram,
                     std::string& text) {
  const Histogram::Counts counts = histogram.counts();
  uint64_t below = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    below += counts[i];
    if ((i + 1) % kShownEvery != 0 || i + 1 == counts.size()) continue;  // the last one has no bound
    text += fmt::format("{}_bucket{} {}\n", name,
                        WithLabel(labels, fmt::format("le=\"{}\"", Histogram::UpperBound(i))), below);
  }
  text += fmt::format("{}_bucket{} {}\n", name, WithLabel(labels, "le=\"+Inf\""), below);
  text += fmt::format("{}_sum{} {}\n", name, labels, NumberText(histogram.sum()));
  text += fmt::format("{}_count{} {}\n", name, labels, below);
}

}  // namespace

void Histogram::Add(double seconds) {
  const double place = std::log2(std::max(seconds * 1e6, 1.0)) * kBucketsPerOctave;
  const size_t bucket = std::min(kBuckets - 1, static_cast<size_t>(place));
  buckets_[bucket].fetch_add(1, std::memory_order_relaxed);
  nanoseconds_.fetch_add(static_cast<uint64_t>(std::max(seconds, 0.0) * 1e9), std::memory_order_relaxed);
}

Histogram::Counts Histogram::counts() const {
  Counts counts;
  for (size_t i = 0; i < kBuckets; ++i) counts[i] = buckets_[i].load(std::memory_order_relaxed);
  return counts;
}

uint64_t Histogram::count() const { return Total(counts()); }

double Histogram::sum() const {
  return static_cast<double>(nanoseconds_.load(std::memory_order_relaxed)) / 1e9;
}

double Histogram::UpperBound(size_t bucket) {
  return std::exp2(static_cast<double>(bucket + 1) / kBucketsPerOctave) / 1e6;
}

double Histogram::Quantile(double q) const {
  const Counts counts = this->counts();
  const uint64_t total = Total(counts);
  if (total == 0) return 0;
  const auto rank = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(q * static_cast<double>(total))));
  size_t bucket = 0;
  for (uint64_t below = counts[0]; below < rank && bucket + 1 < kBuckets;) below += counts[++bucket];
  // The middle of the bucket, by factors: 9 % from either end.
  return UpperBound(bucket) / std::exp2(0.5 / kBucketsPerOctave);
}

struct Metrics::Registry {
  using Value = std::variant<std::unique_ptr<Counter>, std::unique_ptr<Histogram>, std::function<double()>>;
  struct Family {
    std::string help;
    size_t kind = 0;                      // alternative of Value
    std::map<std::string, Value> values;  // by labels
  };
  // One of them, to be looked at without the lock: none is ever removed or replaced.
  struct Entry {
    const std::string* name;
    const Family* family;
    const std::string* labels;
    const Value* value;
  };

  template <size_t kKind>
  auto& Add(const std::string& name, const std::string& labels, const std::string& help,
            const std::function<Value()>& make) {
    assert(IsMetricName(name));
    MutexLock lock(mutex);
    const auto [family, is_new] = families.try_emplace(name);
    if (is_new) family->second = {.help = help, .kind = kKind};
    assert(family->second.kind == kKind);
    auto& values = family->second.values;
    auto value = values.find(labels);
    if (value == values.end()) value = values.emplace(labels, make()).first;
    return std::get<kKind>(value->second);
  }

  std::vector<Entry> Entries() {
    MutexLock lock(mutex);
    std::vector<Entry> entries;
    for (const auto& [name, family] : families) {
      for (const auto& [labels, value] : family.values) entries.push_back({&name, &family, &labels, &value});
    }
    return entries;
  }

  Mutex mutex;
  std::map<std::string, Family> families QUARRY_GUARDED_BY(mutex);
};

Metrics::Metrics() : registry_(std::make_unique<Registry>()) {}
Metrics::~Metrics() = default;

Counter& Metrics::AddCounter(const std::string& name, const std::string& labels, const std::string& help) {
  return *registry_->Add<0>(name, labels, help, [] { return std::make_unique<Counter>(); });
}

Histogram& Metrics::AddHistogram(const std::string& name, const std::string& labels,
                                 const std::string& help) {
  return *registry_->Add<1>(name, labels, help, [] { return std::make_unique<Histogram>(); });
}

void Metrics::AddGauge(const std::string& name, const std::string& labels, const std::string& help,
                       std::function<double()> value) {
  [[maybe_unused]] bool is_new = false;
  registry_->Add<2>(name, labels, help, [&] {
    is_new = true;
    return std::move(value);
  });
  assert(is_new && "there is a gauge of this name and labels");
}

std::string Metrics::Prometheus() const {
  std::string text;
  const Registry::Family* family = nullptr;
  for (const Registry::Entry& entry : registry_->Entries()) {
    const std::string& name = *entry.name;
    if (std::exchange(family, entry.family) != entry.family) {
      text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, family->help, name, kKinds[family->kind]);
    }
    if (const auto* counter = std::get_if<0>(entry.value)) {
      text += fmt::format("{}{} {}\n", name, *entry.labels, (*counter)->value());
    } else if (const auto* histogram = std::get_if<1>(entry.value)) {
      AppendHistogram(name, *entry.labels, **histogram, text);
    } else {
      text += fmt::format("{}{} {}\n", name, *entry.labels, NumberText(std::get<2>(*entry.value)()));
    }
  }
  return text;
}

std::vector<wire::Counter> Metrics::Counters() const {
  std::vector<wire::Counter> counters;
  for (const Registry::Entry& entry : registry_->Entries()) {
    const auto add = [&](std::string_view end, double value) {
      if (std::isfinite(value)) counters.push_back({WireName(*entry.name, *entry.labels, end), value});
    };
    if (const auto* counter = std::get_if<0>(entry.value)) {
      add("", static_cast<double>((*counter)->value()));
    } else if (const auto* histogram = std::get_if<1>(entry.value)) {
      add("_p50", (*histogram)->Quantile(0.5));
      add("_p99", (*histogram)->Quantile(0.99));
      add("_count", static_cast<double>((*histogram)->count()));
    } else {
      add("", std::get<2>(*entry.value)());
    }
  }
  return counters;
}

}  // namespace quarry
