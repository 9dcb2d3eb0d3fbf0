#include "session_upkeep.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "quarry/base/process.h"
#include "quarry/base/trace.h"

namespace quarry {
namespace {

constexpr std::chrono::milliseconds kProgressPause{100};

// What takes moments, and is in order among commits of embeddings anyway, waits for nobody's turn.
bool IsShort(const wire::MaintenanceTask& task) {
  return std::holds_alternative<wire::CreateEmbeddings>(task) ||
         std::holds_alternative<wire::DropEmbeddings>(task) ||
         std::holds_alternative<wire::InspectDatabase>(task);
}

// The server's machine is its own: a client gets no more threads than there are processors.
wire::MaintenanceTask WithThreads(wire::MaintenanceTask task) {
  auto* const build = std::get_if<wire::BuildLayout>(&task);
  if (build != nullptr) build->threads = std::min<uint32_t>(build->threads, ProcessorCount());
  return task;
}

template <typename T, typename BytesOf>
void Cut(std::vector<T>& list, uint64_t& room, BytesOf bytes_of) {
  constexpr uint64_t kListed = 64;  // of an entry, beside its text
  size_t count = 0;
  for (const T& entry : list) {
    const uint64_t bytes = bytes_of(entry) + kListed;
    if (count == wire::kListedMax || bytes > room) break;
    room -= bytes;
    ++count;
  }
  list.resize(count);
}

// As many counters, faults, damages and notes as a message of so many bytes has room for.
void Cut(wire::MaintenanceReport& report, uint64_t room) {
  const auto text_bytes = [](const std::string& text) { return text.size(); };
  Cut(report.counters, room, [](const wire::Counter& counter) { return counter.name.size(); });
  Cut(report.faults, room, text_bytes);
  Cut(report.damages, room, [](const wire::Damage& damage) { return damage.name.size(); });
  Cut(report.notes, room, text_bytes);
}

}  // namespace

// A checkpoint or an export is made with the server's rights, in a place that the client names: only who has
// these rights may ask for one.
Status Session::Upkeep::MayMaintain(const wire::MaintenanceTask& task) const {
  const std::string* const path = PathOf(task);
  if (path == nullptr) return Status::Ok();
  if (user() != geteuid() && user() != 0) {
    return MakeStatus(Code::kUsage,
                      "{} is made with the server's rights: only its own user ({}) and root may ask for one, "
                      "not user {}",
                      NameOf(task), geteuid(), user());
  }
  if (path->starts_with('/')) return Status::Ok();
  return MakeStatus(
      Code::kInvalidArgument,
      "\"{}\": the server makes {}, in a folder that is not the client's: give the path from / on", *path,
      NameOf(task));
}

// At most ten a second, and none while the client has not taken what was sent: a slow reader holds no more for
// it.
ProgressFunction Session::Upkeep::ProgressOf(uint64_t id, const std::atomic<bool>& cancelled) {
  return [this, id, &cancelled, next = Clock::time_point()](std::string_view phase, uint64_t done,
                                                            uint64_t total) mutable {
    if (cancelled) return CancelledStatus();
    const Clock::time_point now = Clock::now();
    if (now < next) return Status::Ok();
    next = now + kProgressPause;
    const wire::Progress progress = {std::string(phase.substr(0, wire::kFailureBytesMax)), done, total};
    session_.Post([this, id, progress] {
      if (Find(id) != nullptr && session_.connection_.idle()) session_.Send(id, progress);
    });
    return Status::Ok();
  };
}

// The turn ends before the answer is sent, so that whoever has it may ask for the next task.
void Session::Upkeep::On(uint64_t id, const wire::Maintain& request) {
  using Report = wire::MaintenanceReport;
  if (const Status may = MayMaintain(request.task); !may.ok()) return Reply(id, may);
  const auto turn = std::make_shared<MaintenanceTurn::Hold>();
  if (!IsShort(request.task)) {
    auto taken = core_.maintenance_turn.Take(NameOf(request.task));
    if (!taken.ok()) return Reply(id, taken.status());
    *turn = std::move(taken).value();
  }
  const auto run = [this, id, task = WithThreads(request.task), turn](const Task& work) -> Result<Report> {
    const ScopedSpan span("maintain");
    const MaintenanceTurn::Hold hold = std::exchange(*turn, nullptr);
    // What streams held that the client closed before it asked for this is the task's.
    core_.hub->WaitClosed(budget());
    return core_.maintenance.Run(task, budget(), ProgressOf(id, work.cancelled));
  };
  Workers& workers = !IsShort(request.task)    ? core_.maintainers
                     : OnlyReads(request.task) ? core_.readers
                                               : core_.writers;
  Work<Report>(workers, id, run, [this, id, turn](Result<Report> report) {
    turn->reset();
    if (!report.ok()) return Reply(id, report.status());
    Cut(*report, session_.chunk_bytes_max_ / 2);
    Reply(id, *report);
  });
}

void Session::Upkeep::On(uint64_t id, const wire::ReadManifest&) {
  const auto bytes = std::make_shared<const std::vector<std::byte>>(EncodeManifest(*core_.store.manifest()));
  bulk().MakeRoom(id, bytes->size(), [this, id, bytes](const std::shared_ptr<Bulk::Answer>& answer) {
    std::ranges::copy(*bytes, answer->bytes().begin());
    bulk().ReplyWith(id, Status::Ok(), *answer,
                     [](wire::Payload payload) { return wire::ManifestBytes{std::move(payload)}; });
  });
}

}  // namespace quarry
