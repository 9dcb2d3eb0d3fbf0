// Session::Reads: tables, blocks and embeddings, which the workers read, and the snapshots that a client holds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "session_bulk.h"

namespace quarry {

class Session::Reads final : Part {
 public:
  explicit Reads(Session& session) : Part(session) {}
  void On(uint64_t id, const wire::Describe& request);
  void On(uint64_t id, const wire::Lookup& request);
  void On(uint64_t id, const wire::Sample& request);
  void On(uint64_t id, const wire::ReadEmbeddings& request);
  void On(uint64_t id, const wire::TakeSnapshot& request);
  void On(uint64_t id, const wire::ReleaseSnapshot& request);
  void End() { snapshots_.clear(); }

  // The view of a snapshot; null for 0. kUsage when the session has none of this id.
  Result<std::shared_ptr<StoredTables::View>> FindSnapshot(uint64_t snapshot) const;

 private:
  struct LookupWork;
  void LookUp(uint64_t id, const std::shared_ptr<LookupWork>& work);
  Result<bool> LookUpSome(LookupWork& work, const Task& task);  // on a worker
  static Status WriteBlock(const BatchView& block, Bulk::Answer& answer);

  uint64_t snapshots_made_ = 0;
  std::map<uint64_t, std::shared_ptr<StoredTables::View>> snapshots_;
};

}  // namespace quarry
