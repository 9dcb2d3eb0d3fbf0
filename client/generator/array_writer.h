// ArrayWriter: .npy files of a data set that is made: threads take chunks of an array, fill them and write them where they
// belong.
//
// One thread calls it; the others are its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/element_type.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"

namespace quarry {

// kNoSpace when the disk of `folder` has no room for so many bytes.
Status CheckSpace(const std::string& folder, uint64_t bytes);
// A file of these words, synced.
Status WriteText(IoBackend& backend, const std::string& path, std::string_view text);

class ArrayWriter {
 public:
  // Fills `out` with the elements of the array from number `first` on.
  using Fill = std::function<void(uint64_t first, std::span<std::byte> out)>;

  ArrayWriter(IoBackend& backend, std::string folder, uint64_t bytes_total, const ProgressFunction& progress)
      : backend_(backend), folder_(std::move(folder)), bytes_total_(bytes_total), progress_(progress) {}

  Status AllocateBuffers(unsigned threads);

  Status Write(const std::string& name, ElementType type, const std::vector<uint64_t>& shape,
               const Fill& fill);
  // The same of an array that is made piece by piece, in order: `next` gives the next piece, which is good until it is
  // called again, and whose bytes add up to the array's.
  Status WriteInOrder(const std::string& name, ElementType type, const std::vector<uint64_t>& shape,
                      const std::function<Result<std::span<const std::byte>>()>& next);
  uint64_t bytes_done() const { return bytes_done_; }

 private:
  struct Array {
    const File& file;
    const std::string& name;
    uint64_t element_bytes;
    uint64_t data_bytes;
    const Fill& fill;
    std::atomic<uint64_t> next_chunk{0};
    std::atomic<bool> stop{false};
  };
  Status WriteChunks(Array& array, const IoBuffer& buffer, bool report);

  IoBackend& backend_;
  const std::string folder_;
  const uint64_t bytes_total_;
  const ProgressFunction& progress_;
  std::vector<IoBuffer> buffers_;  // one per thread
  std::atomic<uint64_t> bytes_done_{0};
};

template <typename T, typename Value>
ArrayWriter::Fill FillBy(const Value& value) {
  return [&value](uint64_t first, std::span<std::byte> out) {
    T* values = reinterpret_cast<T*>(out.data());
    for (uint64_t i = 0; i < out.size() / sizeof(T); i++) values[i] = static_cast<T>(value(first + i));
  };
}

}  // namespace quarry
