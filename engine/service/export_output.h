// The files of an export: arrays and lists, as .npy or as text. Private to this room.
//
// Written front to back by large direct writes, so that an export leaves nothing of them in the page cache.
// One thread. On an error the file is left for the caller, who removes the folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/element_type.h"
#include "quarry/format/wire_maintenance.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"

namespace quarry {

// `type`, or what stands for it where the format has no such elements.
ElementType StoredAs(ElementType type, ExportFormat format);

// Where the files go, and what has been written.
struct ExportTarget {
  IoBackend& backend;
  MemoryBudget& budget;
  std::string folder;
  bool text = false;
  uint64_t files = 0;
  uint64_t bytes = 0;
};

// A new file.
class FileOutput {
 public:
  // `header_bytes`, whole pages, are left in front for Finish. `target` outlives it.
  static Result<FileOutput> Create(ExportTarget& target, const std::string& name, uint64_t header_bytes,
                                   uint64_t buffer_bytes = 4 << 20);
  Status Append(std::span<const std::byte> bytes);
  Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text))); }
  // Writes the rest and the header, and syncs.
  Status Finish(std::span<const std::byte> header);

 private:
  FileOutput(ExportTarget& target, File file, IoBuffer buffer, MemoryBudget::Reservation reservation,
             uint64_t position)
      : target_(&target),
        file_(std::move(file)),
        reservation_(std::move(reservation)),
        buffer_(std::move(buffer)),
        position_(position) {}
  Status Flush();

  ExportTarget* target_;
  File file_;
  MemoryBudget::Reservation reservation_;
  IoBuffer buffer_;
  size_t buffered_ = 0;
  uint64_t position_;  // where buffer_ goes
};

// One array: `NAME.npy`, or lines of text with commas, `NAME.csv`, whose numbers read back as the same bits.
class ArrayOutput {
 public:
  // Rows of `columns` elements, or a vector where it is 0. An int8 array is one without scales.
  static Result<ArrayOutput> Create(ExportTarget& target, const std::string& name, ElementType type,
                                    uint64_t columns = 0, uint64_t buffer_bytes = 4 << 20);
  // Elements, which need not be whole rows. REQUIRES: of text, not of int8.
  Status Append(std::span<const std::byte> elements);
  Status Append(int64_t value);  // REQUIRES: the type is int64
  // `shape`: where it is another than that of rows or a vector.
  Status Finish(std::span<const uint64_t> shape = {});

  const std::string& name() const { return name_; }  // the file's

 private:
  ArrayOutput(FileOutput file, std::string name, ElementType type, uint64_t columns, bool text)
      : file_(std::move(file)), name_(std::move(name)), type_(type), columns_(columns), text_(text) {}
  template <typename Value>
  Status AppendText(Value value);

  FileOutput file_;
  std::string name_;
  ElementType type_;
  uint64_t columns_;
  bool text_;
  uint64_t elements_ = 0;
  std::string line_;  // text that is not in the file yet
};

}  // namespace quarry
