// An array that a verb writes for its user, row by row.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "quarry/base/status.h"
#include "quarry/format/element_type.h"

namespace quarry::cli {

// A .npy file that appears under its name whole, synced, or not at all; until then it is PATH.writing. What lay there
// before is replaced. One thread.
class NpyFile {
 public:
  // `columns` 0: a vector. kUsage for a name that does not end in .npy.
  static Result<NpyFile> Create(const std::string& path, ElementType type, uint64_t rows,
                                uint64_t columns = 0);
  // The same of a file of whatever is appended to it, whose name ends in `ending`.
  static Result<NpyFile> CreateOther(const std::string& path, std::string_view ending);
  NpyFile(NpyFile&&) = default;
  ~NpyFile();

  Status Append(std::span<const std::byte> elements);
  Status Finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  NpyFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  std::string Beside() const { return path_ + ".writing"; }

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;  // null once it is finished
};

}  // namespace quarry::cli
