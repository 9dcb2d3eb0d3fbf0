#include "top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <vector>

#include "cli.h"
#include "quarry/base/text.h"
#include "quarry/base/units.h"

namespace quarry::cli {
namespace {

constexpr size_t kBarWidth = 10;

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
  // `spare`: columns that may be left out, the first one first.
  Table(std::vector<std::string> heads, std::vector<size_t> spare) : spare_(std::move(spare)) {
    rows_.push_back(std::move(heads));
  }
  void Add(std::vector<std::string> row) {
    for (std::string& cell : row) cell = Printable(cell);  // groups are named by clients
    rows_.push_back(std::move(row));
  }

  void Print(const TopOptions& options, std::vector<std::string>& lines) const {
    if (rows_.size() == 1) return;
    std::vector<size_t> widths(rows_[0].size());
    size_t width = 2 * (widths.size() - 1);
    for (size_t i = 0; i < widths.size(); ++i) {
      for (const auto& row : rows_) widths[i] = std::max(widths[i], row[i].size());
      width += widths[i];
    }
    std::vector<bool> shown(widths.size(), true);
    for (size_t next = 0; width > options.columns_max && next < spare_.size(); ++next) {
      shown[spare_[next]] = false;
      width -= widths[spare_[next]] + 2;
    }
    lines.emplace_back();
    for (const auto& row : rows_) {
      std::string line = fmt::format("{:<{}}", row[0], widths[0]);
      for (size_t i = 1; i < row.size(); ++i) {
        if (shown[i]) line += fmt::format("  {:>{}}", row[i], widths[i]);
      }
      const bool head = &row == &rows_[0];
      lines.push_back(options.color && head ? "\033[1m" + line + "\033[0m" : line);
    }
  }

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> spare_;
};

using Session = wire::SessionStatus;
using Stream = wire::StreamStatus;

template <typename Record>
double Sum(const std::vector<Record>& records, auto Record::*field) {
  double sum = 0;
  for (const Record& record : records) sum += static_cast<double>(record.*field);
  return sum;
}

// The figures of a server by name.
using CounterValues = std::map<std::string, double, std::less<>>;

CounterValues ValuesByName(const wire::ServerStatus& status) {
  CounterValues figures;
  for (const wire::Counter& counter : status.counters) figures[counter.name] = counter.value;
  return figures;
}

// Differences to the moment before.
class Rates {
 public:
  Rates(const TopState& now, const TopState* before) {
    if (before == nullptr || now.seconds <= before->seconds) return;
    seconds_ = now.seconds - before->seconds;
    figures_ = ValuesByName(before->status);
    for (const Session& session : before->status.sessions) sessions_[session.id] = session;
    for (const Stream& stream : before->status.streams) streams_[stream.id] = stream;
  }

  double Of(const Session& session, uint64_t Session::*field) const { return Of(sessions_, session, field); }
  double Of(const Stream& stream, uint64_t Stream::*field) const { return Of(streams_, stream, field); }
  double Sum(const std::vector<Stream>& streams, uint64_t Stream::*field) const {
    double sum = 0;
    for (const Stream& stream : streams) sum += Of(stream, field);
    return sum;
  }
  double OfFigure(const std::string& name, double now) const {
    const auto then = figures_.find(name);
    return then == figures_.end() ? 0 : PerSecond(now, then->second);
  }
  std::string Text(const std::string& rate) const { return seconds_ > 0 ? rate : "-"; }

 private:
  template <typename Record>
  double Of(const std::map<uint64_t, Record>& before, const Record& now, uint64_t Record::*field) const {
    const auto then = before.find(now.id);
    if (then == before.end()) return 0;
    return PerSecond(static_cast<double>(now.*field), static_cast<double>(then->second.*field));
  }
  double PerSecond(double now, double then) const { return std::max(0.0, now - then) / seconds_; }

  double seconds_ = 0;  // between the two; 0: there is none before
  CounterValues figures_;
  std::map<uint64_t, Session> sessions_;
  std::map<uint64_t, Stream> streams_;
};

// What has NAME_p50, NAME_p99 and NAME_count.
struct Latency {
  std::string name;
  double p50 = 0, p99 = 0, count = 0;
};
std::vector<Latency> LatenciesOf(const CounterValues& figures) {
  std::vector<Latency> latencies;
  for (const auto& [figure, p99] : figures) {
    if (!figure.ends_with("_p99")) continue;
    const std::string name = figure.substr(0, figure.size() - 4);
    const auto p50 = figures.find(name + "_p50"), count = figures.find(name + "_count");
    if (p50 == figures.end() || count == figures.end()) continue;
    latencies.push_back({.name = name, .p50 = p50->second, .p99 = p99, .count = count->second});
  }
  return latencies;
}

std::vector<std::string> Summary(const wire::ServerStatus& now, const CounterValues& figures,
                                 const Rates& rates) {
  double requests = 0, queued = 0;
  for (const Latency& latency : LatenciesOf(figures)) {
    requests += rates.OfFigure(latency.name + "_count", latency.count);
  }
  for (const auto& [name, value] : figures) queued += name.find("_queued_") != std::string::npos ? value : 0;
  std::vector<std::string> lines = {
      fmt::format(
          "{}, {}   {} of {}   {} requests unanswered, {} queued", Counted(now.sessions.size(), "session"),
          Counted(now.streams.size(), "stream"), Bytes(Sum(now.sessions, &Session::used_bytes)),
          Bytes(Sum(now.sessions, &Session::budget_bytes)), Sum(now.sessions, &Session::outstanding), queued),
      fmt::format("{} requests/s  {} batches/s  {}/s delivered  {}/s read  hits {}",
                  rates.Text(FormatCount(requests)),
                  rates.Text(FormatCount(rates.Sum(now.streams, &Stream::batches))),
                  rates.Text(Bytes(rates.Sum(now.streams, &Stream::bytes))),
                  rates.Text(Bytes(rates.Sum(now.streams, &Stream::read_bytes))),
                  Percent(Sum(now.streams, &Stream::cache_hits), Sum(now.streams, &Stream::cache_lookups)))};
  if (now.sessions_left_out + now.streams_left_out > 0) {
    lines.push_back(fmt::format("{} and {} more, for which an answer has no room",
                                Counted(now.sessions_left_out, "session"),
                                Counted(now.streams_left_out, "stream")));
  }
  return lines;
}

Table StreamTable(const std::vector<Stream>& streams, const Rates& rates) {
  Table table({"STREAM", "SESSION", "ROAD", "GROUP", "BATCHES", "PER S", "BYTES/S", "READ/S", "HELD", "",
               "WANTED", "HITS"},
              {9, 10, 3, 4, 8});
  for (const Stream& stream : streams) {
    table.Add({fmt::format("{}", stream.id), fmt::format("{}", stream.session), stream.road,
               stream.group.empty() ? "-" : stream.group, FormatCount(static_cast<double>(stream.batches)),
               rates.Text(FormatCount(rates.Of(stream, &Stream::batches))),
               rates.Text(Bytes(rates.Of(stream, &Stream::bytes))),
               rates.Text(Bytes(rates.Of(stream, &Stream::read_bytes))),
               fmt::format("{}/{}", stream.held, stream.slots), Bar(stream.held, stream.slots),
               fmt::format("{}", stream.waiting),
               Percent(static_cast<double>(stream.cache_hits), static_cast<double>(stream.cache_lookups))});
  }
  return table;
}

Table SessionTable(const std::vector<Session>& sessions, const Rates& rates) {
  Table table({"SESSION", "PID", "UID", "AGE", "MEMORY", "OF", "", "UNANSWERED", "LEASES", "REQUESTS/S",
               "SENT/S", "SHARED/S"},
              {6, 2, 8, 5, 10, 11});
  for (const Session& session : sessions) {
    const auto used = static_cast<double>(session.used_bytes);
    const auto budget = static_cast<double>(session.budget_bytes);
    table.Add({fmt::format("{}", session.id), fmt::format("{}", session.pid), fmt::format("{}", session.uid),
               Seconds(session.seconds), Bytes(used), Bytes(budget), Bar(used, budget),
               fmt::format("{}", session.outstanding), fmt::format("{}", session.leases),
               rates.Text(FormatCount(rates.Of(session, &Session::requests))),
               rates.Text(Bytes(rates.Of(session, &Session::bytes_sent))),
               rates.Text(Bytes(rates.Of(session, &Session::shared_bytes)))});
  }
  return table;
}

Table LatencyTable(const CounterValues& figures, const Rates& rates) {
  Table table({"LATENCY OF", "SO FAR", "PER S", "P50", "P99"}, {});
  for (const Latency& latency : LatenciesOf(figures)) {
    if (latency.count == 0) continue;
    std::string_view name = latency.name;
    for (const std::string_view prefix : {"quarry_", "request_seconds_"}) {
      if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    }
    std::string words(name);
    std::ranges::replace(words, '_', ' ');
    table.Add({words, FormatCount(latency.count),
               rates.Text(FormatCount(rates.OfFigure(latency.name + "_count", latency.count))),
               Seconds(latency.p50), Seconds(latency.p99)});
  }
  return table;
}

}  // namespace

std::string TopText(const TopState& now, const TopState* before, const TopOptions& options) {
  const Rates rates(now, before);
  const CounterValues figures = ValuesByName(now.status);
  std::vector<std::string> lines = Summary(now.status, figures, rates);
  StreamTable(now.status.streams, rates).Print(options, lines);
  SessionTable(now.status.sessions, rates).Print(options, lines);
  LatencyTable(figures, rates).Print(options, lines);
  lines.resize(std::min(lines.size(), options.rows_max));
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace quarry::cli
