#include "npy_file.h"

#include <unistd.h>

#include <cerrno>
#include <vector>

#include "quarry/format/npy_writer.h"

namespace quarry::cli {

Result<NpyFile> NpyFile::Create(const std::string& path, ElementType type, uint64_t rows, uint64_t columns) {
  QUARRY_TRY(NpyFile array, CreateOther(path, ".npy"));
  std::vector<uint64_t> shape = {rows};
  if (columns > 0) shape.push_back(columns);
  QUARRY_RETURN_IF_ERROR(array.Append(EncodeNpyHeader(type, shape)));
  return array;
}

Result<NpyFile> NpyFile::CreateOther(const std::string& path, std::string_view ending) {
  if (!path.ends_with(ending)) {
    return MakeStatus(Code::kUsage, "{}: {} written as {}; give a name that ends so", path,
                      ending == ".npy" ? "an array is" : "weights are", ending);
  }
  const std::string beside = path + ".writing";
  std::FILE* const file = std::fopen(beside.c_str(), "we");
  if (file == nullptr) return ErrnoStatus(errno, "create", beside);
  return NpyFile(path, file);
}

NpyFile::~NpyFile() {
  if (file_) unlink(Beside().c_str());
}

Status NpyFile::Append(std::span<const std::byte> elements) {
  if (std::fwrite(elements.data(), 1, elements.size(), file_.get()) == elements.size()) return Status::Ok();
  return ErrnoStatus(errno, "write to", Beside());
}

Status NpyFile::Finish() {
  if (std::fflush(file_.get()) != 0 || fsync(fileno(file_.get())) != 0)
    return ErrnoStatus(errno, "sync", Beside());
  if (std::rename(Beside().c_str(), path_.c_str()) != 0) return ErrnoStatus(errno, "rename to", path_);
  file_.reset();
  return Status::Ok();
}

}  // namespace quarry::cli
