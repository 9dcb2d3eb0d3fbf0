// Sessions and streams as numbers with names (StatusCounters), and as JSON.
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "metrics_http.h"
#include "quarry/base/json.h"
#include "quarry/format/wire.h"

namespace quarry {
namespace {

using Fields = std::vector<std::pair<std::string_view, double>>;

Fields FieldsOf(const SessionStatus& session) {
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  return {{"pid", session.pid},
          {"uid", session.uid},
          {"seconds", session.seconds},
          {"budget_bytes", number(session.budget_bytes)},
          {"used_bytes", number(session.used_bytes)},
          {"outstanding", number(session.outstanding)},
          {"leases", number(session.leases)},
          {"bytes_sent", number(session.bytes_sent)},
          {"shared_bytes", number(session.shared_bytes)},
          {"requests", number(session.requests)}};
}

Fields FieldsOf(const StreamHub::StreamState& stream) {
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  const StreamStats& stats = stream.stats;
  return {{"session", number(stream.session)},
          {"batches", number(stream.batches)},
          {"bytes", number(stream.bytes)},
          {"held", stream.held},
          {"waiting", stream.waiting},
          {"slots", stream.slots},
          {"read_bytes", number(stats.feature_bytes_read + stats.topology_bytes_read)},
          {"cache_lookups", number(stats.cache_lookups)},
          {"cache_hits", number(stats.cache_hits)},
          {"consumer_wait_seconds", stats.consumer_wait_seconds}};
}

void AddField(std::string_view name, double value, std::vector<wire::Counter>& counters) {
  if (std::isfinite(value)) counters.push_back({std::string(name.substr(0, wire::kNameBytesMax)), value});
}

std::string NumberJson(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

// The inside of an object.
std::string FieldsJson(uint64_t id, const Fields& fields) {
  std::string json = fmt::format("\"id\":{}", id);
  for (const auto& [name, value] : fields) json += fmt::format(",\"{}\":{}", name, NumberJson(value));
  return json;
}

// Appends [item,item,...].
template <typename Items, typename Text>
void AppendList(const Items& items, const Text& text, std::string& json) {
  json += '[';
  for (size_t i = 0; i < items.size(); ++i) json += (i > 0 ? "," : "") + text(items[i]);
  json += ']';
}

}  // namespace

std::vector<wire::Counter> StatusCounters(const StatusSource& source) {
  std::vector<wire::Counter> counters = source.metrics->Counters();
  // What finds no room is counted, so that a reader knows that it does not see all.
  uint64_t sessions_left_out = 0, streams_left_out = 0;
  const auto fits = [&](size_t more) { return counters.size() + more + 2 <= wire::kListedMax; };
  for (const SessionStatus& session : source.sessions()) {
    const Fields fields = FieldsOf(session);
    if (!fits(fields.size())) {
      ++sessions_left_out;
      continue;
    }
    for (const auto& [name, value] : fields) {
      AddField(fmt::format("session_{}_{}", session.id, name), value, counters);
    }
  }
  // Names are all the text that there is.
  for (const StreamHub::StreamState& stream : source.streams()) {
    const Fields fields = FieldsOf(stream);
    if (!fits(fields.size() + 2)) {
      ++streams_left_out;
      continue;
    }
    for (const auto& [name, value] : fields) {
      AddField(fmt::format("stream_{}_{}", stream.stream, name), value, counters);
    }
    AddField(fmt::format("stream_{}_road_{}", stream.stream, stream.road), 1, counters);
    if (stream.group.empty()) continue;
    AddField(fmt::format("stream_{}_group_{}", stream.stream, stream.group), 1, counters);
  }
  AddField("quarry_status_sessions_left_out", static_cast<double>(sessions_left_out), counters);
  AddField("quarry_status_streams_left_out", static_cast<double>(streams_left_out), counters);
  return counters;
}

std::string StatusJson(const StatusSource& source) {
  std::string json = "{\"counters\":{";
  for (const char* comma = ""; const wire::Counter& counter : source.metrics->Counters()) {
    json += fmt::format("{}{}:{}", std::exchange(comma, ","), JsonString(counter.name),
                        NumberJson(counter.value));
  }
  json += "},\"sessions\":";
  const auto session = [](const SessionStatus& status) {
    return "{" + FieldsJson(status.id, FieldsOf(status)) + "}";
  };
  AppendList(source.sessions(), session, json);
  json += ",\"streams\":";
  const auto stream = [](const StreamHub::StreamState& state) {
    return fmt::format("{{{},\"road\":{},\"group\":{}}}", FieldsJson(state.stream, FieldsOf(state)),
                       JsonString(state.road), JsonString(state.group));
  };
  AppendList(source.streams(), stream, json);
  return json + "}\n";
}

}  // namespace quarry
