#include <algorithm>
#include <map>

#include "quarry/base/units.h"
#include "quarry/objects/push.h"
#include "transfer_slots.h"

namespace quarry {
namespace {

constexpr unsigned kVerifyingMax = 64;
constexpr size_t kRemoteFaultsMax = 100;

// Only this file's answers come while it is read, so that a fault of one block leaves the others in order.
class RemoteVerifier {
 public:
  RemoteVerifier(ObjectStore& store, const ProgressFunction& progress, uint64_t total)
      : store_(store), progress_(progress), total_(total) {}

  Status Verify(TransferSlots& slots, const RemoteFile& file) {
    for (size_t block = 0; block < file.blocks.size(); block++) {
      QUARRY_TRY(TransferSlots::Slot* const slot, slots.Take());
      const uint64_t bytes = file.BlockBytes(block);
      const auto check = [&file, block](std::span<const std::byte> got) { return file.Check(block, got); };
      auto done = slot->Done([this, bytes](const ObjectAnswer&) { return Advance(bytes); });
      store_.StartGet({.key = file.Key(),
                       .offset = block * kRemoteBlockBytes,
                       .into = slot->buffer().first(bytes),
                       .check = check},
                      [this, done = std::move(done)](Result<ObjectAnswer> answer) {
                        // A block that stays wrong after all attempts is a finding; others go on.
                        if (answer.status().code() != Code::kCorruption) return done(std::move(answer));
                        {
                          MutexLock lock(mutex_);
                          faults_.push_back(answer.status());
                        }
                        done(ObjectAnswer{});
                      });
    }
    return Status::Ok();
  }

  Status Advance(uint64_t bytes) {
    done_ += bytes;
    return progress_ ? progress_("verifying", done_, total_) : Status::Ok();
  }
  void Report(std::vector<Status>& faults) {
    MutexLock lock(mutex_);
    faults.insert(faults.end(), faults_.begin(), faults_.end());
  }

 private:
  ObjectStore& store_;
  const ProgressFunction& progress_;
  const uint64_t total_;
  uint64_t done_ = 0;
  Mutex mutex_;
  std::vector<Status> faults_ QUARRY_GUARDED_BY(mutex_);
};

Result<RemoteVerification> VerifyAll(ObjectStore& store, MemoryBudget& budget, const RemoteManifest& manifest,
                                     const ProgressFunction& progress) {
  RemoteVerification found{.files = manifest.files.size(), .bytes = manifest.bytes(), .faults = {}};
  QUARRY_TRY(const std::vector<ListedObject> listed, store.List("data/"));
  std::map<std::string, uint64_t> sizes;
  for (const ListedObject& object : listed) sizes.emplace(object.key, object.bytes);
  RemoteVerifier verifier(store, progress, found.bytes);
  QUARRY_TRY(const auto slots, TransferSlots::Make(store, budget, kRemoteBlockBytes, kVerifyingMax,
                                                   [&] { return verifier.Advance(0); }));
  std::map<std::string, bool> seen;
  for (const RemoteFile& file : manifest.files) {
    const std::string key = file.Key();
    const auto object = sizes.find(key);
    const std::string place = store.place().address() + "/" + key;
    if (object == sizes.end()) {
      found.faults.push_back(MakeStatus(Code::kCorruption, "{}: missing: it is {}", place, file.name));
    } else if (object->second != file.bytes) {
      found.faults.push_back(MakeStatus(Code::kCorruption, "{}: {} bytes instead of {}: it is {}", place,
                                        object->second, file.bytes, file.name));
    } else if (seen.emplace(key, true).second) {
      QUARRY_RETURN_IF_ERROR(verifier.Verify(*slots, file));
      continue;
    }
    QUARRY_RETURN_IF_ERROR(verifier.Advance(file.bytes));
    if (found.faults.size() >= kRemoteFaultsMax) break;
  }
  QUARRY_RETURN_IF_ERROR(slots->Drain());
  verifier.Report(found.faults);
  return found;
}

}  // namespace

Result<RemoteVerification> VerifyPublished(ObjectStore& store, MemoryBudget& budget,
                                           const RemoteManifest& manifest, const ProgressFunction& progress) {
  Result<RemoteVerification> found = VerifyAll(store, budget, manifest, progress);
  if (!found.ok()) store.Cancel();
  return found;
}

}  // namespace quarry
