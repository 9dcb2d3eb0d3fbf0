// `quarry train --task link unix:SOCKET`: edges and checkpoints are a server's; vectors, batches and ranking
// are here.
#include "train_link_remote.h"

#include <algorithm>
#include <vector>

#include "opened_store.h"
#include "quarry/base/units.h"
#include "quarry/format/wire.h"
#include "quarry/storage/edges.h"
#include "server_address.h"

namespace quarry::cli {
namespace {

constexpr uint64_t kPieceEdges = 256 << 10;  // 3 MiB: small beside what the edges take here
constexpr uint64_t kFileShare = 512;         // part of a state that covers its checksums, 4 bytes a page
constexpr uint64_t kEdgesMax = UINT32_MAX;   // that can be put in order

Status CheckEdges(const Manifest& manifest) {
  for (const TopologyRecord& topology : manifest.topologies) {
    if (topology.edge_count <= kEdgesMax) continue;
    return MakeStatus(Code::kUnsupported, "topology \"{}\" has {} edges; at most {} can be trained on",
                      topology.name, topology.edge_count, kEdgesMax);
  }
  return Status::Ok();
}

// What a session needs for the server to hold so much for it: two eighths of it are shared memory.
uint64_t SessionBytes(uint64_t bytes) { return bytes / 3 * 4 + 4 * kMiB; }

Result<std::vector<Triple>> ReadTriples(const std::string& address, bool inline_only,
                                        const TopologyRecord& record) {
  const uint64_t memory_bytes = SessionBytes(EdgeList::Bytes(record));
  QUARRY_TRY(const std::unique_ptr<client::Store> store,
             client::OpenRemote(address, {.memory_bytes = memory_bytes,
                                          .memory_bytes_min = memory_bytes,
                                          .timeout_seconds = kTrainerTimeoutSeconds,
                                          .inline_only = inline_only}));
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

// The widest vectors whose checkpoints a server takes; 0: none.
uint32_t LargestDim(const Manifest& manifest, LinkTrainOptions train) {
  uint32_t fits = 0;
  for (uint32_t too_wide = train.spec.dim; too_wide - fits > 1;) {
    train.spec.dim = fits + (too_wide - fits) / 2;
    (LinkStateBytes(manifest, train) <= wire::kStateBytesMax ? fits : too_wide) = train.spec.dim;
  }
  return fits;
}

Status CheckStateBytes(uint64_t state_bytes, const Manifest& manifest, const LinkTrainOptions& train) {
  if (state_bytes <= wire::kStateBytesMax) return Status::Ok();
  const uint32_t dim = LargestDim(manifest, train);
  return MakeStatus(
      Code::kUnsupported,
      "a checkpoint has all vectors, {}, and a server takes at most {}{}: train on the database "
      "itself, or without --checkpoint-every",
      FormatBytes(state_bytes), FormatBytes(wire::kStateBytesMax),
      dim == 0 ? "" : fmt::format(" (with --dim {} or less)", dim));
}

}  // namespace

Result<LinkSource> OpenLinkSource(const std::string& address, bool inline_only) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store,
             client::OpenRemote(
                 address,
                 {.memory_bytes = 1, .timeout_seconds = kTrainerTimeoutSeconds, .inline_only = inline_only}));
  QUARRY_TRY(Manifest manifest, ManifestOf(*store, address));
  QUARRY_RETURN_IF_ERROR(CheckEdges(manifest));
  return LinkSource{.path = address,
                    .manifest = std::move(manifest),
                    .read = [address, inline_only](const TopologyRecord& record) {
                      return ReadTriples(address, inline_only, record);
                    }};
}

Result<std::unique_ptr<LinkStates>> OpenLinkStates(const std::string& address, bool inline_only,
                                                   const Manifest& manifest, const LinkTrainOptions& train) {
  const uint64_t state_bytes = LinkStateBytes(manifest, train);
  QUARRY_RETURN_IF_ERROR(CheckStateBytes(state_bytes, manifest, train));
  // The file of a state, which is read as a whole, has checksums beside it.
  const uint64_t memory_bytes = SessionBytes(state_bytes + state_bytes / kFileShare);
  Result<std::unique_ptr<client::Store>> store =
      client::OpenRemote(address, {.memory_bytes = memory_bytes,
                                   .memory_bytes_min = memory_bytes,
                                   .timeout_seconds = kTrainerTimeoutSeconds,
                                   .inline_only = inline_only});
  if (!store.ok()) {
    return MakeStatus(store.status().code(),
                      "a checkpoint has all vectors, {}, which the server holds to save it: {}",
                      FormatBytes(state_bytes), store.status().message());
  }
  return std::make_unique<LinkStates>(*std::move(store), address);
}

}  // namespace quarry::cli
