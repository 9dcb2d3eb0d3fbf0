#include "zip_file.h"

#include <zip.h>

namespace quarry {
namespace {

struct ArchiveCloser {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct MemberCloser {
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};
using Archive = std::unique_ptr<zip_t, ArchiveCloser>;

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
    return MakeStatus(Code::kInvalidArgument, "{}: not a zip archive: it looks like {}", path,
                      DescribePrefix(prefix));
  }
  return MakeStatus(Code::kInvalidArgument, "{}: the zip archive is cut off or damaged ({}); copy it anew",
                    path, text);
}

// A cursor has an archive handle of its own: members of one handle cannot be read in turns by several
// threads, and a second handle costs one small read of the directory.
class MemberSource final : public ByteSource {
 public:
  static Result<std::unique_ptr<MemberSource>> Open(const std::string& path, const ZipMember& member,
                                                    const std::string& name) {
    std::unique_ptr<MemberSource> source(new MemberSource);
    QUARRY_TRY(source->archive_, OpenZip(path));
    source->name_ = name;
    source->bytes_ = member.bytes;
    source->file_.reset(zip_fopen_index(source->archive_.get(), member.index, 0));
    if (source->file_ == nullptr) {
      return MakeStatus(Code::kInvalidArgument, "{}: cannot be opened ({})", name,
                        zip_strerror(source->archive_.get()));
    }
    return source;
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
  MemberSource() = default;

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
  uint64_t bytes_ = 0;
  uint64_t consumed_ = 0;
};

}  // namespace

Result<std::vector<ZipMember>> ListZip(const std::string& path) {
  QUARRY_TRY(const Archive archive, OpenZip(path));
  std::vector<ZipMember> members;
  const zip_int64_t member_count = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < member_count; i++) {
    zip_stat_t info;
    if (zip_stat_index(archive.get(), static_cast<zip_uint64_t>(i), 0, &info) != 0 ||
        (info.valid & ZIP_STAT_SIZE) == 0) {
      return MakeStatus(Code::kInvalidArgument, "{}: member {} cannot be read ({})", path, i,
                        zip_strerror(archive.get()));
    }
    members.push_back({.name = info.name, .index = static_cast<uint64_t>(i), .bytes = info.size});
  }
  return members;
}

Result<std::unique_ptr<ByteSource>> OpenZipMember(const std::string& path, const ZipMember& member,
                                                  const std::string& name, uint64_t skip_bytes) {
  QUARRY_TRY(auto source, MemberSource::Open(path, member, name));
  QUARRY_RETURN_IF_ERROR(source->Skip(skip_bytes));  // deflated members cannot be entered in the middle
  return std::unique_ptr<ByteSource>(std::move(source));
}

}  // namespace quarry
