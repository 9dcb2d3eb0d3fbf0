#include "session_trainings.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "quarry/base/trace.h"
#include "quarry/storage/edges.h"

namespace quarry {
namespace {

// Edges go to an answer in pieces of about this many, which no budget pays.
constexpr uint64_t kPieceEdges = 16 << 10;

void WriteEdges(const EdgeList& list, uint64_t first, std::span<std::byte> out) {
  std::vector<Triple> piece;
  for (uint64_t left = out.size() / wire::kEdgeBytes; left > 0; left -= piece.size()) {
    piece.resize(std::min(left, kPieceEdges));
    list.Read(first, piece);
    const auto bytes = std::as_bytes(std::span(piece));
    std::ranges::copy(bytes, out.begin());
    out = out.subspan(bytes.size());
    first += piece.size();
  }
}
static_assert(sizeof(Triple) == wire::kEdgeBytes);

}  // namespace

// What has come up of a state.
// Pieces are staged in the session and paid from its budget with the first one. With the last, the state is
// committed as the database itself commits one: a file, synced, then one manifest. A session that ends, or a
// trainer that is killed, leaves half a state, which counts for nothing; a client that loses its connection
// sends all pieces again. The same bytes saved twice are the same state, so this write needs no number.
struct Session::Trainings::StagedState {
  std::string name;
  uint64_t state_bytes = 0;
  MemoryBudget::Reservation reservation;
  std::vector<std::byte> bytes;
};

Status Session::Trainings::Stage(const wire::SaveTraining& request, StagedState& staged) const {
  std::span<const std::byte> piece;
  if (const auto* const bytes = std::get_if<std::vector<std::byte>>(&request.piece)) {
    piece = *bytes;
  } else {
    QUARRY_TRY(piece, bulk().Uploaded(std::get<wire::Range>(request.piece)));
  }
  if (request.offset == 0) {
    QUARRY_RETURN_IF_ERROR(core_.trainings.CheckRoom(request.name));
    QUARRY_TRY(staged.reservation, budget().Reserve(request.state_bytes, "a training state"));
    staged.bytes.reserve(request.state_bytes);
  }
  staged.bytes.insert(staged.bytes.end(), piece.begin(), piece.end());
  return Status::Ok();
}

void Session::Trainings::On(uint64_t id, const wire::SaveTraining& request) {
  std::shared_ptr<StagedState> staged = std::exchange(staged_, nullptr);
  if (request.offset == 0) {
    staged = std::make_shared<StagedState>();
    staged->name = request.name;
    staged->state_bytes = request.state_bytes;
  }
  if (staged == nullptr || staged->name != request.name || staged->state_bytes != request.state_bytes ||
      staged->bytes.size() != request.offset) {
    return Reply(id, MakeStatus(Code::kUsage,
                                "the piece at {} of the state of training run \"{}\" does not follow one "
                                "that this session has brought: begin at 0",
                                request.offset, request.name));
  }
  using Saved = std::optional<wire::Training>;
  const auto save = [this, request, staged](const Task&) -> Result<Saved> {
    QUARRY_RETURN_IF_ERROR(Stage(request, *staged));
    if (staged->bytes.size() < request.state_bytes) return Saved();
    QUARRY_TRY(wire::Training saved, core_.trainings.Save(request, staged->bytes));
    return Saved(std::move(saved));
  };
  Work<Saved>(core_.writers, id, save, [this, id, staged](const Result<Saved>& saved) {
    if (!saved.ok()) return Reply(id, saved.status());
    if (saved->has_value()) return Reply(id, **saved);
    if (is_open()) staged_ = staged;
    Reply(id, wire::Done{});
  });
}

// A state may be larger than the region for answers: it is leased where the file was read to.
void Session::Trainings::On(uint64_t id, const wire::ReadTraining& request) {
  const auto read = [this, request](const Task&) -> Result<Bulk::HeldState> {
    QUARRY_TRY(TrainingService::Read training, core_.trainings.ReadTraining(request, budget()));
    return std::make_shared<TrainingService::Read>(std::move(training));
  };
  Work<Bulk::HeldState>(core_.readers, id, read, [this, id](const Result<Bulk::HeldState>& result) {
    if (!result.ok()) return Reply(id, result.status());
    if (Find(id) == nullptr) return;
    const Bulk::HeldState& held = *result;
    wire::Training answer = held->training;
    if (held->state.size() <= kUnpaidBytes) {
      answer.state = held->state;
    } else {
      answer.state = bulk().LeaseOut({.bytes = held->state.size()}, held);
    }
    Reply(id, answer);
  });
}

struct Session::Trainings::OpenEdges {
  std::string topology;
  std::unique_ptr<EdgeList> list;
};

bool Session::Trainings::GoesOn(const OpenEdges& open, const wire::ReadEdges& request) const {
  if (open.topology != request.topology) return false;
  if (request.list != 0) return request.list == open.list->number();
  if (request.first > 0) return true;
  const std::shared_ptr<const Manifest> newest = core_.store.manifest();
  return open.list->CheckIs(EdgeList::NumberOf(*newest->FindTopology(request.topology))).ok();
}

// The list stays open until its last edge is given, or another one is asked for: of another topology, of another number, or
// one that begins when there are other edges by now.
void Session::Trainings::On(uint64_t id, const wire::ReadEdges& request) {
  using Edges = std::shared_ptr<OpenEdges>;
  Edges edges = std::exchange(edges_, nullptr);
  if (edges != nullptr && !GoesOn(*edges, request)) edges = nullptr;
  const auto open = [this, request, edges](const Task&) -> Result<Edges> {
    if (edges != nullptr) return edges;
    const ScopedSpan span("open edges");
    QUARRY_TRY(std::unique_ptr<EdgeList> list, EdgeList::Open(core_.store, budget(), request.topology));
    return std::make_shared<OpenEdges>(OpenEdges{request.topology, std::move(list)});
  };
  Work<Edges>(core_.readers, id, open, [this, id, request](const Result<Edges>& opened) {
    if (!opened.ok()) return Reply(id, opened.status());
    const Edges& list = *opened;
    if (const Status is = list->list->CheckIs(request.list); !is.ok()) return Reply(id, is);
    const uint64_t left = list->list->size() - std::min(request.first, list->list->size());
    const uint64_t count = std::min<uint64_t>(request.count, left);
    if (count < left && is_open()) edges_ = list;
    bulk().MakeRoom(id, count * wire::kEdgeBytes, [=, this](const std::shared_ptr<Bulk::Answer>& answer) {
      Work<bool>(
          core_.readers, id,
          [list, first = request.first, answer](const Task&) -> Result<bool> {
            const ScopedSpan span("read edges");
            WriteEdges(*list->list, first, answer->bytes());
            return true;
          },
          [this, id, count, number = list->list->number(), answer](const Result<bool>& done) {
            bulk().ReplyWith(id, done.status(), *answer, [&](wire::Payload payload) {
              return wire::Edges{count, std::move(payload), number};
            });
          });
    });
  });
}

void Session::Trainings::End() {
  staged_.reset();
  edges_.reset();
}

}  // namespace quarry
