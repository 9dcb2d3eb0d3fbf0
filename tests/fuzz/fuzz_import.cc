// Fuzz target: files of others, as `quarry import` reads them. An input is the files of a folder, each behind
// a line that names it:
//
//   === edges.npy
//   bytes
//   === metadata.yaml
//   text
//
// Whatever they hold, it is read or refused in a line that says why, within the memory that readers may take.
//
// clang with -DQUARRY_FUZZ=ON: a libFuzzer program, best with -dict=tests/fuzz/import.dict and
// -malloc_limit_mb=64. Any compiler: fuzz_import_replay, which runs the corpus.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/format/feature_table.h"
#include "quarry/import/dataset.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "=== ", kNextMark = "\n=== ";
constexpr size_t kFilesMax = 32;
constexpr size_t kInputBytesMax = 64 << 10;
// What is read of a reader: a small file may promise billions of rows.
constexpr size_t kReadsMax = 1000;
constexpr size_t kBatch = 61;
constexpr size_t kRowBytesMax = 64 << 10;

void Require(bool holds) {
  if (!holds) std::abort();
}

// Names that stay within the folder.
bool IsSafeName(std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
  if (name.empty() || name.size() > 100 || name.find_first_not_of(kLetters) != std::string_view::npos) {
    return false;
  }
  return std::ranges::none_of(fs::path(name), [](const fs::path& part) {
    return part == "." || part == ".." || part == "/" || part.empty();
  });
}

// A folder in memory, empty before each input.
class Folder {
 public:
  Folder()
      : path_((access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fs::temp_directory_path().string()) +
              "/quarry-fuzz-import-" + std::to_string(getpid())) {}
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // Returns the names of the files that the input made.
  std::vector<std::string> Fill(std::string_view input) const {
    fs::remove_all(path_);
    fs::create_directory(path_);
    std::vector<std::string> names;
    while (input.starts_with(kMark) && names.size() < kFilesMax) {
      input.remove_prefix(kMark.size());
      const size_t line = input.find('\n');
      if (line == std::string_view::npos) break;
      const std::string_view name = input.substr(0, line);
      input.remove_prefix(line + 1);
      const size_t next = input.find(kNextMark);
      if (IsSafeName(name) && Write(name, input.substr(0, next))) names.emplace_back(name);
      if (next == std::string_view::npos) break;
      input.remove_prefix(next + 1);
    }
    return names;
  }
  const std::string& path() const { return path_; }

 private:
  bool Write(std::string_view name, std::string_view bytes) const {
    const fs::path path = fs::path(path_) / name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file.good();
  }
  const std::string path_;
};

// The same for edges, integers and triples. Returns how many were read.
template <typename T, typename Reader>
Result<uint64_t> Drain(Reader& reader) {
  std::vector<T> batch(kBatch);
  uint64_t count = 0;
  for (size_t reads = 0; reads < kReadsMax; ++reads) {
    QUARRY_TRY(const size_t n, reader.Read(batch));
    Require(n <= batch.size());
    if (n == 0) break;
    count += n;
    if constexpr (requires { reader.Position(0); }) Require(!reader.Position(count - 1).empty());
  }
  Require(!reader.count() || count <= *reader.count());
  return count;
}

Status DrainRows(RowReader& reader) {
  // As the import does: what cannot be a table is refused before a row is read.
  QUARRY_TRY(
      const FeatureGeometry geometry,
      FeatureGeometry::Make(reader.element_type(), reader.dim(), std::max<uint64_t>(1, reader.row_count())));
  const uint64_t row_bytes = geometry.row_bytes;
  if (row_bytes > kRowBytesMax) return Status::Ok();
  std::vector<std::byte> batch(3 * row_bytes);
  uint64_t count = 0;
  for (size_t reads = 0; reads < kReadsMax; ++reads) {
    QUARRY_TRY(const size_t n, reader.Read(batch));
    Require(n <= 3);
    if (n == 0) break;
    count += n;
    Require(!reader.Position(count - 1).empty());
  }
  Require(count <= reader.row_count());
  return Status::Ok();
}

Status ReadAll(const std::string& path, const SourceHints& hints) {
  QUARRY_TRY(const Dataset dataset, OpenDataset(path, hints));
  for (const EdgeInput& input : dataset.edges) QUARRY_RETURN_IF_ERROR(Drain<Edge>(*input.reader).status());
  if (dataset.features != nullptr) QUARRY_RETURN_IF_ERROR(DrainRows(*dataset.features));
  for (IntReader* ints :
       {dataset.labels.get(), dataset.train.get(), dataset.valid.get(), dataset.test.get()}) {
    if (ints != nullptr) QUARRY_RETURN_IF_ERROR(Drain<int64_t>(*ints).status());
  }
  for (TripleReader* triples :
       {dataset.train_triples.get(), dataset.valid_triples.get(), dataset.test_triples.get()}) {
    if (triples != nullptr) QUARRY_RETURN_IF_ERROR(Drain<Triple>(*triples).status());
  }
  return Status::Ok();
}

void Import(const std::string& path, const SourceHints& hints) {
  const Status status = ReadAll(path, hints);
  if (status.ok()) return;
  const bool sound = !status.message().empty() && status.message().find('\n') == std::string_view::npos &&
                     status.code() != Code::kInternal && status.code() != Code::kCorruption;
  if (!sound) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  Require(sound);
}

}  // namespace
}  // namespace quarry

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool quiet = setenv("QUARRY_LOG", "off", 0) == 0;
  static const quarry::Folder folder;
  if (!quiet || size > quarry::kInputBytesMax) return 0;
  const auto names = folder.Fill({reinterpret_cast<const char*>(data), size});
  if (names.empty()) return 0;
  // What a source does not tell itself; the corpus has sets that need it.
  const quarry::SourceHints hints = {
      .node_count = 5, .feature_dim = 6, .u2_is_bfloat16 = true, .raw_type = "float32"};
  for (const quarry::SourceHints& some : {quarry::SourceHints(), hints}) {
    quarry::Import(folder.path(), some);
    if (names.size() == 1) quarry::Import(folder.path() + "/" + names[0], some);
  }
  return 0;
}
