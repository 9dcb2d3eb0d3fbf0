#include "quarry/storage/topology_run.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kRunWriterBytes = 1 * kMiB;

template <typename T>
Result<std::vector<T>> LoadSection(IoBackend& backend, const DataFile& data, std::string_view name,
                                   uint64_t count) {
  std::vector<T> values(count);
  if (count == 0) return values;
  QUARRY_TRY(const Section section, data.Find(name, count * sizeof(T)));
  QUARRY_TRY(const std::vector<uint32_t> checksums, LoadChecksums(backend, data, section));
  if (checksums.size() != CeilDiv(section.bytes, kPageBytes)) {
    return MakeStatus(Code::kCorruption, "{}: footer: {} checksums for {} bytes of {}", data.file.path(),
                      checksums.size(), section.bytes, name);
  }
  QUARRY_RETURN_IF_ERROR(
      LoadPages(backend, data, section, checksums, std::as_writable_bytes(std::span(values))));
  return values;
}

uint64_t BytesOf(const DataFile& data, std::string_view name) {
  const Section* const section = data.footer.Find(name);
  return section == nullptr ? 0 : section->bytes;
}

// Its counts are those of the record.
Result<DataFile> OpenRun(IoBackend& backend, const std::string& database_path, const TopologyRun& run,
                         std::span<const std::byte, 16> database_id) {
  QUARRY_TRY(DataFile data, OpenDataFile(backend, database_path + "/" + run.file,
                                         {.kind = FileKind::kTopologyRun,
                                          .database_id = database_id,
                                          .generation = run.generation,
                                          .file_bytes = run.file_bytes}));
  if (data.superblock.edge_count == run.edges_after()) return data;
  return MakeStatus(Code::kCorruption, "{}: page 0: {} edges where the catalog says {}", data.file.path(),
                    data.superblock.edge_count, run.edges_after());
}

}  // namespace

TopologyRun NextRunOf(const TopologyRecord& topology) {
  TopologyRun run;
  run.generation = topology.runs.empty() ? 1 : topology.runs.back().generation + 1;
  run.edges_before = topology.edge_count;
  run.file = fmt::format("topology/{}-{}-{}.qtr", topology.name, topology.generation, run.generation);
  return run;
}

// Edits of all runs, composed; while a topology is opened, also of the next run and of what both become; and positions
// among all edges, of eight bytes each.
uint64_t RunsResidentBytes(const TopologyRecord& topology) {
  uint64_t bytes = 0;
  for (const TopologyRun& run : topology.runs) {
    const uint64_t sides = topology.has_csr ? 2 : 1;
    bytes += 2 * ListEdits::MemoryBytes(run.lists, sides * run.added, sides * run.removed,
                                        topology.relation_count > 1) +
             sides * (run.added + run.removed) * sizeof(uint64_t);
  }
  return bytes;
}

Result<std::unique_ptr<TopologyRunWriter>> TopologyRunWriter::Create(IoBackend& backend,
                                                                     const std::string& database_path,
                                                                     const TopologyRecord& topology,
                                                                     TopologyRun run) {
  auto writer = std::make_unique<TopologyRunWriter>();
  QUARRY_TRY(writer->writer_,
             DataFileWriter::Create(backend, database_path + "/" + run.file, kRunWriterBytes));
  writer->node_count_ = topology.node_count;
  writer->weighted_ = topology.weighted;
  writer->has_relations_ = topology.relation_count > 1;
  writer->run_ = std::move(run);
  return writer;
}

Status TopologyRunWriter::WriteSection(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return Status::Ok();
  writer_->BeginSection(name, DataFileWriter::Cover::kPages, bytes.size());
  QUARRY_RETURN_IF_ERROR(writer_->Append(bytes));
  return writer_->EndSection();
}

Status TopologyRunWriter::Add(Adjacency side, const ListEdits& edits) {
  const RunSections names = RunSectionsOf(side);
  std::vector<uint32_t> counts;
  counts.reserve(2 * edits.lists.size());
  for (size_t i = 0; i < edits.lists.size(); ++i) {
    counts.push_back(static_cast<uint32_t>(edits.added_ends[i] - (i == 0 ? 0 : edits.added_ends[i - 1])));
    counts.push_back(static_cast<uint32_t>(edits.removed_ends[i] - (i == 0 ? 0 : edits.removed_ends[i - 1])));
  }
  assert(side == Adjacency::kCsc ||
         (run_.added == edits.places.size() && run_.removed == edits.removed.size()));
  run_.added = edits.places.size();
  run_.removed = edits.removed.size();
  run_.lists += edits.lists.size();
  QUARRY_RETURN_IF_ERROR(WriteSection(names.lists, std::as_bytes(std::span(edits.lists))));
  QUARRY_RETURN_IF_ERROR(WriteSection(names.counts, std::as_bytes(std::span(counts))));
  QUARRY_RETURN_IF_ERROR(WriteSection(names.places, std::as_bytes(std::span(edits.places))));
  QUARRY_RETURN_IF_ERROR(WriteSection(names.indices, std::as_bytes(std::span(edits.neighbors))));
  if (weighted_) {
    QUARRY_RETURN_IF_ERROR(WriteSection(names.weights, std::as_bytes(std::span(edits.weights))));
  }
  if (has_relations_) {
    QUARRY_RETURN_IF_ERROR(WriteSection(names.relations, std::as_bytes(std::span(edits.relations))));
  }
  return WriteSection(names.removed, std::as_bytes(std::span(edits.removed)));
}

Result<TopologyRun> TopologyRunWriter::Finish(std::span<const std::byte, 16> database_id) {
  Superblock superblock{.kind = FileKind::kTopologyRun,
                        .generation = run_.generation,
                        .row_count = node_count_,
                        .edge_count = run_.edges_after()};
  std::copy(database_id.begin(), database_id.end(), superblock.database_id.begin());
  QUARRY_TRY(run_.file_bytes, writer_->Finish(superblock));
  return run_;
}

Result<ListEdits> LoadRun(IoBackend& backend, const std::string& database_path,
                          const TopologyRecord& topology, const TopologyRun& run,
                          std::span<const std::byte, 16> database_id, Adjacency side) {
  QUARRY_TRY(const DataFile data, OpenRun(backend, database_path, run, database_id));
  const RunSections names = RunSectionsOf(side);
  const uint64_t list_count = BytesOf(data, names.lists) / sizeof(NodeId);
  if (list_count > run.lists) {
    return MakeStatus(Code::kCorruption, "{}: {}: {} lists where the catalog says {}", data.file.path(),
                      names.lists, list_count, run.lists);
  }
  ListEdits edits;
  QUARRY_TRY(edits.lists, LoadSection<NodeId>(backend, data, names.lists, list_count));
  QUARRY_TRY(const std::vector<uint32_t> counts,
             LoadSection<uint32_t>(backend, data, names.counts, 2 * list_count));
  uint64_t added = 0, removed = 0;
  for (size_t i = 0; i < list_count; ++i) {
    edits.added_ends.push_back(added += counts[2 * i]);
    edits.removed_ends.push_back(removed += counts[2 * i + 1]);
  }
  if (added != run.added || removed != run.removed) {
    return MakeStatus(Code::kCorruption,
                      "{}: {}: {} edges added and {} removed where the catalog says {} and {}",
                      data.file.path(), names.counts, added, removed, run.added, run.removed);
  }
  QUARRY_TRY(edits.places, LoadSection<uint32_t>(backend, data, names.places, added));
  QUARRY_TRY(edits.neighbors, LoadSection<NodeId>(backend, data, names.indices, added));
  if (topology.weighted) {
    QUARRY_TRY(edits.weights, LoadSection<float>(backend, data, names.weights, added));
  }
  if (topology.relation_count > 1) {
    QUARRY_TRY(edits.relations, LoadSection<uint32_t>(backend, data, names.relations, added));
    const auto strange = std::ranges::find_if(
        edits.relations, [&](uint32_t relation) { return relation >= topology.relation_count; });
    if (strange != edits.relations.end()) {
      return MakeStatus(Code::kCorruption, "{}: {}[{}] = {}, and there are {} relations", data.file.path(),
                        names.relations, strange - edits.relations.begin(), *strange,
                        topology.relation_count);
    }
  }
  QUARRY_TRY(edits.removed, LoadSection<uint32_t>(backend, data, names.removed, removed));
  const auto bad =
      std::ranges::find_if(edits.neighbors, [&](NodeId id) { return id >= topology.node_count; });
  if (bad != edits.neighbors.end()) {
    return MakeStatus(Code::kCorruption, "{}: {}[{}] = {}, and there are {} nodes", data.file.path(),
                      names.indices, bad - edits.neighbors.begin(), *bad, topology.node_count);
  }
  return edits;
}

Result<ListEdits> LoadRuns(IoBackend& backend, const std::string& database_path,
                           const TopologyRecord& topology, std::span<const TopologyRun> runs,
                           std::span<const std::byte, 16> database_id, Adjacency side) {
  ListEdits all;
  for (const TopologyRun& run : runs) {
    QUARRY_TRY(ListEdits next, LoadRun(backend, database_path, topology, run, database_id, side));
    all = all.empty() ? std::move(next) : Compose(all, next);
  }
  return all;
}

Result<std::vector<uint64_t>> NodesOfRuns(IoBackend& backend, const std::string& database_path,
                                          const TopologyRecord& topology,
                                          std::span<const std::byte, 16> database_id) {
  std::vector<uint64_t> nodes;
  uint64_t before = topology.file_nodes();
  for (const TopologyRun& run : topology.runs) {
    QUARRY_TRY(const DataFile data, OpenRun(backend, database_path, run, database_id));
    const uint64_t then = std::max(before, data.superblock.row_count);
    nodes.push_back(then - std::exchange(before, then));
  }
  return nodes;
}

std::vector<std::string> FilesOf(const TopologyRecord& topology) {
  std::vector<std::string> files = {topology.file};
  for (const TopologyRun& run : topology.runs) files.push_back(run.file);
  return files;
}

uint64_t StructureTimestamp(std::span<const TopologyRecord> topologies) {
  uint64_t timestamp = 0;
  for (const TopologyRecord& topology : topologies) timestamp = std::max(timestamp, topology.timestamp());
  return timestamp;
}
uint64_t StructureTimestamp(const Manifest& manifest) {
  return std::max(manifest.grown, StructureTimestamp(manifest.topologies));
}

bool IsFolded(const TopologyRecord& topology) { return topology.runs.empty() && topology.added_nodes == 0; }

void DropNewerRuns(uint64_t timestamp, TopologyRecord& topology) {
  while (!topology.runs.empty() && topology.runs.back().timestamp > timestamp) {
    topology.edge_count = topology.runs.back().edges_before;
    topology.runs.pop_back();
  }
}

bool ReplaceRuns(const TopologyRecord& before, const TopologyRecord& after, TopologyRecord& topology) {
  const size_t count = before.runs.size();
  if (topology.file != before.file || topology.runs.size() < count ||
      !std::ranges::equal(before.runs, std::span(topology.runs).first(count), {}, &TopologyRun::file,
                          &TopologyRun::file)) {
    return false;
  }
  const TopologyRecord now = std::exchange(topology, after);
  topology.edge_count = now.edge_count;
  topology.node_count = now.node_count;
  topology.added_nodes = after.added_nodes + now.node_count - before.node_count;
  topology.runs.insert(topology.runs.end(), now.runs.begin() + static_cast<std::ptrdiff_t>(count),
                       now.runs.end());
  return true;
}

bool ReplaceMerged(std::span<const TopologyRun> merged, const TopologyRun& run, TopologyRecord& topology) {
  const auto same = [](const TopologyRun& a, const TopologyRun& b) { return a.file == b.file; };
  const auto found =
      std::search(topology.runs.begin(), topology.runs.end(), merged.begin(), merged.end(), same);
  if (found == topology.runs.end()) return false;
  *found = run;
  topology.runs.erase(found + 1, found + static_cast<std::ptrdiff_t>(merged.size()));
  return true;
}

}  // namespace quarry
