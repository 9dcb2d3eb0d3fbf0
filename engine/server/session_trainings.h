// Session::Trainings: states of training runs, in pieces as they come up, and the edges that link prediction trains on.
#pragma once

#include <cstdint>
#include <memory>

#include "session_bulk.h"

namespace quarry {

class Session::Trainings final : Part {
 public:
  explicit Trainings(Session& session) : Part(session) {}
  void On(uint64_t id, const wire::SaveTraining& request);
  void On(uint64_t id, const wire::ReadTraining& request);
  void On(uint64_t id, const wire::ReadEdges& request);
  void End();

 private:
  struct StagedState;
  struct OpenEdges;
  // Takes the request's piece, and the memory for all of them with the first.
  Status Stage(const wire::SaveTraining& request, StagedState& staged) const;

  // Whether the list that is open is the one that the request is for.
  bool GoesOn(const OpenEdges& open, const wire::ReadEdges& request) const;

  // What the request before left for the next one; null while one is at work with it.
  std::shared_ptr<StagedState> staged_;
  std::shared_ptr<OpenEdges> edges_;
};

}  // namespace quarry
