// What verifying a data file is made of: a section read side by side with its checksums, in bounded memory.
// Private to this room; one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "quarry/base/status.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/scanner.h"
#include "quarry/storage/store.h"

namespace quarry {

// Where a verification stands, and what it found.
class Verification {
 public:
  Verification(IoBackend& backend, const ProgressFunction& progress, uint64_t bytes_total)
      : backend_(backend), progress_(progress), bytes_total_(bytes_total) {}

  IoBackend& backend() { return backend_; }
  VerifyReport& report() { return report_; }
  void AddFault(Status fault);
  // What faults from now on say besides; empty = nothing.
  void SetRemedy(std::string remedy) { remedy_ = std::move(remedy); }
  // A fault is noted and OK returned; anything else comes back.
  Status Note(const Status& status);
  // Bytes that were read; what the progress function says.
  Status Advance(uint64_t bytes);

 private:
  IoBackend& backend_;
  const ProgressFunction& progress_;
  const uint64_t bytes_total_;
  std::string remedy_;
  VerifyReport report_;
};

template <typename... Args>
void AddFault(Verification& run, fmt::format_string<Args...> format, Args&&... args) {
  run.AddFault(MakeStatus(Code::kCorruption, format, std::forward<Args>(args)...));
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
  // `describe` names what page i of the section holds ("rows 12 to 15").
  using Describe = std::function<std::string(uint64_t page)>;
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

// Verifies every page of every section of a file that OpenDataFile has opened, whatever they mean.
Status VerifySections(Verification& run, const DataFile& data);

// Files and folders in layouts/ that no record names. An interrupted build is no fault, but is mentioned.
Status FindLayoutStrays(Verification& run, const Store& store);

}  // namespace quarry
