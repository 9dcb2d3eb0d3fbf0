// Kill points: the places where the death of the process matters most, by name. They serve tests of crashes:
// a child process arms one and dies by SIGKILL when it passes it. Unarmed, a kill point costs one relaxed
// load.
//
//   KillPoint("compaction: file written, not named");
//
// A name that is not in the list below does not compile; the crash tests go through the list and demand that
// each point is reached.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace quarry {

inline constexpr std::string_view kKillPoints[] = {
    "import: built, not renamed",
    "import: renamed, folder not synced",
    "open: leftovers there",
    "open: staged rows there",
    "put: not logged",
    "put: logged, not visible",
    "put: visible, not told",
    "put: part of the rows staged",
    "put: rows staged, not published",
    "put: staged rows dropped, their record there",
    "manifest: not committed",
    "manifest: committed, not known",
    "compaction: part of the file written",
    "compaction: progress synced, not renamed",
    "compaction: progress there",
    "compaction: file written, not named",
    "compaction: named, old file there",
    "compaction: old file gone, versions there",
    "edges: a side of the run written",
    "graph: files written, not named",
    "graph: committed, not merged",
    "topology: runs merged in part",
    "topology: runs merged, not named",
    "topology: part of the file written",
    "topology: file written, not named",
    "topology: switched, old files there",
    "checkpoint: catalog copied, no files",
    "checkpoint: files there, not synced",
    "pages: writes on the way",
    "pages: page written, not in the map",
    "pages: map written, not synced",
    "embeddings: pages flushed",
    "embeddings: one map written",
    "embeddings: maps written, not named",
    "embeddings: named, old maps there",
    "embeddings: leftovers settled, not removed",
    "training: state written, not named",
    "training: named, old state there",
    "layout: sampled",
    "layout: file written",
    "layout: patch written",
    "layout: mended, scratch files there",
    "layout: whole, folder not renamed",
    "layout: folder renamed, not named",
    "layout: named, old folder there",
    "partition: file written",
    "partition: whole, folder not renamed",
    "partition: folder renamed, not named",
    "partition: named, old folder there",
};
inline constexpr size_t kKillPointCount = std::size(kKillPoints);

class KillPointName {
 public:
  consteval KillPointName(const char* name) : index_(Find(name)) {}  // NOLINT: made of a literal at each call
  size_t index() const { return index_; }

 private:
  static consteval size_t Find(std::string_view name) {
    const auto* const found = std::ranges::find(kKillPoints, name);
    if (found == std::end(kKillPoints)) throw "no kill point of this name: see kKillPoints";
    return static_cast<size_t>(found - std::begin(kKillPoints));
  }
  size_t index_;
};

// Arms this kill point and no other: it kills when a thread passes it for the `passages`-th time, counted
// from 1. For the child processes of tests.
void ArmKillPoint(size_t index, uint64_t passages);

extern std::atomic<bool> kill_point_armed;
void PassKillPoint(size_t index);

inline void KillPoint(KillPointName name) {
  if (kill_point_armed.load(std::memory_order_relaxed)) PassKillPoint(name.index());
}

}  // namespace quarry
