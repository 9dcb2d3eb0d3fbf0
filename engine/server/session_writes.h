// Session::Writes: rows that are put, at once or in pieces, and commits of embeddings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "session_bulk.h"
#include "staged_put.h"

namespace quarry {

class Session::Writes final : Part {
 public:
  explicit Writes(Session& session) : Part(session) {}
  void On(uint64_t id, const wire::Put& request);
  void On(uint64_t id, const wire::ForgetPut& request);
  void On(uint64_t id, const wire::CommitEmbeddings& request);
  void End() { DropPut(); }

 private:
  // On workers.
  struct PutBatch;
  Result<PutBatch> BatchOf(const wire::Put& request, const Manifest& manifest) const;
  Status AddTo(PiecePut& put, const wire::Put& request) const;
  static Result<wire::Response> CommitOf(PiecePut& put);
  Result<wire::Response> DoPut(const wire::Put& request);
  Status Stage(const wire::Put& request, const std::shared_ptr<StagedPut>& staged) const;
  Result<wire::Response> DoCommit(const wire::CommitEmbeddings& request);

  Result<std::shared_ptr<StagedPut>> NextPiece(const wire::Put& request);
  void PutPiece(uint64_t id, const wire::Put& request);
  void DropPut();
  using WriteWork = std::function<Result<wire::Response>()>;
  void Write(uint64_t id, uint64_t number, const WriteWork& work);

  std::shared_ptr<StagedPut> staged_;  // the last of them, which may have ended
};

}  // namespace quarry
