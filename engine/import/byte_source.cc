#include "byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <vector>

#include "quarry/base/regular_file.h"

namespace quarry {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }
  int Release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

class PlainFile final : public ByteSource {
 public:
  PlainFile(int descriptor, std::string path, uint64_t offset)
      : descriptor_(descriptor), path_(std::move(path)), start_(offset), offset_(offset) {
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
  }

  Result<size_t> Read(std::span<std::byte> out) override {
    size_t filled = 0;
    while (filled < out.size()) {
      const ssize_t n =
          pread(descriptor_.get(), out.data() + filled, out.size() - filled, static_cast<off_t>(offset_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, fmt::format("read at offset {} of", offset_), path_);
      if (n == 0) break;
      filled += static_cast<size_t>(n);
      offset_ += static_cast<uint64_t>(n);
    }
    return filled;
  }
  Status Skip(uint64_t bytes) override {
    offset_ += bytes;
    return Status::Ok();
  }
  uint64_t consumed_bytes() const override { return offset_ - start_; }

 private:
  Descriptor descriptor_;
  const std::string path_;
  const uint64_t start_;
  uint64_t offset_;
};

class GzipFile final : public ByteSource {
 public:
  GzipFile(gzFile file, std::string path) : file_(file), path_(std::move(path)) {
    gzbuffer(file_, 256 << 10);
  }
  ~GzipFile() override { gzclose(file_); }

  Result<size_t> Read(std::span<std::byte> out) override {
    size_t filled = 0;
    while (filled < out.size()) {
      const auto step = static_cast<unsigned>(std::min<size_t>(out.size() - filled, 1 << 30));
      const int n = gzread(file_, out.data() + filled, step);
      if (n > 0) filled += static_cast<size_t>(n);
      if (n >= 0 && static_cast<unsigned>(n) == step) continue;
      int error = Z_OK;
      const char* text = gzerror(file_, &error);
      // Z_BUF_ERROR is how zlib says that the stream stopped in its middle.
      if (error == Z_BUF_ERROR) {
        return MakeStatus(Code::kInvalidArgument,
                          "{}: the gzip stream is cut off after {} bytes of text; copy it anew", path_,
                          delivered_ + filled);
      }
      if (error == Z_ERRNO) return ErrnoStatus(errno, "read", path_);
      if (error != Z_OK && error != Z_STREAM_END) {
        return MakeStatus(Code::kInvalidArgument,
                          "{}: the gzip stream is damaged after {} bytes of text ({})", path_,
                          delivered_ + filled, text);
      }
      break;
    }
    delivered_ += filled;
    return filled;
  }
  uint64_t consumed_bytes() const override {
    return static_cast<uint64_t>(std::max<z_off_t>(0, gzoffset(file_)));
  }

 private:
  gzFile file_;
  const std::string path_;
  uint64_t delivered_ = 0;
};

}  // namespace

Status ByteSource::Skip(uint64_t bytes) {
  std::vector<std::byte> skipped(std::min<uint64_t>(bytes, 256 << 10));
  while (bytes > 0) {
    QUARRY_TRY(const size_t got, Read(std::span(skipped).first(std::min<uint64_t>(bytes, skipped.size()))));
    if (got == 0) break;
    bytes -= got;
  }
  return Status::Ok();
}

Result<std::unique_ptr<ByteSource>> OpenPlainFile(const std::string& path, uint64_t offset) {
  QUARRY_TRY(const OpenedFile file, OpenRegularFile(path, O_RDONLY, Code::kInvalidArgument));
  return std::unique_ptr<ByteSource>(std::make_unique<PlainFile>(file.descriptor, path, offset));
}

std::string HowToRead(std::string_view prefix) {
  struct Format {
    std::string_view magic, way;
  };
  constexpr std::string_view kFrame =
      "is {}, which is not read here: {} gives its columns; save them with np.save, or hand them to "
      "quarry.import_ of the Python package";
  const auto way = [&](std::string_view name, std::string_view reader) {
    return fmt::format(fmt::runtime(kFrame), name, reader);
  };
  if (prefix.starts_with("PAR1")) return way("a Parquet file", "pandas.read_parquet");
  if (prefix.starts_with("ARROW1") || prefix.starts_with("FEA1")) {
    return way("a Feather (Arrow) file", "pandas.read_feather");
  }
  if (prefix.starts_with("\xff\xff\xff\xff")) return way("an Arrow stream", "pyarrow.ipc.open_stream");
  if (prefix.starts_with("\x89HDF")) return way("an HDF5 file", "h5py.File");
  if (prefix.starts_with("SQLite format 3")) return way("SQLite database", "sqlite3");
  if (prefix.starts_with("MATLAB 5.0")) return way("MATLAB file", "scipy.io.loadmat");
  constexpr Format kPacked[] = {{"\x28\xb5\x2f\xfd", "unzstd"},
                                {"\xfd"
                                 "7zXZ",
                                 "unxz"},
                                {"BZh", "bunzip2"}};
  for (const Format& format : kPacked) {
    if (prefix.starts_with(format.magic)) {
      return fmt::format("is compressed in a way that is not read here: unpack it ({}), or pack it with gzip",
                         format.way);
    }
  }
  if (prefix.starts_with("PK\x03\x04")) return "is a zip archive: unpack it, and import the folder";
  if (prefix.size() > 262 && prefix.substr(257, 5) == "ustar") {
    return "is a tar archive: unpack it, and import the folder";
  }
  return "";
}

namespace {

// What is no text would be told as lines of it: a byte of zero is in none, while names may have other controls.
Status CheckIsText(const std::string& path) {
  QUARRY_TRY(const std::string prefix, ReadPrefix(path, 512));
  const std::string way = HowToRead(prefix);
  if (!way.empty()) return MakeStatus(Code::kInvalidArgument, "{}: {}", path, way);
  if (prefix.find('\0') == std::string::npos) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "{}: is no text (it looks like {}); import .npy, .npz or text",
                    path, DescribePrefix(prefix));
}

}  // namespace

Result<std::unique_ptr<ByteSource>> OpenTextFile(const std::string& path) {
  QUARRY_TRY(const std::string prefix, ReadPrefix(path, 2));
  if (prefix != "\x1f\x8b") {
    QUARRY_RETURN_IF_ERROR(CheckIsText(path));
    return OpenPlainFile(path, 0);
  }
  QUARRY_TRY(const OpenedFile opened, OpenRegularFile(path, O_RDONLY, Code::kInvalidArgument));
  Descriptor descriptor(opened.descriptor);
  const gzFile file = gzdopen(descriptor.get(), "rb");
  if (file == nullptr) return MakeStatus(Code::kIoError, "{}: zlib has no memory to open it", path);
  descriptor.Release();  // gzclose closes it from here on
  return std::unique_ptr<ByteSource>(std::make_unique<GzipFile>(file, path));
}

bool IsThere(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0;
}

Result<uint64_t> RegularFileBytes(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "open", path);
  if (!S_ISREG(info.st_mode)) return MakeStatus(Code::kInvalidArgument, "{} is not a regular file", path);
  return static_cast<uint64_t>(info.st_size);
}

Result<std::string> ReadPrefix(const std::string& path, size_t bytes) {
  QUARRY_TRY(const uint64_t file_bytes, RegularFileBytes(path));
  std::string prefix(std::min<uint64_t>(bytes, file_bytes), '\0');
  QUARRY_TRY(const auto file, OpenPlainFile(path, 0));
  QUARRY_TRY(const size_t filled, file->Read(std::as_writable_bytes(std::span(prefix))));
  prefix.resize(filled);
  return prefix;
}

std::string DescribePrefix(std::string_view prefix) {
  if (prefix.empty()) return "an empty file";
  if (prefix.starts_with("\x93NUMPY")) return "a NumPy array";
  if (prefix.starts_with("PK\x03\x04")) return "a zip archive";
  if (prefix.starts_with("\x1f\x8b")) return "gzip data";
  if (prefix.starts_with("\x89HDF")) return "an HDF5 file";
  if (prefix.starts_with("PAR1")) return "a Parquet file";
  if (prefix.size() > 1 && prefix[0] == '\x80' && prefix[1] >= 2 && prefix[1] <= 5) return "a Python pickle";
  std::string shown;
  bool text = true;
  for (const char c : prefix.substr(0, 8)) {
    const auto byte = static_cast<unsigned char>(c);
    text = text && (std::isprint(byte) != 0 || std::isspace(byte) != 0);
    shown += fmt::format("{}{:02x}", shown.empty() ? "" : " ", byte);
  }
  return text ? "plain text" : "bytes " + shown;
}

}  // namespace quarry
