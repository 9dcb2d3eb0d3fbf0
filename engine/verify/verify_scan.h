// What verifying a data file is made of: a section read side by side with its checksums, in bounded memory.
// Private to this room; one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/scanner.h"
#include "quarry/storage/store.h"
#include "quarry/verify/verify.h"

namespace quarry {

// Where a verification stands, and what it found.
class Verification {
 public:
  Verification(IoBackend& backend, const ProgressFunction& progress, uint64_t bytes_total)
      : backend_(backend), progress_(progress), bytes_total_(bytes_total) {}

  IoBackend& backend() { return backend_; }
  VerifyReport& report() { return report_; }
  // What faults from now on are of, and say besides (empty = nothing).
  void SetSubject(Damage::Kind kind, std::string_view name = {}, std::string remedy = {});
  void AddFault(Status fault);
  // A fault in some of the table's rows.
  void AddFault(Status fault, uint64_t first_row, uint64_t row_count);
  // A fault is noted and OK returned; anything else comes back.
  Status Note(const Status& status);
  // What is worth a word, and no fault.
  void AddNote(std::string note) { report_.notes.push_back(std::move(note)); }
  // Bytes that were read; what the progress function says.
  Status Advance(uint64_t bytes);

 private:
  IoBackend& backend_;
  const ProgressFunction progress_;
  const uint64_t bytes_total_;
  Damage subject_;
  std::string remedy_;
  VerifyReport report_;
};

template <typename... Args>
void AddFault(Verification& run, fmt::format_string<Args...> format, Args&&... args) {
  run.AddFault(MakeStatus(Code::kCorruption, format, std::forward<Args>(args)...));
}

template <typename... Args>
void Mention(Verification& run, fmt::format_string<Args...> format, Args&&... args) {
  run.AddNote(fmt::format(format, std::forward<Args>(args)...));
}

bool AllZero(std::span<const std::byte> bytes);

// The checksums that cover a section, one after another.
class ChecksumCursor {
 public:
  // Notes a fault, and returns a cursor at its end, when `section` has not `count` checksums.
  static Result<ChecksumCursor> Make(Verification& run, const DataFile& data, const Section& section,
                                     uint64_t count);
  // Nothing after the last.
  Result<std::optional<uint32_t>> Next();
  // After the last: whether the array itself holds.
  Status Finish();

 private:
  ChecksumCursor(Verification& run, const DataFile& data) : run_(&run), data_(&data) {}
  Verification* run_;
  const DataFile* data_;
  Section section_;
  std::unique_ptr<FileScanner> scanner_;
  std::span<const std::byte> piece_;
  uint64_t left_bytes_ = 0;
  Checksum64Stream digest_;
};

// A section that is covered page by page.
class PageScan {
 public:
  struct Piece {
    uint64_t offset = 0;  // within the section
    std::span<const std::byte>
        bytes;          // up to the section's end, without its padding; empty after the last piece
    bool sound = true;  // every page gave its checksum; otherwise the faults are noted
  };
  // What page i of the section holds, in words ("rows 12 to 15"), and which rows of a table, if any.
  struct Contents {
    Contents(std::string words, uint64_t first = 0, uint64_t count = 0)  // NOLINT: words are all there is
        : text(std::move(words)), first_row(first), row_count(count) {}
    std::string text;
    uint64_t first_row = 0;
    uint64_t row_count = 0;
  };
  using Describe = std::function<Contents(uint64_t page)>;
  static Result<PageScan> Make(Verification& run, const DataFile& data, const Section& section,
                               Describe describe);
  Result<Piece> Next();

 private:
  PageScan(Verification& run, const DataFile& data, Section section, Describe describe,
           ChecksumCursor checksums, std::unique_ptr<FileScanner> scanner);
  Verification* run_;
  const DataFile* data_;
  Section section_;
  Describe describe_;
  ChecksumCursor checksums_;
  std::unique_ptr<FileScanner> scanner_;
  uint64_t offset_ = 0;
};

// Verifies the sections of a topology file that OpenDataFile has opened.
Status VerifyTopology(Verification& run, const DataFile& data, const TopologyRecord& record);
// The pages of a run (TopologyRun).
Status VerifyRun(Verification& run, const DataFile& data);

// Verifies every page of every section of a file that OpenDataFile has opened, whatever they mean.
Status VerifySections(Verification& run, const DataFile& data);

// Where `quarry repair` makes another catalog.
inline constexpr std::string_view kRepairingFolder = "catalog.repairing";

// Files and folders that no record names: leftovers of a crash, or strangers.
Status FindStrays(Verification& run, const Store& store);
// True, and in the report, for a leftover of a command that was interrupted, which is no fault.
bool NoteLeftover(Verification& run, const Store& store, const std::string& file);
// True, and in the report as a fault that no repair removes, for what may be the only copy of something.
bool NoteOnlyCopy(Verification& run, const Store& store, const std::string& file);

// Files and folders in layouts/ and in partitions/ that no record names. An interrupted build is no fault, but
// is mentioned.
Status FindLayoutStrays(Verification& run, const Store& store);
Status FindPartitioningStrays(Verification& run, const Store& store);

}  // namespace quarry
