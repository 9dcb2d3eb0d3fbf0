#include "support/fault_backend.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "quarry/base/units.h"

namespace quarry {
namespace {

// A direct transfer must be whole blocks of the device; this is every device's divisor of them but the rare 4
// KiB one, on which tests cut transfers of 8 KiB and more.
constexpr uint32_t kCutBytes = 512;

bool Transient(int error) { return error == 0 || error == EINTR || error == EAGAIN; }

// Short transfers, and writes struck by an error, reach the inner port at half their length; other requests
// that are struck do not reach it.
class FaultPort final : public IoPort {
 public:
  FaultPort(FaultBackend& backend, std::unique_ptr<IoPort> inner)
      : backend_(backend), inner_(std::move(inner)) {}

  Status Submit(std::span<const RawRequest> requests) override {
    passed_.clear();
    for (RawRequest request : requests) {
      const bool read = request.kind == RawRequest::Kind::kRead;
      const std::optional<FaultPlan> plan = backend_.Count(read ? FaultKind::kRead : FaultKind::kWrite);
      const auto half_bytes = static_cast<uint32_t>(RoundDown(request.bytes / 2, kCutBytes));
      const bool torn = plan && !read && !Transient(plan->error) && half_bytes > 0;
      if (torn) torn_.push_back({.user_data = request.user_data, .result = -plan->error});
      if (plan && !torn && (plan->error != 0 || half_bytes == 0)) {
        const int error = plan->error != 0 ? plan->error : EINTR;
        struck_.push_back({.user_data = request.user_data, .result = -error});
        continue;
      }
      if (plan) request.bytes = half_bytes;
      passed_.push_back(request);
    }
    return inner_->Submit(passed_);
  }

  Result<size_t> Wait(size_t count_min, std::span<RawCompletion> out) override {
    const size_t count = std::min(struck_.size(), out.size());
    std::copy_n(struck_.begin(), count, out.begin());
    struck_.erase(struck_.begin(), struck_.begin() + static_cast<ptrdiff_t>(count));
    if (count == out.size()) return count;
    QUARRY_TRY(const size_t more,
               inner_->Wait(count_min > count ? count_min - count : 0, out.subspan(count)));
    for (RawCompletion& completion : out.subspan(count, more)) Tear(completion);
    return count + more;
  }

 private:
  // Turns the half of a struck write that has completed into its failure.
  void Tear(RawCompletion& completion) {
    const auto torn = std::find_if(torn_.begin(), torn_.end(), [&](const RawCompletion& t) {
      return t.user_data == completion.user_data;
    });
    if (torn == torn_.end()) return;
    completion = *torn;
    torn_.erase(torn);
  }

  FaultBackend& backend_;
  const std::unique_ptr<IoPort> inner_;
  std::vector<RawRequest> passed_;
  std::deque<RawCompletion> struck_;
  std::vector<RawCompletion> torn_;  // what writes of which a half is in flight will end with
};

}  // namespace

void FaultBackend::SetPlans(std::vector<FaultPlan> plans) {
  MutexLock lock(mutex_);
  plans_ = std::move(plans);
  for (auto& count : counts_) count = 0;
  strikes_ = 0;
}

std::optional<FaultPlan> FaultBackend::Count(FaultKind kind) {
  MutexLock lock(mutex_);
  const uint64_t number = ++counts_[static_cast<size_t>(kind)];
  for (const FaultPlan& plan : plans_) {
    if (plan.kind != kind || plan.at == 0) continue;
    if (number == plan.at || (plan.sticky && number > plan.at)) {
      strikes_++;
      return plan;
    }
  }
  return std::nullopt;
}

Status FaultBackend::Strike(FaultKind kind, std::string_view what, const std::string& path) {
  const std::optional<FaultPlan> plan = Count(kind);
  if (!plan) return Status::Ok();
  return ErrnoStatus(plan->error == 0 ? EIO : plan->error, what, path);
}

Result<std::unique_ptr<IoPort>> FaultBackend::NewPort(unsigned depth) {
  QUARRY_TRY(std::unique_ptr<IoPort> inner, inner().NewPort(depth));
  return std::unique_ptr<IoPort>(std::make_unique<FaultPort>(*this, std::move(inner)));
}

Result<File> FaultBackend::Open(const std::string& path, OpenMode mode) {
  const bool create = mode == OpenMode::kCreate || mode == OpenMode::kCreateDirect;
  QUARRY_RETURN_IF_ERROR(create ? Strike(FaultKind::kCreate, "create", path)
                                : Strike(FaultKind::kOpen, "open", path));
  return inner().Open(path, mode);
}

Status FaultBackend::ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) {
  const std::optional<FaultPlan> plan = Count(FaultKind::kRead);
  if (!plan || Transient(plan->error)) return inner().ReadAt(file, offset, out);
  return ErrnoStatus(plan->error, fmt::format("read {} bytes at offset {} of", out.size(), offset),
                     file.path());
}

Status FaultBackend::WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) {
  const std::optional<FaultPlan> plan = Count(FaultKind::kWrite);
  if (!plan || Transient(plan->error)) return inner().WriteAt(file, offset, bytes);
  const auto half = bytes.first(RoundDown(bytes.size() / 2, kCutBytes));
  QUARRY_RETURN_IF_ERROR(inner().WriteAt(file, offset, half));
  return ErrnoStatus(plan->error, fmt::format("write {} bytes at offset {} of", bytes.size(), offset),
                     file.path());
}

Status FaultBackend::Truncate(const File& file, uint64_t bytes) {
  const std::optional<FaultPlan> plan = Count(FaultKind::kWrite);
  if (!plan || Transient(plan->error)) return inner().Truncate(file, bytes);
  return ErrnoStatus(plan->error, "truncate", file.path());
}

Result<bool> FaultBackend::Clone(const File& from, const File& to) {
  const std::optional<FaultPlan> plan = Count(FaultKind::kWrite);
  if (!plan || Transient(plan->error)) return inner().Clone(from, to);
  return ErrnoStatus(plan->error, "clone", from.path());
}

Status FaultBackend::SyncFile(const File& file) {
  QUARRY_RETURN_IF_ERROR(Strike(FaultKind::kSync, "sync", file.path()));
  return inner().SyncFile(file);
}

Status FaultBackend::SyncDirectory(const std::string& path) {
  QUARRY_RETURN_IF_ERROR(Strike(FaultKind::kSync, "sync", path));
  return inner().SyncDirectory(path);
}

Status FaultBackend::CreateDirectory(const std::string& path) {
  QUARRY_RETURN_IF_ERROR(Strike(FaultKind::kCreateDirectory, "create the folder", path));
  return inner().CreateDirectory(path);
}

Status FaultBackend::Rename(const std::string& from, const std::string& to) {
  QUARRY_RETURN_IF_ERROR(Strike(FaultKind::kRename, "rename", from));
  return inner().Rename(from, to);
}

Status FaultBackend::Link(const std::string& from, const std::string& to) {
  QUARRY_RETURN_IF_ERROR(Strike(FaultKind::kLink, "link", from));
  return inner().Link(from, to);
}

Status FaultBackend::Remove(const std::string& path) {
  QUARRY_RETURN_IF_ERROR(Strike(FaultKind::kRemove, "remove", path));
  return inner().Remove(path);
}

}  // namespace quarry
