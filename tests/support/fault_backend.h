// FaultBackend: an IoBackend that passes everything on to another and makes chosen operations fail. For
// tests.
//
// Operations are counted from 1 in the order in which they arrive, each kind by itself; a plan names a kind,
// the count at which it strikes and what happens then. So a test can fail the k-th operation for k = 1, 2,
// ... until a run completes without a strike, which covers every place where the code under test touches the
// disk. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "quarry/base/mutex.h"
#include "support/backend_wrapper.h"

namespace quarry {

// kOpen: of a file that exists; kCreate: of a new one; kWrite: truncating and cloning too; kLink: of a new
// name for a file; kRemove: of a file or a folder.
enum class FaultKind : uint8_t {
  kOpen,
  kCreate,
  kRead,
  kWrite,
  kSync,
  kRename,
  kCreateDirectory,
  kLink,
  kRemove
};
inline constexpr size_t kFaultKindCount = 9;

// What befalls an operation:
//   EINTR, EAGAIN, 0 (a short transfer)   a port's completes so. ReadAt and WriteAt, which are whole or fail,
//                                         are passed on, since what is behind them retries these itself.
//   other (EIO, ENOSPC, ...)              fails with it. A struck write, a port's too, leaves half its bytes
//                                         behind, as a disk that fills up does.
struct FaultPlan {
  FaultKind kind = FaultKind::kRead;
  uint64_t at = 0;      // the first operation of the kind that is struck, from 1; 0 = none
  bool sticky = false;  // every later one too
  int error = 0;        // errno; 0 = half a transfer, in whole blocks (one too small for that: EINTR)
};

class FaultBackend final : public BackendWrapper {
 public:
  // `inner` outlives this backend and its ports.
  explicit FaultBackend(IoBackend& inner) : BackendWrapper(inner) {}

  // Also restarts the counts. Where several plans strike one operation, the first one applies.
  void SetPlans(std::vector<FaultPlan> plans);
  uint64_t count(FaultKind kind) const { return counts_[static_cast<size_t>(kind)].load(); }
  uint64_t strikes() const { return strikes_.load(); }

  // Counts an operation of `kind` and says which plan strikes it. For the backend's own ports.
  std::optional<FaultPlan> Count(FaultKind kind);

  std::string_view name() const override { return "fault"; }
  Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) override;
  Result<File> Open(const std::string& path, OpenMode mode) override;
  Status ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) override;
  Status WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) override;
  Status Truncate(const File& file, uint64_t bytes) override;
  Result<bool> Clone(const File& from, const File& to) override;
  Status SyncFile(const File& file) override;
  Status SyncDirectory(const std::string& path) override;
  Status CreateDirectory(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Link(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;

 private:
  // The error to fail with when a plan strikes.
  Status Strike(FaultKind kind, std::string_view what, const std::string& path);

  std::array<std::atomic<uint64_t>, kFaultKindCount> counts_{};
  std::atomic<uint64_t> strikes_{0};
  Mutex mutex_;
  std::vector<FaultPlan> plans_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
