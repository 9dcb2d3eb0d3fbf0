#include "quarry/storage/folded_lists.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "quarry/storage/row_bitmap.h"
#include "quarry/storage/topology_run.h"

namespace quarry {
namespace {

// No table is called so.
std::string FoldedName(const TopologyRecord& topology) { return topology.name + ":lists"; }

using ListsOfSides = std::array<RowBitmap, 2>;

// The bytes of the first side's set, then both sets.
std::vector<std::byte> Encode(const ListsOfSides& lists) {
  std::vector<std::byte> bytes(sizeof(uint64_t));
  for (const RowBitmap& side : lists) {
    std::vector<uint64_t> rows;
    for (const uint32_t list : side) rows.push_back(list);
    const std::vector<std::byte> encoded = EncodeRows(rows);
    if (bytes.size() == sizeof(uint64_t)) {
      const uint64_t first = encoded.size();
      std::memcpy(bytes.data(), &first, sizeof(first));
    }
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  }
  return bytes;
}

Status Decode(std::span<const std::byte> bytes, std::string_view what, ListsOfSides& lists) {
  uint64_t first = 0;
  if (bytes.size() >= sizeof(first)) std::memcpy(&first, bytes.data(), sizeof(first));
  if (bytes.size() < sizeof(first) || first > bytes.size() - sizeof(first)) {
    return MakeStatus(Code::kCorruption, "{}: {} bytes are no sets of lists", what, bytes.size());
  }
  bytes = bytes.subspan(sizeof(first));
  QUARRY_TRY(lists[0], DecodeRows(bytes.first(first), what));
  QUARRY_TRY(lists[1], DecodeRows(bytes.subspan(first), what));
  return Status::Ok();
}

}  // namespace

Result<FoldedLists> FoldedLists::Of(Store& store, const TopologyRecord& topology, uint64_t generation) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  std::vector<uint64_t> times = {0};  // layouts of the first commit have it, too
  bool older = false;
  for (const LayoutRecord& layout : manifest->layouts) {
    if (layout.spec.topology == topology.name && layout.timestamp < topology.timestamp()) {
      times.push_back(layout.timestamp);
      older = true;
    }
  }
  std::ranges::sort(times);
  times.erase(std::unique(times.begin(), times.end()), times.end());
  std::vector<ListsOfSides> since(times.size());  // each of these
  for (const TopologyRun& run : topology.runs) {
    for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
      if (side == Adjacency::kCsr && !topology.has_csr) continue;
      QUARRY_TRY(const ListEdits edits,
                 LoadRun(store.backend(), store.path(), topology, run, manifest->database_id, side));
      // A run of several commits counts whole.
      for (size_t i = 0; i < times.size() && times[i] < run.timestamp; ++i) {
        since[i][static_cast<int>(side)].addMany(edits.lists.size(), edits.lists.data());
      }
    }
  }
  FoldedLists folded;
  folded.name_ = FoldedName(topology);
  folded.generation_ = generation;
  folded.alone_ = !older;
  for (size_t i = 0; i < times.size(); ++i) folded.changed_.push_back({times[i], Encode(since[i])});
  folded.changed_.push_back({topology.timestamp(), {}});
  return folded;
}

Result<bool> ForEachFoldedList(Store& store, const TopologyRecord& topology, std::span<const Adjacency> sides,
                               uint64_t timestamp, const std::function<void(NodeId)>& take) {
  if (topology.folded <= timestamp) return true;
  const std::shared_ptr<Catalog> catalog = store.catalog();
  for (uint64_t generation = topology.generation; generation > 1; --generation) {
    QUARRY_TRY(const auto bytes, catalog->ReadFolded(FoldedName(topology), generation, timestamp));
    if (!bytes) return false;
    // What was folded into this generation is no newer, and what was folded before it is older still. Two empty sets are
    // something else: a fold of nodes alone, behind one of edges.
    if (bytes->empty()) break;
    ListsOfSides lists;
    QUARRY_RETURN_IF_ERROR(Decode(std::as_bytes(std::span(*bytes)),
                                  fmt::format("{}: lists folded into generation {} of topology \"{}\"",
                                              store.path(), generation, topology.name),
                                  lists));
    for (const Adjacency side : sides) {
      for (const uint32_t list : lists[static_cast<int>(side)]) take(list);
    }
  }
  return true;
}

}  // namespace quarry
