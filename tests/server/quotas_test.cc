// What one user, or one client, may have of a server, and what the others have in spite of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "admission.h"
#include "admission_queue.h"
#include "connection_slots.h"
#include "quarry/format/wire_batch.h"
#include "served_database.h"
#include "session_memory.h"
#include "sql_disk.h"
#include "staged_put.h"
#include "support/status_matchers.h"
#include "user_shares.h"

namespace quarry {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;
using testing_util::Eventually;
using testing_util::ServedDatabase;
using testing_util::WirePeer;
using Time = AdmissionQueue::Clock::time_point;

TEST(UserSharesTest, WhoIsAloneHasAllOfIt) {
  UserShares shares(1000, {7});
  EXPECT_EQ(shares.Left(7), 1000U);
  shares.Take(7, 1000);
  EXPECT_EQ(shares.Left(7), 0U);
  EXPECT_FALSE(shares.several());
}

TEST(UserSharesTest, HalfIsKeptForThoseWhoMayCome) {
  UserShares shares(1000, {1, 2, 2});
  EXPECT_EQ(shares.Left(1), 750U);
  shares.Take(1, 750);
  EXPECT_EQ(shares.Left(1), 0U);
  EXPECT_EQ(shares.Left(2), 250U);
  EXPECT_EQ(shares.KeptLeft(2), 250U);
  shares.Take(2, 100);
  EXPECT_EQ(shares.KeptLeft(2), 150U);
  EXPECT_EQ(shares.Left(UserShares::kNobody), 0U);
  shares.Give(1, 750);
  EXPECT_EQ(shares.Left(2), 650U);
  EXPECT_EQ(shares.Left(UserShares::kNobody), 500U);
}

class AdmissionQueueTest : public testing::Test {
 protected:
  // So much is taken and given back at once, by a request that does not wait.
  bool Passes(uint64_t bytes, Time now, uid_t user = 0) {
    const uint64_t given = queue_.Ask({.user = user, .bytes = bytes, .bytes_min = bytes}, shares_, now);
    if (given > 0) shares_.Give(user, given);
    return given == bytes;
  }

  UserShares shares_{1000, {0}};
  AdmissionQueue queue_;
  const Time start_{seconds(1000)};
};

TEST_F(AdmissionQueueTest, WhatFitsPassesWhatDoesNot) {
  shares_.Take(0, 900);
  const uint64_t large = queue_.Wait({.bytes = 500, .bytes_min = 500});
  EXPECT_FALSE(queue_.Next(shares_, start_));
  const uint64_t small = queue_.Wait({.bytes = 50, .bytes_min = 50});
  const auto served = queue_.Next(shares_, start_);
  ASSERT_TRUE(served);
  EXPECT_EQ(served->ticket, small);
  EXPECT_TRUE(Passes(50, start_)) << "who does not wait, too";
  shares_.Give(0, 900);
  EXPECT_EQ(queue_.Next(shares_, start_)->ticket, large);
}

TEST_F(AdmissionQueueTest, WhoWasPassedOftenHasATurn) {
  shares_.Take(0, 900);
  const uint64_t large = queue_.Wait({.bytes = 500, .bytes_min = 500});
  for (uint32_t i = 0; i < AdmissionQueue::kPassesMax; ++i) EXPECT_TRUE(Passes(100, start_)) << i;
  EXPECT_FALSE(Passes(1, start_)) << "what is free is kept for it";
  const uint64_t small = queue_.Wait({.bytes = 1, .bytes_min = 1});
  EXPECT_FALSE(queue_.Next(shares_, start_));
  shares_.Give(0, 400);
  EXPECT_EQ(queue_.Next(shares_, start_)->ticket, large) << "and is enough in the end";
  EXPECT_FALSE(queue_.Next(shares_, start_)) << "of which nothing is left";
  shares_.Give(0, 500);
  EXPECT_EQ(queue_.Next(shares_, start_)->ticket, small);
}

TEST_F(AdmissionQueueTest, ATurnInVainEndsAndTheNextInTheQueueHasTheNextOne) {
  shares_.Take(0, 900);
  const uint64_t whole = queue_.Wait({.bytes = 1000, .bytes_min = 1000});
  const uint64_t half = queue_.Wait({.bytes = 500, .bytes_min = 500});
  for (int round = 0; round < 3; ++round) {
    const Time begin = start_ + round * 2 * AdmissionQueue::kTurn;
    for (uint32_t i = 0; i < AdmissionQueue::kPassesMax; ++i) Passes(100, begin);
    EXPECT_FALSE(Passes(100, begin + AdmissionQueue::kTurn - seconds(1))) << round;
    EXPECT_TRUE(Passes(100, begin + AdmissionQueue::kTurn)) << round << ": nobody waits longer for a turn";
  }
  shares_.Give(0, 400);
  EXPECT_EQ(queue_.Next(shares_, start_ + 10 * AdmissionQueue::kTurn)->ticket, half);
  EXPECT_TRUE(queue_.GiveUp(whole));
  EXPECT_FALSE(queue_.GiveUp(whole));
  EXPECT_EQ(queue_.size(), 0U);
}

TEST_F(AdmissionQueueTest, ATurnKeepsNothingOfWhatIsAnothersAnyway) {
  UserShares shares(1000, {1, 2});
  shares.Take(1, 700);
  queue_.Wait({.user = 1, .bytes = 1000, .bytes_min = 1000});
  for (uint32_t i = 0; i < AdmissionQueue::kPassesMax; ++i) {
    ASSERT_EQ(queue_.Ask({.user = 2, .bytes = 10}, shares, start_), 10U);
    shares.Give(2, 10);
  }
  EXPECT_EQ(queue_.Ask({.user = 1, .bytes = 10}, shares, start_), 0U) << "it has a turn";
  EXPECT_EQ(queue_.Ask({.user = 2, .bytes = 250, .bytes_min = 250}, shares, start_), 250U);
}

// Seeded requests: nothing is given twice, and everybody is served once others leave.
TEST_F(AdmissionQueueTest, EverybodyIsServedInTheEnd) {
  std::map<uint64_t, uint64_t> held;  // by when it ends
  std::map<uint64_t, uint64_t> waiting;
  uint64_t state = 20271;
  const auto random = [&state](uint64_t below) {
    state = state * 6364136223846793005 + 1442695040888963407;
    return (state >> 33) % below;
  };
  uint64_t longest = 0;
  for (uint64_t second = 0; second < 20'000; ++second) {
    const Time now = start_ + seconds(second);
    while (!held.empty() && held.begin()->first / 1000 <= second) {
      shares_.Give(0, held.begin()->second);
      held.erase(held.begin());
    }
    if (second < 19'000) {
      const uint64_t bytes = random(10) == 0 ? 1000 : 1 + random(200);
      waiting[queue_.Wait({.bytes = bytes, .bytes_min = bytes})] = second;
    }
    while (const auto served = queue_.Next(shares_, now)) {
      held[(second + 1 + random(4)) * 1000 + served->ticket % 1000] += served->bytes;
      longest = std::max(longest, second - waiting.at(served->ticket));
      waiting.erase(served->ticket);
    }
    ASSERT_LE(shares_.used(), 1000U);
  }
  EXPECT_TRUE(waiting.empty()) << waiting.size() << " starve";
}

TEST(AdmissionUsersTest, NobodyIsGrantedWhatIsKeptForAnother) {
  MemoryBudget budget(1000);
  Admission admission(budget, {1, 2});
  ASSERT_OK_AND_ASSIGN(const auto greedy,
                       admission.Ask({.user = 1, .bytes = uint64_t{1} << 60, .bytes_min = 1}));
  EXPECT_EQ(greedy->limit_bytes(), 750U);
  const auto more = admission.Ask({.user = 1, .bytes = 1, .bytes_min = 1});
  EXPECT_THAT(more.status().message(), HasSubstr("0 B of them for user 1"));
  const auto other = admission.Ask({.user = 2, .bytes = 250, .bytes_min = 250});
  EXPECT_OK(other);
}

TEST(ConnectionSlotsTest, WhoHoldsNothingMakesRoom) {
  using Clock = ConnectionSlots::Clock;
  std::map<uint64_t, Clock::time_point> spare;
  const auto since = [&](uint64_t connection) -> std::optional<Clock::time_point> {
    const auto found = spare.find(connection);
    return found == spare.end() ? std::nullopt : std::optional(found->second);
  };
  ConnectionSlots slots(4, {0});
  for (uint64_t connection = 1; connection <= 4; ++connection) {
    EXPECT_EQ(slots.Take(connection, 0, since).value(), std::nullopt);
  }
  EXPECT_THAT(slots.Take(5, 0, since), IsStatus(Code::kBusy));
  spare[2] = Clock::time_point(seconds(20));
  spare[3] = Clock::time_point(seconds(10));
  EXPECT_EQ(slots.Take(6, 0, since).value(), 3U) << "the one that has been spare the longest";
  EXPECT_EQ(slots.Take(7, 0, since).value(), 2U);
  EXPECT_THAT(slots.Take(8, 0, since), IsStatus(Code::kBusy));
  slots.Give(3);
  EXPECT_THAT(slots.Take(8, 0, since), IsStatus(Code::kBusy)) << "it had no place any more";
  slots.Give(1);
  EXPECT_EQ(slots.Take(8, 0, since).value(), std::nullopt);
}

TEST(ConnectionSlotsTest, PlacesAreKeptForEachUser) {
  const auto none = [](uint64_t) { return std::nullopt; };
  ConnectionSlots slots(8, {1, 2});
  uint64_t connection = 0;
  for (int i = 0; i < 6; ++i) ASSERT_OK(slots.Take(++connection, 1, none)) << i;
  const auto refused = slots.Take(++connection, 1, none);
  EXPECT_THAT(refused.status().message(), HasSubstr("kept for other users"));
  ASSERT_OK(slots.Take(++connection, 2, none));
  ASSERT_OK(slots.Take(++connection, 2, none));
  const auto all = [](uint64_t) { return std::optional(ConnectionSlots::Clock::time_point()); };
  EXPECT_LE(slots.Take(++connection, 1, all).value(), 6U) << "who comes takes the place of one's own";
}

class NoRows final : public LargeWrite {
 public:
  explicit NoRows(bool& open) : open_(open) { open_ = true; }
  ~NoRows() override { open_ = false; }
  Status Add(const WriteBatch&) override { return Status::Ok(); }
  Result<uint64_t> Commit() override { return 1; }

 private:
  bool& open_;
};

TEST(PutTurnTest, WhoFallsSilentIsGivenUpOnceAnotherWaits) {
  bool open = false;
  const PutTurn::Begin begin = [&]() -> Result<std::unique_ptr<PiecePut>> {
    if (open) return Status(Code::kBusy, "another is under way");
    return PiecePut::OfRows(std::make_unique<NoRows>(open), std::make_shared<const Manifest>());
  };
  PutTurn turn;
  const StagedPut::Clock::time_point start(seconds(100));
  const auto first = std::make_shared<StagedPut>(7);
  const auto second = std::make_shared<StagedPut>(8);
  const auto take = [&](const std::shared_ptr<StagedPut>& put, StagedPut::Clock::time_point now) {
    auto begun = turn.Take(put, begin, now);
    MutexLock lock(put->mutex);
    if (begun.ok()) put->put = std::move(begun).value();
    return begun.status();
  };
  ASSERT_OK(take(first, start));
  EXPECT_THAT(take(second, start + seconds(3600)), IsStatus(Code::kBusy))
      << "a piece of the first is at work";
  first->Rest(start + seconds(3600));
  EXPECT_THAT(take(second, start + seconds(3609)), IsStatus(Code::kBusy));
  EXPECT_TRUE(open);
  ASSERT_OK(take(second, start + seconds(3610)));
  MutexLock lock(first->mutex);
  EXPECT_THAT(first->ended, IsStatus(Code::kBusy, HasSubstr("put 7 was given up")));
}

TEST(SqlDiskTest, AConnectionHasAQuarterAndAUserItsPart) {
  SqlDisk disk(1000, {1, 2});
  SqlDisk::Part first(disk, 1);
  EXPECT_OK(first.Change(250));
  EXPECT_THAT(first.Change(1).message(), HasSubstr("--sql-temp"));
  {
    SqlDisk::Part second(disk, 1), third(disk, 1), fourth(disk, 1), other(disk, 2);
    EXPECT_OK(second.Change(250));
    EXPECT_OK(third.Change(250));
    EXPECT_THAT(fourth.Change(1), IsStatus(Code::kNoSpace)) << "what is left is kept for the other";
    EXPECT_OK(other.Change(250));
  }
  EXPECT_OK(first.Change(-250));
  SqlDisk::Part later(disk, 2);
  EXPECT_OK(later.Change(250));
}

class QuotasTest : public testing::Test {
 protected:
  // What the server holds in memory for regions of sessions that have ended, or is granted.
  double Figure(const std::string& name) {
    WirePeer peer(served_.socket());
    if (!peer.Hello().ok()) return -1;
    const auto counters = peer.CallFor<wire::Counters>(wire::Stats{});
    for (const wire::Counter& counter : counters->counters) {
      if (counter.name == name) return counter.value;
    }
    return -1;
  }

  static constexpr uint64_t kBudget = 64 * kMiB;
  ServedDatabase served_{{}, MakeDefaultBackend(), kBudget};
};

// A client that takes its regions out of its sessions, and keeps them.
class Hoarder {
 public:
  // False when there is no session for it. All of the regions' pages are there afterwards.
  bool TakeSession(const std::string& socket, uint64_t budget_bytes) {
    WirePeer peer(socket);
    if (!peer.Hello().ok()) return false;
    const auto opened = peer.CallFor<wire::SessionOpened>(
        wire::OpenSession{.budget_bytes = budget_bytes, .budget_bytes_min = budget_bytes});
    if (!opened.ok()) {
      refused_ = opened.status();
      return false;
    }
    for (const wire::Region& region : opened->regions) {
      const int descriptor = peer.TakeDescriptor();
      void* const memory = mmap(nullptr, region.bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, descriptor, 0);
      EXPECT_NE(memory, MAP_FAILED);
      close(descriptor);
      maps_.emplace_back(memory, region.bytes);
      bytes_ += region.bytes;
    }
    return true;
  }
  void LetGo() {
    for (const auto& [memory, bytes] : maps_) munmap(memory, bytes);
    maps_.clear();
    bytes_ = 0;
  }
  ~Hoarder() { LetGo(); }

  const Status& refused() const { return refused_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::vector<std::pair<void*, uint64_t>> maps_;
  uint64_t bytes_ = 0;
  Status refused_;
};

TEST_F(QuotasTest, SharedMemoryIsOnItsUsersAccountUntilItIsLetGo) {
  served_.Start();
  const auto whole = static_cast<uint64_t>(Figure("quarry_budget_bytes"));
  Hoarder hoarder;
  int sessions = 0;
  for (int i = 0; i < 40; ++i) sessions += hoarder.TakeSession(served_.socket(), whole / 4) ? 1 : 0;
  EXPECT_GT(sessions, 3);
  EXPECT_LE(hoarder.bytes(), whole) << "what is held of ended sessions is within the budget";
  EXPECT_THAT(hoarder.refused(), IsStatus(Code::kOutOfBudget));
  EXPECT_THAT(hoarder.refused().message(), HasSubstr("ended sessions, which a process still has open"));
  // The last session ends when the server sees that its connection has.
  EXPECT_TRUE(
      Eventually([&] { return Figure("quarry_lingering_bytes") == static_cast<double>(hoarder.bytes()); }));

  WirePeer patient(served_.socket());
  ASSERT_OK(patient.Hello());
  const uint64_t waits =
      patient.Send(wire::OpenSession{.budget_bytes = whole, .budget_bytes_min = whole, .wait_ms = 60'000});
  ASSERT_OK(patient.CallFor<wire::Done>(wire::Ping{}));
  hoarder.LetGo();
  const auto opened = patient.Await(waits);
  EXPECT_OK(opened);
}

uint64_t SharedMemoryOfTheSystem() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  for (std::string rest; file >> key >> kib && std::getline(file, rest);) {
    if (key == "Shmem:") return kib << 10;
  }
  return 0;
}

// At the size at which a machine of little memory would feel it.
TEST(LargeQuotasTest, FortySessionsOf512MiBStayWithinTheBudget) {
  if (std::getenv("QUARRY_TEST_ALL_LIMITS") == nullptr) GTEST_SKIP() << "QUARRY_TEST_ALL_LIMITS is not set";
  constexpr uint64_t kBudget = 4096 * kMiB, kSlack = 64 * kMiB;
  const uint64_t before = SharedMemoryOfTheSystem();
  ServedDatabase served({}, MakeDefaultBackend(), kBudget);
  served.Start();
  Hoarder hoarder;
  int sessions = 0;
  for (int i = 0; i < 40; ++i) sessions += hoarder.TakeSession(served.socket(), 512 * kMiB) ? 1 : 0;
  EXPECT_GE(sessions, 4);
  EXPECT_THAT(hoarder.refused(), IsStatus(Code::kOutOfBudget));
  EXPECT_LE(SharedMemoryOfTheSystem(), before + kBudget + kSlack);
  WriteBatch batch;
  const std::shared_ptr<const Manifest> manifest = served.store->manifest();
  const uint64_t row_bytes =
      RowBytes(manifest->FindTable("feature")->element_type, manifest->FindTable("feature")->dim);
  batch.Put("feature", 1, std::vector<std::byte>(row_bytes));
  const auto written = served.store->Write(batch, {.sync = true});
  EXPECT_OK(written);
  hoarder.LetGo();
  EXPECT_TRUE(hoarder.TakeSession(served.socket(), 512 * kMiB)) << hoarder.refused().ToString();
}

TEST_F(QuotasTest, StreamsThatAreClosedAndKeptAreOnTheSessionsAccount) {
  served_.Start();
  WirePeer peer(served_.socket());
  ASSERT_OK(peer.Open(32 * kMiB));
  std::vector<int> kept;
  const auto open = [&]() -> Result<uint64_t> {
    QUARRY_TRY(const auto opened, peer.CallFor<wire::StreamOpened>(wire::OpenStream{
                                      .road = wire::LiveSpec{.fanouts = {2}, .batch_size = 16}}));
    kept.push_back(peer.TakeDescriptor());
    return opened.stream;
  };
  Status refused;
  for (int i = 0; i < 1000 && refused.ok(); ++i) {
    const auto stream = open();
    if (stream.ok()) {
      ASSERT_OK(peer.CallFor<wire::Done>(wire::CloseStream{*stream}));
    } else {
      refused = stream.status();
    }
  }
  EXPECT_THAT(refused, IsStatus(Code::kOutOfBudget)) << kept.size() << " streams";
  for (const int descriptor : kept) close(descriptor);
  EXPECT_OK(open()) << "they are free as soon as they are let go";
}

TEST_F(QuotasTest, StreamsThatAreOpenedInALoopWriteNoLog) {
  served_.Start();
  WirePeer peer(served_.socket());
  ASSERT_OK(peer.Open(32 * kMiB));
  testing::internal::CaptureStderr();
  bool opens = true;
  for (int i = 0; i < 5 && opens; ++i) {
    const auto opened = peer.OpenStream({.road = wire::LiveSpec{.fanouts = {2}, .batch_size = 16}});
    opens = opened.ok() && peer.CallFor<wire::Done>(wire::CloseStream{opened->stream}).ok();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(opens);
}

// Takes as much for temporary files as it is told to, and asks for a byte more.
class GreedyRunner final : public SqlRunner {
 public:
  explicit GreedyRunner(int64_t bytes) : bytes_(bytes) {}
  void LimitMemory(uint64_t) override {}
  Result<std::unique_ptr<SqlConnection>> Connect(MemoryBudget&, const SqlOptions& options) override {
    QUARRY_RETURN_IF_ERROR(options.temp_files(bytes_));
    took_ = true;
    return options.temp_files(1);
  }
  bool took() const { return took_; }

 private:
  const int64_t bytes_;
  std::atomic<bool> took_ = false;
};

TEST_F(QuotasTest, TemporaryFilesOfSqlHaveALimit) {
  const auto runner = std::make_shared<GreedyRunner>(kMiB);
  served_.Start({.sql = runner, .sql_temp_bytes = 4 * kMiB});
  WirePeer peer(served_.socket());
  ASSERT_OK(peer.Open(8 * kMiB, wire::kInline | wire::kSql));
  for (int i = 0; i < 8; ++i) {
    const auto refused = peer.CallFor<wire::SqlOpened>(wire::OpenSql{});
    EXPECT_TRUE(runner->took()) << "a quarter may be had, each time again";
    EXPECT_THAT(refused, IsStatus(Code::kNoSpace, HasSubstr("a connection may have 1.00 MiB")));
  }
}

// What each writing request is answered, by a client that may only read.
std::vector<Status> AnswersToWrites(WirePeer& peer) {
  const wire::PutRows label = {
      .table = "label", .rows = 1, .row_bytes = 8, .block = std::vector<std::byte>(16)};
  const std::vector<wire::Request> writes = {
      wire::Put{.number = 1, .tables = {label}},
      wire::Put{.number = 2, .tables = {label}, .piece = 1},
      wire::CommitEmbeddings{.number = 3,
                             .updates = {{.table = "vectors",
                                          .rows = 1,
                                          .dim = 1,
                                          .block = std::vector<std::byte>(wire::RowBlockBytes({1, 1, 0}))}}},
      wire::SaveTraining{.name = "run", .state_bytes = 8, .piece = std::vector<std::byte>(8)},
      wire::OpenStream{.road = wire::SuperbatchSpec{}},
      wire::OpenSql{.write = true},
  };
  std::vector<Status> answers;
  for (const wire::Request& request : writes) answers.push_back(peer.Call(request).status());
  return answers;
}

TEST_F(QuotasTest, AReadOnlyServerTakesNoWrites) {
  served_.Start({.read_only = true});
  const auto files = [&] {
    std::map<std::string, std::filesystem::file_time_type> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(served_.tiny.path())) {
      all.emplace(entry.path(), entry.last_write_time());
    }
    return all;
  };
  const auto before = files();
  WirePeer peer(served_.socket());
  ASSERT_OK(peer.Open(8 * kMiB));
  for (const Status& answer : AnswersToWrites(peer)) {
    EXPECT_THAT(answer, IsStatus(Code::kUsage, HasSubstr("read-only (quarry serve --read-only)")));
  }
  EXPECT_OK(peer.CallFor<wire::Rows>(wire::Lookup{"label", std::vector<NodeId>{1}}));
  EXPECT_OK(peer.OpenStream({.road = wire::LiveSpec{.fanouts = {2}, .batch_size = 16}}));
  ASSERT_OK(served_.server->Stop());
  EXPECT_EQ(files(), before) << "nothing was written";
}

TEST_F(QuotasTest, AUserMayHaveTheRoleOfAReader) {
  served_.Start({.read_only_uids = {geteuid()}});
  WirePeer peer(served_.socket());
  ASSERT_OK(peer.Open(8 * kMiB));
  for (const Status& answer : AnswersToWrites(peer)) {
    EXPECT_THAT(answer, IsStatus(Code::kUsage, HasSubstr(":ro)")));
  }
  EXPECT_OK(peer.CallFor<wire::Rows>(wire::Lookup{"label", std::vector<NodeId>{1}}));
  served_.server.reset();
  served_.Start({.read_only_uids = {geteuid() + 1}});
  WirePeer writer(served_.socket());
  ASSERT_OK(writer.Open(8 * kMiB));
  for (const Status& answer : AnswersToWrites(writer)) {
    EXPECT_THAT(answer.message(), Not(HasSubstr("quarry serve"))) << "another user's role";
  }
}

TEST_F(QuotasTest, AServerThatCouldServeNobodyDoesNotStart) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, kMiB}) {
    MemoryBudget budget(bytes);
    const Status status = Server::Start(*served_.store, budget, {.socket_path = served_.socket()}).status();
    EXPECT_THAT(status, IsStatus(Code::kOutOfBudget, HasSubstr("1398102")));
  }
  MemoryBudget least(1398102);
  const auto server = Server::Start(*served_.store, least, {.socket_path = served_.socket()});
  ASSERT_OK(server);
  WirePeer peer(served_.socket());
  EXPECT_OK(peer.Open(kMiB)) << "and with so much, it serves one";
}

TEST_F(QuotasTest, MetricsAreAskedOverAUnixSocketOfTheServersUsers) {
  served_.Start({.metrics = true});
  const std::string path = MetricsPath(served_.socket());
  struct stat about {};
  ASSERT_EQ(stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600U);
  EXPECT_EQ(served_.server->metrics_port(), 0) << "nothing listens on the network";
  const int socket = testing_util::ConnectTo(path);
  ASSERT_GE(socket, 0);
  const std::string_view request = "GET /metrics HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n";
  ASSERT_EQ(send(socket, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
  std::string answer;
  for (char piece[4096];;) {
    const ssize_t bytes = recv(socket, piece, sizeof(piece), 0);
    if (bytes <= 0) break;
    answer.append(piece, static_cast<size_t>(bytes));
  }
  close(socket);
  EXPECT_THAT(answer, testing::StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("quarry_sessions 0"));
  ASSERT_OK(served_.server->Stop());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(QuotasTest, IdleConnectionsMakeRoomForWhoComes) {
  served_.Start({.sessions_max = 4});
  WirePeer at_work(served_.socket());
  ASSERT_OK(at_work.Open(kMiB));
  std::vector<std::unique_ptr<WirePeer>> idle;
  for (int i = 0; i < 3; ++i) {
    idle.push_back(std::make_unique<WirePeer>(served_.socket()));
    ASSERT_OK(idle.back()->Hello());
  }
  const std::array<std::byte, 16> header = {std::byte{64}};  // of a frame that never comes
  ASSERT_TRUE(idle.front()->SendBytes(header));
  WirePeer comes(served_.socket());
  ASSERT_OK(comes.Open(kMiB));
  EXPECT_TRUE(idle.front()->IsClosed()) << "the one that was idle the longest";
  EXPECT_THAT(idle.front()->last_failure(), IsStatus(Code::kBusy));
  EXPECT_OK(at_work.CallFor<wire::Done>(wire::Ping{})) << "an open session is nobody's to close";
  EXPECT_OK(idle.back()->CallFor<wire::Done>(wire::Ping{}));
}

}  // namespace
}  // namespace quarry
