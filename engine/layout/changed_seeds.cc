#include "quarry/layout/changed_seeds.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "quarry/base/trace.h"
#include "quarry/io/buffer.h"
#include "quarry/layout/planned_block.h"
#include "quarry/storage/folded_lists.h"
#include "quarry/storage/topology_run.h"

namespace quarry {
namespace {

class ChangedLists {
 public:
  explicit ChangedLists(uint64_t node_count) : bits_(node_count) {}
  // Lists of nodes that the layout does not know are nobody's.
  void Add(NodeId list) {
    if (list >= bits_.size() || bits_[list]) return;
    bits_[list] = true;
    ++count_;
  }
  bool Has(NodeId node) const { return bits_[node]; }
  uint64_t count() const { return count_; }

 private:
  std::vector<bool> bits_;
  uint64_t count_ = 0;
};

// None where it is not known.
Result<std::optional<ChangedLists>> ListsSince(Store& store, MemoryBudget& budget,
                                               const TopologyRecord& topology, const LayoutRecord& layout,
                                               uint64_t node_count) {
  ChangedLists changed(node_count);
  QUARRY_TRY(const bool known, ForEachFoldedList(store, topology, SidesOf(layout.spec.direction),
                                                 layout.timestamp, [&](NodeId list) { changed.Add(list); }));
  if (!known) return std::optional<ChangedLists>();
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const TopologyRun& run : topology.runs) {
    if (run.timestamp <= layout.timestamp) continue;
    QUARRY_TRY(const MemoryBudget::Reservation reservation,
               budget.Reserve(ListEdits::MemoryBytes(run.lists, run.added, run.removed), "a run of edges"));
    for (const Adjacency side : SidesOf(layout.spec.direction)) {
      QUARRY_TRY(const ListEdits edits,
                 LoadRun(store.backend(), store.path(), topology, run, manifest->database_id, side));
      for (const NodeId list : edits.lists) changed.Add(list);
    }
  }
  return std::optional(std::move(changed));
}

// Seeds whose lists, or those of whom was drawn for them, have changed. Round k finds those of draws k hops deep, by what the
// rounds before found, among the nodes that can have so many: those of earlier hops, which stand first. `changed` has the
// round in which a node was found; 0: in none.
uint64_t CountSeeds(const Block& block, const ChangedLists& lists, std::vector<uint8_t>& changed) {
  const size_t hops = block.hop_offsets.size() - 1;
  changed.assign(block.nodes.size(), 0);
  for (size_t round = 1; round <= hops; ++round) {
    for (uint32_t v = 0; v < block.hop_offsets[hops - round]; ++v) {
      if (changed[v] != 0) continue;
      bool found = lists.Has(block.nodes[v]);
      for (uint32_t e = block.indptr[v]; !found && e < block.indptr[v + 1]; ++e) {
        const uint8_t before = changed[block.indices[e]];
        found = before != 0 && before < round;
      }
      if (found) changed[v] = static_cast<uint8_t>(round);
    }
  }
  return static_cast<uint64_t>(std::count_if(changed.begin(), changed.begin() + block.seed_count(),
                                             [](uint8_t round) { return round != 0; }));
}

uint64_t CountRedrawn(const Block& block, const ChangedLists& lists) {
  const auto nodes = static_cast<double>(block.nodes.size());
  double redrawn = 0;
  uint32_t v = 0;
  for (size_t hop = 0; hop + 1 < block.hop_offsets.size(); ++hop) {
    const double brought = nodes / block.hop_offsets[hop + 1];
    for (; v < block.hop_offsets[hop]; ++v) {
      if (lists.Has(block.nodes[v])) redrawn += brought * std::max(1U, block.indptr[v + 1] - block.indptr[v]);
    }
  }
  return static_cast<uint64_t>(std::min(redrawn, nodes));
}

}  // namespace

Result<ChangedSeeds> CountChangedSeeds(Store& store, MemoryBudget& budget, const Layout& layout,
                                       const Snapshot& snapshot, const ProgressFunction& progress) {
  const ScopedSpan span("count changed seeds");
  const LayoutRecord& record = layout.record();
  const LayoutDirectory& directory = layout.directory();
  const TopologyRecord* const topology = snapshot.FindTopology(record.spec.topology);
  ChangedSeeds counted;
  counted.known = topology != nullptr;
  if (!counted.known || topology->timestamp() <= record.timestamp) return counted;
  const uint64_t block_bytes = std::max(kPageBytes, RoundUp(directory.block_bytes_max(), kPageBytes));
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(directory.node_count / 8 + IoBuffer::MappedBytes(block_bytes) +
                                2 * directory.cache_slots * sizeof(NodeId) +
                                directory.batches.size() * sizeof(uint64_t) + 40 * directory.nodes_max() +
                                (record.spec.edge_ids ? 20 : 12) * directory.edges_max(),
                            "counting changed seeds"));
  QUARRY_TRY(const std::optional<ChangedLists> since,
             ListsSince(store, budget, *topology, record, directory.node_count));
  counted.known = since.has_value();
  if (!since) return counted;
  const ChangedLists& lists = *since;
  counted.lists = lists.count();
  QUARRY_TRY(const IoBuffer pages, IoBuffer::Allocate(block_bytes));
  BlockDecoder decoder(static_cast<uint32_t>(directory.cache_slots), directory.node_count,
                       directory.start_nodes, record.spec.edge_ids);
  PlannedBlock planned;
  std::vector<NodeId> slot_nodes(directory.cache_slots, kNoNode);
  std::ranges::copy(directory.start_nodes, slot_nodes.begin());
  std::vector<uint8_t> changed;
  for (uint64_t batch = 0; batch < directory.batches.size(); ++batch) {
    const BatchEntry& entry = directory.batches[batch];
    const std::span<std::byte> bytes = pages.span().first(RoundUp(entry.block_bytes, kPageBytes));
    QUARRY_RETURN_IF_ERROR(layout.ReadPages(store.backend(), entry.offset, bytes));
    if (const Status decoded = decoder.Decode(bytes.first(entry.block_bytes), planned); !decoded.ok()) {
      return MakeStatus(decoded.code(), "{}: batch {}: {}", layout.file().path(), batch, decoded.message());
    }
    for (size_t i = 0; i < planned.admitted_rows.size(); ++i) {
      slot_nodes[planned.admitted_slots[i]] = planned.frame_nodes[planned.admitted_rows[i]];
    }
    const uint64_t seeds = CountSeeds(planned.block, lists, changed);
    counted.seeds += planned.block.seed_count();
    counted.seeds_changed += seeds;
    if (seeds > 0) {
      counted.batches.push_back(batch);
      counted.rows_redrawn += CountRedrawn(planned.block, lists);
    }
    if (progress)
      QUARRY_RETURN_IF_ERROR(progress("counting changed seeds", batch + 1, directory.batches.size()));
  }
  // Without a list of slots the image is loaded anew for each cycle.
  counted.image_lasts.assign(directory.image_rows, true);
  for (uint64_t slot = 0; slot < directory.wrap.size(); ++slot) {
    const uint32_t from = directory.wrap[slot];
    counted.image_lasts[slot] =
        from < directory.cache_slots && slot_nodes[from] == directory.start_nodes[slot];
  }
  return counted;
}

}  // namespace quarry
