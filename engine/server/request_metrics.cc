#include "request_metrics.h"

#include <array>
#include <variant>

namespace quarry {
namespace {

constexpr std::array<std::string_view, std::variant_size_v<wire::Request>> kKindNames = {"hello",
                                                                                         "open_session",
                                                                                         "describe",
                                                                                         "lookup",
                                                                                         "sample",
                                                                                         "open_stream",
                                                                                         "start_pass",
                                                                                         "next_batch",
                                                                                         "close_stream",
                                                                                         "release_leases",
                                                                                         "read_lease",
                                                                                         "read_embeddings",
                                                                                         "commit_embeddings",
                                                                                         "put",
                                                                                         "take_snapshot",
                                                                                         "release_snapshot",
                                                                                         "stats",
                                                                                         "ping",
                                                                                         "cancel",
                                                                                         "save_training",
                                                                                         "read_training",
                                                                                         "read_edges",
                                                                                         "open_sql",
                                                                                         "close_sql",
                                                                                         "query",
                                                                                         "fetch",
                                                                                         "close_query",
                                                                                         "forget_put",
                                                                                         "get_status",
                                                                                         "maintain",
                                                                                         "read_manifest"};

constexpr const char* kCommits = "Commits of embeddings: accepted, or refused since their rows were stale.";

}  // namespace

RequestMetrics::RequestMetrics(Metrics& metrics)
    : bytes_received(metrics.AddCounter("quarry_bytes_received_total", "", "Bytes that clients sent.")),
      bytes_sent(metrics.AddCounter("quarry_bytes_sent_total", "", "Bytes sent to clients through sockets.")),
      shared_bytes(metrics.AddCounter("quarry_shared_bytes_total", "",
                                      "Bytes of answers and batches put into shared memory for clients.")),
      lookup_rows(metrics.AddCounter("quarry_lookup_rows_total", "", "Rows that lookups answered.")),
      commits_accepted(
          metrics.AddCounter("quarry_embedding_commits_total", "{result=\"accepted\"}", kCommits)),
      commits_stale(metrics.AddCounter("quarry_embedding_commits_total", "{result=\"stale\"}", kCommits)) {
  for (const std::string_view name : kKindNames) {
    const std::string labels = fmt::format("{{kind=\"{}\"}}", name);
    kinds_.push_back(
        {metrics.AddCounter("quarry_requests_total", labels, "Requests that were answered."),
         metrics.AddCounter("quarry_request_failures_total", labels, "Requests answered by a failure."),
         metrics.AddHistogram("quarry_request_seconds", labels, "From a request's arrival to its answer.")});
  }
}

void RequestMetrics::Add(size_t kind, double seconds, bool ok) {
  kinds_[kind].requests.Add();
  if (!ok) kinds_[kind].failures.Add();
  kinds_[kind].seconds.Add(seconds);
}

std::string_view RequestMetrics::KindName(size_t kind) { return kKindNames[kind]; }

}  // namespace quarry
