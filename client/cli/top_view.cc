#include "top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "quarry/base/text.h"
#include "quarry/base/units.h"

namespace quarry::cli {
namespace {

constexpr std::string_view kRoad = "road_", kGroup = "group_";
constexpr size_t kBarWidth = 10;

// "session_7_pid" of "session_": 7, and "pid".
std::optional<std::pair<uint64_t, std::string_view>> CutItem(std::string_view name, std::string_view kind) {
  if (!name.starts_with(kind)) return std::nullopt;
  name.remove_prefix(kind.size());
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
  const auto digits = static_cast<size_t>(end - name.data());
  if (error != std::errc() || digits == name.size() || name[digits] != '_') return std::nullopt;
  return std::pair(id, name.substr(digits + 1));
}

std::string Bytes(double bytes) { return FormatBytes(static_cast<uint64_t>(std::max(0.0, bytes))); }

std::string Seconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  return seconds < 120 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.0f} min", seconds / 60);
}

std::string Percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f}%", 100 * part / whole) : "-";
}

std::string Bar(double part, double whole) {
  const double share = whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0;
  const auto filled = static_cast<size_t>(std::lround(share * kBarWidth));
  return fmt::format("[{:=<{}}{:<{}}]", "", filled, "", kBarWidth - filled);
}

// Columns as wide as what is in them; the first one flush left, numbers flush right.
class Table {
 public:
  explicit Table(std::vector<std::string> heads) { rows_.push_back(std::move(heads)); }
  void Add(std::vector<std::string> row) {
    for (std::string& cell : row) cell = Printable(cell);  // groups are named by clients
    rows_.push_back(std::move(row));
  }

  void Print(bool color, std::vector<std::string>& lines) const {
    if (rows_.size() == 1) return;
    std::vector<size_t> widths(rows_[0].size());
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    lines.emplace_back();
    for (const auto& row : rows_) {
      std::string line = fmt::format("{:<{}}", row[0], widths[0]);
      for (size_t i = 1; i < row.size(); ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
      const bool head = &row == &rows_[0];
      lines.push_back(color && head ? "\033[1m" + line + "\033[0m" : line);
    }
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Differences to the moment before.
class Rates {
 public:
  Rates(const TopState& now, const TopState* before) : now_(now), before_(before) {}

  bool there() const { return before_ != nullptr && now_.seconds > before_->seconds; }
  double Of(const std::map<uint64_t, TopItem> TopState::*list, uint64_t id, std::string_view field) const {
    if (!there()) return 0;
    const auto then = (before_->*list).find(id);
    if (then == (before_->*list).end()) return 0;
    return PerSecond((now_.*list).at(id).Of(field) - then->second.Of(field));
  }
  double Sum(const std::map<uint64_t, TopItem> TopState::*list, std::string_view field) const {
    double sum = 0;
    for (const auto& [id, item] : now_.*list) sum += Of(list, id, field);
    return sum;
  }
  double OfCounter(const std::string& name) const {
    if (!there() || !before_->counters.contains(name)) return 0;
    return PerSecond(now_.counters.at(name) - before_->counters.at(name));
  }
  std::string Text(const std::string& rate) const { return there() ? rate : "-"; }

 private:
  double PerSecond(double difference) const {
    return std::max(0.0, difference) / (now_.seconds - before_->seconds);
  }
  const TopState& now_;
  const TopState* const before_;
};

// What has NAME_p50, NAME_p99 and NAME_count.
std::vector<std::string> Latencies(const TopState& state) {
  std::vector<std::string> names;
  for (const auto& [counter, value] : state.counters) {
    if (!counter.ends_with("_p99")) continue;
    const std::string name = counter.substr(0, counter.size() - 4);
    if (state.counters.contains(name + "_p50") && state.counters.contains(name + "_count"))
      names.push_back(name);
  }
  return names;
}

double Sum(const std::map<uint64_t, TopItem>& items, std::string_view field) {
  double sum = 0;
  for (const auto& [id, item] : items) sum += item.Of(field);
  return sum;
}

// What waits for a thread, of all kinds.
double Queued(const TopState& state) {
  double sum = 0;
  for (const auto& [name, value] : state.counters)
    sum += name.find("_queued_") != std::string::npos ? value : 0;
  return sum;
}

double CounterOr0(const TopState& state, const std::string& name) {
  const auto found = state.counters.find(name);
  return found == state.counters.end() ? 0 : found->second;
}

std::vector<std::string> Summary(const TopState& now, const Rates& rates) {
  double requests = 0;
  for (const std::string& name : Latencies(now)) requests += rates.OfCounter(name + "_count");
  const double lookups = Sum(now.streams, "cache_lookups");
  std::vector<std::string> lines = {
      fmt::format("{} sessions, {} streams   {} of {}   {} requests unanswered, {} queued",
                  now.sessions.size(), now.streams.size(), Bytes(Sum(now.sessions, "used_bytes")),
                  Bytes(Sum(now.sessions, "budget_bytes")), Sum(now.sessions, "outstanding"), Queued(now)),
      fmt::format("{} requests/s   {} batches/s   {}/s delivered   {}/s read   {} of rows in memory",
                  rates.Text(FormatCount(requests)),
                  rates.Text(FormatCount(rates.Sum(&TopState::streams, "batches"))),
                  rates.Text(Bytes(rates.Sum(&TopState::streams, "bytes"))),
                  rates.Text(Bytes(rates.Sum(&TopState::streams, "read_bytes"))),
                  Percent(Sum(now.streams, "cache_hits"), lookups))};
  const double sessions = CounterOr0(now, "quarry_status_sessions_left_out");
  const double streams = CounterOr0(now, "quarry_status_streams_left_out");
  if (sessions + streams > 0) {
    lines.push_back(
        fmt::format("{} sessions and {} streams more, for which an answer has no room", sessions, streams));
  }
  return lines;
}

Table StreamTable(const TopState& now, const Rates& rates) {
  Table table({"STREAM", "SESSION", "ROAD", "GROUP", "BATCHES", "PER S", "BYTES/S", "READ/S", "HELD", "",
               "WANTED", "HITS"});
  for (const auto& [id, stream] : now.streams) {
    const auto rate = [&, id = id](std::string_view field) {
      return rates.Of(&TopState::streams, id, field);
    };
    table.Add({fmt::format("{}", id), fmt::format("{}", stream.Of("session")), stream.road,
               stream.group.empty() ? "-" : stream.group, FormatCount(stream.Of("batches")),
               rates.Text(FormatCount(rate("batches"))), rates.Text(Bytes(rate("bytes"))),
               rates.Text(Bytes(rate("read_bytes"))),
               fmt::format("{}/{}", stream.Of("held"), stream.Of("slots")),
               Bar(stream.Of("held"), stream.Of("slots")), fmt::format("{}", stream.Of("waiting")),
               Percent(stream.Of("cache_hits"), stream.Of("cache_lookups"))});
  }
  return table;
}

Table SessionTable(const TopState& now, const Rates& rates) {
  Table table({"SESSION", "PID", "UID", "AGE", "MEMORY", "OF", "", "UNANSWERED", "LEASES", "REQUESTS/S",
               "SENT/S", "SHARED/S"});
  for (const auto& [id, session] : now.sessions) {
    const auto rate = [&, id = id](std::string_view field) {
      return rates.Of(&TopState::sessions, id, field);
    };
    table.Add({fmt::format("{}", id), fmt::format("{}", session.Of("pid")),
               fmt::format("{}", session.Of("uid")), Seconds(session.Of("seconds")),
               Bytes(session.Of("used_bytes")), Bytes(session.Of("budget_bytes")),
               Bar(session.Of("used_bytes"), session.Of("budget_bytes")),
               fmt::format("{}", session.Of("outstanding")), fmt::format("{}", session.Of("leases")),
               rates.Text(FormatCount(rate("requests"))), rates.Text(Bytes(rate("bytes_sent"))),
               rates.Text(Bytes(rate("shared_bytes")))});
  }
  return table;
}

Table LatencyTable(const TopState& now, const Rates& rates) {
  Table table({"LATENCY OF", "SO FAR", "PER S", "P50", "P99"});
  for (const std::string& name : Latencies(now)) {
    const double count = now.counters.at(name + "_count");
    if (count == 0) continue;
    table.Add({name, FormatCount(count), rates.Text(FormatCount(rates.OfCounter(name + "_count"))),
               Seconds(now.counters.at(name + "_p50")), Seconds(now.counters.at(name + "_p99"))});
  }
  return table;
}

nlohmann::ordered_json ItemsJson(const std::map<uint64_t, TopItem>& items) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const auto& [id, item] : items) {
    nlohmann::ordered_json json = {{"id", id}};
    if (!item.road.empty()) json["road"] = item.road;
    if (!item.group.empty()) json["group"] = item.group;
    for (const auto& [field, value] : item.fields) json[field] = value;
    all.push_back(std::move(json));
  }
  return all;
}

}  // namespace

double TopItem::Of(std::string_view field) const {
  const auto found = fields.find(field);
  return found == fields.end() ? 0 : found->second;
}

TopState TopState::FromCounters(const std::vector<wire::Counter>& counters, double seconds) {
  TopState state;
  state.seconds = seconds;
  for (const wire::Counter& counter : counters) {
    if (const auto session = CutItem(counter.name, "session_")) {
      state.sessions[session->first].fields.emplace(session->second, counter.value);
    } else if (const auto stream = CutItem(counter.name, "stream_")) {
      TopItem& item = state.streams[stream->first];
      const std::string_view field = stream->second;
      if (field.starts_with(kRoad)) {
        item.road = field.substr(kRoad.size());
      } else if (field.starts_with(kGroup)) {
        item.group = field.substr(kGroup.size());
      } else {
        item.fields.emplace(field, counter.value);
      }
    } else {
      state.counters[counter.name] = counter.value;
    }
  }
  return state;
}

std::string TopText(const TopState& now, const TopState* before, const TopOptions& options) {
  const Rates rates(now, before);
  std::vector<std::string> lines = Summary(now, rates);
  StreamTable(now, rates).Print(options.color, lines);
  SessionTable(now, rates).Print(options.color, lines);
  LatencyTable(now, rates).Print(options.color, lines);
  lines.resize(std::min(lines.size(), options.rows_max));
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

nlohmann::ordered_json TopJson(const TopState& state) {
  return {{"counters", state.counters},
          {"sessions", ItemsJson(state.sessions)},
          {"streams", ItemsJson(state.streams)}};
}

}  // namespace quarry::cli
