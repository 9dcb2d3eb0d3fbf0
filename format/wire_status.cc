#include "quarry/format/wire_status.h"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "quarry/base/json.h"
#include "quarry/format/wire.h"

namespace quarry::wire {
namespace {

std::string Number(auto value) {
  return std::isfinite(static_cast<double>(value)) ? fmt::format("{}", value) : "null";
}

std::string Object(std::initializer_list<std::pair<std::string_view, std::string>> fields) {
  std::string json;
  for (const auto& [name, value] : fields) {
    json += fmt::format("{}\"{}\":{}", json.empty() ? "" : ",", name, value);
  }
  return "{" + json + "}";
}

std::string Json(const SessionStatus& session) {
  return Object({{"id", Number(session.id)},
                 {"pid", Number(session.pid)},
                 {"uid", Number(session.uid)},
                 {"seconds", Number(session.seconds)},
                 {"budget_bytes", Number(session.budget_bytes)},
                 {"used_bytes", Number(session.used_bytes)},
                 {"outstanding", Number(session.outstanding)},
                 {"leases", Number(session.leases)},
                 {"bytes_sent", Number(session.bytes_sent)},
                 {"shared_bytes", Number(session.shared_bytes)},
                 {"requests", Number(session.requests)}});
}

std::string Json(const StreamStatus& stream) {
  return Object({{"id", Number(stream.id)},
                 {"session", Number(stream.session)},
                 {"road", JsonString(stream.road)},
                 {"group", JsonString(stream.group)},
                 {"batches", Number(stream.batches)},
                 {"bytes", Number(stream.bytes)},
                 {"held", Number(stream.held)},
                 {"waiting", Number(stream.waiting)},
                 {"slots", Number(stream.slots)},
                 {"read_bytes", Number(stream.read_bytes)},
                 {"cache_lookups", Number(stream.cache_lookups)},
                 {"cache_hits", Number(stream.cache_hits)},
                 {"consumer_wait_seconds", Number(stream.consumer_wait_seconds)}});
}

std::string Json(const Counter& counter) {
  return fmt::format("{}:{}", JsonString(counter.name), Number(counter.value));
}

template <typename Record>
std::string Joined(const std::vector<Record>& records) {
  std::string json;
  for (const Record& record : records) json += (json.empty() ? "" : ",") + Json(record);
  return json;
}

template <typename Record>
uint64_t Cut(std::vector<Record>& records) {
  if (records.size() <= kListedMax) return 0;
  const uint64_t left_out = records.size() - kListedMax;
  records.resize(kListedMax);
  return left_out;
}

}  // namespace

void LeaveOutWhatFindsNoRoom(ServerStatus& status) {
  status.sessions_left_out += Cut(status.sessions);
  status.streams_left_out += Cut(status.streams);
}

std::string ToJson(const ServerStatus& status) {
  return fmt::format(
      R"({{"counters":{{{}}},"sessions":[{}],"streams":[{}],"sessions_left_out":{},"streams_left_out":{}}})",
      Joined(status.counters), Joined(status.sessions), Joined(status.streams), status.sessions_left_out,
      status.streams_left_out);
}

}  // namespace quarry::wire
