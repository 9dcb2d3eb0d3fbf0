// `quarry train --task link unix:SOCKET`: edges are a server's; vectors, batches and ranking are here.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quarry/base/units.h"
#include "quarry/client/store.h"
#include "quarry/storage/edges.h"
#include "train_link.h"

namespace quarry::cli {
namespace {

constexpr double kTimeoutSeconds = 600;      // the server may be started anew
constexpr uint64_t kPieceEdges = 256 << 10;  // 3 MiB: small beside what the edges take here
constexpr uint64_t kEdgesMax = UINT32_MAX;   // that can be put in order

// Of it, what link prediction asks of a database.
Result<Manifest> ManifestOf(const wire::Description& description) {
  Manifest manifest;
  manifest.node_count = description.node_count;
  for (const wire::TopologyInfo& topology : description.topologies) {
    if (topology.edge_count > kEdgesMax) {
      return MakeStatus(Code::kUnsupported, "topology \"{}\" has {} edges; at most {} can be trained on",
                        topology.name, topology.edge_count, kEdgesMax);
    }
    TopologyRecord record;
    record.name = topology.name;
    record.node_count = topology.node_count;
    record.edge_count = topology.edge_count;
    record.relation_count = static_cast<uint32_t>(topology.relation_count);
    record.has_csr = topology.has_csr;
    manifest.topologies.push_back(std::move(record));
  }
  return manifest;
}

// What a session needs for the server to open the topology: two eighths of it are shared memory.
uint64_t SessionBytes(const TopologyRecord& record) { return EdgeList::Bytes(record) / 3 * 4 + 4 * kMiB; }

Result<std::vector<Triple>> ReadTriples(const std::string& address, const TopologyRecord& record) {
  const uint64_t memory_bytes = SessionBytes(record);
  QUARRY_TRY(const std::unique_ptr<client::Store> store,
             client::OpenRemote(address, {.memory_bytes = memory_bytes,
                                          .memory_bytes_min = memory_bytes,
                                          .timeout_seconds = kTimeoutSeconds}));
  std::vector<Triple> triples;
  triples.reserve(record.edge_count);
  while (triples.size() < record.edge_count) {
    const uint64_t count = std::min(kPieceEdges, record.edge_count - triples.size());
    QUARRY_TRY(const std::vector<uint32_t> numbers, store->ReadEdges(record.name, triples.size(), count));
    if (numbers.empty()) break;
    for (size_t i = 0; i < numbers.size(); i += 3) {
      triples.push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
    }
  }
  return triples;
}

}  // namespace

Result<LinkSource> OpenLinkSource(const std::string& address) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store,
             client::OpenRemote(address, {.memory_bytes = 1, .timeout_seconds = kTimeoutSeconds}));
  QUARRY_TRY(const wire::Description description, store->Describe());
  QUARRY_TRY(Manifest manifest, ManifestOf(description));
  return LinkSource{.path = address,
                    .manifest = std::move(manifest),
                    .read = [address](const TopologyRecord& record) { return ReadTriples(address, record); }};
}

}  // namespace quarry::cli
