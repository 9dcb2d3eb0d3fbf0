// Files of runs (TopologyRun): docs/format.md "Runs of edges". A run is written once, and named by the manifest then.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/format/topology.h"
#include "quarry/io/backend.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/list_edits.h"

namespace quarry {

// The name and generation of the next run of a topology.
TopologyRun NextRunOf(const TopologyRecord& topology);

// The topology's file and those of its runs.
std::vector<std::string> FilesOf(const TopologyRecord& topology);

// That of the last commit of edges, and of nodes where the manifest is given; 0: there was none.
uint64_t StructureTimestamp(std::span<const TopologyRecord> topologies);
uint64_t StructureTimestamp(const Manifest& manifest);

// Whether the topology's file has all of it: no edges and no nodes came since.
bool IsFolded(const TopologyRecord& topology);

// Leaves the topology as it was at `timestamp`. REQUIRES: its file is not newer.
void DropNewerRuns(uint64_t timestamp, TopologyRecord& topology);

// Puts `after` in the place of `before`, and behind it what was committed since. False when the topology does not begin as
// `before` does: then nothing is changed.
bool ReplaceRuns(const TopologyRecord& before, const TopologyRecord& after, TopologyRecord& topology);

// Puts `run` in the place of runs that follow each other. False when they are not all there: then nothing is changed.
bool ReplaceMerged(std::span<const TopologyRun> merged, const TopologyRun& run, TopologyRecord& topology);

// What the edits of all runs hold while the topology is open and being opened, an upper bound.
uint64_t RunsResidentBytes(const TopologyRecord& topology);

// Writes CSC, then CSR where the topology has it, and Finish. On any error, or when it is dropped unfinished, the
// caller removes the file. One thread.
class TopologyRunWriter {
 public:
  // `run` has file and generation. kAlreadyExists.
  static Result<std::unique_ptr<TopologyRunWriter>> Create(IoBackend& backend,
                                                           const std::string& database_path,
                                                           const TopologyRecord& topology, TopologyRun run);
  // Counts into the run what the edits add. REQUIRES: both sides add and remove as many edges.
  Status Add(Adjacency side, const ListEdits& edits);
  // Syncs file and folder. Returns the run, but for its timestamp.
  Result<TopologyRun> Finish(std::span<const std::byte, 16> database_id);

 private:
  Status WriteSection(std::string_view name, std::span<const std::byte> bytes);
  std::unique_ptr<DataFileWriter> writer_;
  uint64_t node_count_ = 0;
  bool weighted_ = false;
  bool has_relations_ = false;
  TopologyRun run_;
};

// Reads the edits of one side, verified and within themselves in order: neighbors are nodes, counts are those of the
// record, relations are among its. kCorruption names file and section.
Result<ListEdits> LoadRun(IoBackend& backend, const std::string& database_path,
                          const TopologyRecord& topology, const TopologyRun& run,
                          std::span<const std::byte, 16> database_id, Adjacency side);

// Loads the edits of runs that follow each other, made one.
Result<ListEdits> LoadRuns(IoBackend& backend, const std::string& database_path,
                           const TopologyRecord& topology, std::span<const TopologyRun> runs,
                           std::span<const std::byte, 16> database_id, Adjacency side);

// How many nodes came with each of the topology's runs, or between the one before it and it: as their files say.
Result<std::vector<uint64_t>> NodesOfRuns(IoBackend& backend, const std::string& database_path,
                                          const TopologyRecord& topology,
                                          std::span<const std::byte, 16> database_id);

}  // namespace quarry
