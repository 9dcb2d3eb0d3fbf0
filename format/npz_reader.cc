// .npz: a zip archive whose members are .npy arrays, stored or deflated. libzip inflates as a stream, so that
// a member of any size costs a window.
#include <zip.h>

#include <algorithm>

#include "array_archive.h"
#include "text_lines.h"

namespace quarry {
namespace {

struct ArchiveCloser {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct MemberCloser {
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};
using Archive = std::unique_ptr<zip_t, ArchiveCloser>;

struct MemberInfo {
  std::string key;
  uint64_t index = 0;
  uint64_t bytes = 0;
};

Result<Archive> OpenZip(const std::string& path) {
  QUARRY_TRY(const std::string prefix, ReadPrefix(path, 8));
  int code = 0;
  Archive archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (archive != nullptr) return archive;
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  if (!prefix.starts_with("PK")) {
    return MakeStatus(Code::kInvalidArgument, "{}: not an .npz archive: it looks like {}", path,
                      DescribePrefix(prefix));
  }
  return MakeStatus(Code::kInvalidArgument, "{}: the zip archive is cut off or damaged ({}); copy it anew",
                    path, text);
}

// A cursor has an archive handle of its own: members of one handle cannot be read in turns by several
// threads, and a second handle costs one small read of the directory.
class ZipMember final : public ByteSource {
 public:
  static Result<std::unique_ptr<ByteSource>> Open(const std::string& path, const MemberInfo& info,
                                                  const std::string& name, uint64_t skip_bytes) {
    std::unique_ptr<ZipMember> member(new ZipMember);
    QUARRY_TRY(member->archive_, OpenZip(path));
    member->name_ = name;
    member->bytes_ = info.bytes;
    member->file_.reset(zip_fopen_index(member->archive_.get(), info.index, 0));
    if (member->file_ == nullptr) {
      return MakeStatus(Code::kInvalidArgument, "{}: cannot be opened ({})", name,
                        zip_strerror(member->archive_.get()));
    }
    std::vector<std::byte> skipped(std::min<uint64_t>(skip_bytes, 256 << 10));
    while (skip_bytes > 0) {  // deflated members cannot be entered in the middle
      const std::span<std::byte> part(skipped.data(), std::min<uint64_t>(skip_bytes, skipped.size()));
      QUARRY_TRY(const size_t got, member->Read(part));
      if (got == 0) return MakeStatus(Code::kInvalidArgument, "{}: ends early", name);
      skip_bytes -= got;
    }
    return std::unique_ptr<ByteSource>(std::move(member));
  }

  Result<size_t> Read(std::span<std::byte> out) override {
    size_t filled = 0;
    while (filled < out.size()) {
      QUARRY_TRY(const size_t n, ReadSome(out.subspan(filled)));
      if (n == 0) break;
      filled += n;
    }
    // libzip compares the member's CRC when it is asked for more than there is.
    std::byte beyond;
    if (filled > 0 && consumed_ == bytes_) QUARRY_RETURN_IF_ERROR(ReadSome({&beyond, 1}).status());
    return filled;
  }
  uint64_t consumed_bytes() const override { return consumed_; }

 private:
  ZipMember() = default;

  Result<size_t> ReadSome(std::span<std::byte> out) {
    const zip_int64_t n = zip_fread(file_.get(), out.data(), out.size());
    if (n >= 0) {
      consumed_ += static_cast<uint64_t>(n);
      return static_cast<size_t>(n);
    }
    return MakeStatus(Code::kInvalidArgument, "{}: damaged, found after {} bytes ({}); copy the archive anew",
                      name_, consumed_, zip_file_strerror(file_.get()));
  }

  Archive archive_;  // outlives file_
  std::unique_ptr<zip_file_t, MemberCloser> file_;
  std::string name_;
  uint64_t bytes_ = 0;  // inflated
  uint64_t consumed_ = 0;
};

Result<NpyArray> OpenMember(const std::string& path, const MemberInfo& member) {
  NpyArray array{.name = fmt::format("{}: {}", path, Excerpt(member.key))};
  QUARRY_TRY(const auto source, ZipMember::Open(path, member, array.name, 0));
  QUARRY_TRY(array.header, ReadNpyHeader(*source, member.bytes, array.name));
  array.open = [path, member, name = array.name, start = array.header.header_bytes](uint64_t offset) {
    return ZipMember::Open(path, member, name, start + offset);
  };
  return array;
}

}  // namespace

Result<ArrayArchive> OpenNpz(const std::string& path) {
  QUARRY_TRY(const Archive archive, OpenZip(path));
  ArrayArchive npz{.path = path};
  const zip_int64_t member_count = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < member_count; i++) {
    zip_stat_t info;
    if (zip_stat_index(archive.get(), static_cast<zip_uint64_t>(i), 0, &info) != 0 ||
        (info.valid & ZIP_STAT_SIZE) == 0) {
      return MakeStatus(Code::kInvalidArgument, "{}: member {} cannot be read ({})", path, i,
                        zip_strerror(archive.get()));
    }
    std::string key = info.name;
    if (!key.ends_with(".npy")) continue;
    key.resize(key.size() - 4);
    const MemberInfo member{.key = key, .index = static_cast<uint64_t>(i), .bytes = info.size};
    npz.members.push_back(
        {.key = std::move(key), .open = [path, member] { return OpenMember(path, member); }});
  }
  return npz;
}

Result<std::string> ReadTag(const NpyArray& array) {
  const NpyType& type = array.header.type;
  if ((type.kind != 'S' && type.kind != 'U') || array.header.items != 1) {
    return MakeStatus(Code::kInvalidArgument, "{}: expected one short string, found shape {} of '{}'",
                      array.name, array.ShapeText(), type.name);
  }
  std::string raw(type.bytes, '\0');
  QUARRY_TRY(const auto source, array.open(0));
  QUARRY_TRY(const size_t got, source->Read(std::as_writable_bytes(std::span(raw))));
  raw.resize(got);
  std::erase(raw, '\0');  // the padding of 'S', and the upper bytes of 'U' for ASCII
  return raw;
}

}  // namespace quarry
