#include "quarry/io/fault_backend.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

namespace quarry {

// Struck requests with an error complete without reaching the inner port; short ones reach it at half their
// length.
class FaultPort final : public IoPort {
 public:
  FaultPort(FaultBackend& backend, std::unique_ptr<IoPort> inner)
      : backend_(backend), inner_(std::move(inner)) {}

  Status Submit(std::span<const RawRequest> requests) override {
    std::vector<RawRequest> passed;
    for (RawRequest request : requests) {
      const auto kind = request.kind == RawRequest::Kind::kRead ? FaultKind::kRead : FaultKind::kWrite;
      const std::unique_ptr<FaultPlan> plan = backend_.Next(kind);
      if (plan != nullptr && plan->error != 0) {
        struck_.push_back({.user_data = request.user_data, .result = -plan->error});
        continue;
      }
      // Half, in whole blocks: a direct transfer of anything else would be refused as misaligned.
      constexpr uint32_t kBlockBytes = 512;
      if (plan != nullptr && request.bytes >= 2 * kBlockBytes) {
        request.bytes = request.bytes / 2 / kBlockBytes * kBlockBytes;
      }
      passed.push_back(request);
    }
    return inner_->Submit(passed);
  }

  Result<size_t> Wait(size_t count_min, std::span<RawCompletion> out) override {
    size_t count = 0;
    for (; !struck_.empty() && count < out.size(); count++) {
      out[count] = struck_.front();
      struck_.pop_front();
    }
    if (count == out.size()) return count;
    QUARRY_TRY(const size_t more,
               inner_->Wait(count_min > count ? count_min - count : 0, out.subspan(count)));
    return count + more;
  }

 private:
  FaultBackend& backend_;
  const std::unique_ptr<IoPort> inner_;
  std::deque<RawCompletion> struck_;
};

void FaultBackend::SetPlans(std::vector<FaultPlan> plans) {
  MutexLock lock(mutex_);
  plans_ = std::move(plans);
  for (auto& count : counts_) count = 0;
  strikes_ = 0;
}

std::unique_ptr<FaultPlan> FaultBackend::Next(FaultKind kind) {
  const uint64_t number = ++counts_[static_cast<size_t>(kind)];
  MutexLock lock(mutex_);
  const auto strikes = [&](const FaultPlan& plan) {
    return plan.kind == kind && plan.at > 0 && (plan.sticky ? number >= plan.at : number == plan.at);
  };
  const auto plan = std::find_if(plans_.begin(), plans_.end(), strikes);
  if (plan == plans_.end()) return nullptr;
  strikes_++;
  return std::make_unique<FaultPlan>(*plan);
}

Status FaultBackend::Strike(FaultKind kind, std::string_view what, const std::string& path) {
  const std::unique_ptr<FaultPlan> plan = Next(kind);
  if (plan == nullptr) return Status::Ok();
  return ErrnoStatus(plan->error == 0 ? EIO : plan->error, what, path);
}

Result<std::unique_ptr<IoPort>> FaultBackend::NewPort(unsigned depth) {
  QUARRY_TRY(std::unique_ptr<IoPort> inner, inner_.NewPort(depth));
  return std::unique_ptr<IoPort>(std::make_unique<FaultPort>(*this, std::move(inner)));
}

Result<File> FaultBackend::Open(const std::string& path, OpenMode mode) {
  QUARRY_RETURN_IF_ERROR(Strike(FaultKind::kOpen, "open", path));
  return inner_.Open(path, mode);
}

Status FaultBackend::ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) {
  QUARRY_RETURN_IF_ERROR(Strike(FaultKind::kRead, "read", file.path()));
  return inner_.ReadAt(file, offset, out);
}

Status FaultBackend::WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) {
  QUARRY_RETURN_IF_ERROR(Strike(FaultKind::kWrite, "write", file.path()));
  return inner_.WriteAt(file, offset, bytes);
}

Status FaultBackend::SyncFile(const File& file) {
  QUARRY_RETURN_IF_ERROR(Strike(FaultKind::kSync, "sync", file.path()));
  return inner_.SyncFile(file);
}

Status FaultBackend::SyncDirectory(const std::string& path) {
  QUARRY_RETURN_IF_ERROR(Strike(FaultKind::kSync, "sync", path));
  return inner_.SyncDirectory(path);
}

Status FaultBackend::Rename(const std::string& from, const std::string& to) {
  QUARRY_RETURN_IF_ERROR(Strike(FaultKind::kRename, "rename", from));
  return inner_.Rename(from, to);
}

}  // namespace quarry
