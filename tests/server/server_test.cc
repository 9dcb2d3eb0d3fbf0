// The server as strangers see it: who may connect, what is refused and what ends a connection, whose memory
// is whose, and how it starts and stops.
#include "quarry/server/server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <fstream>

#include "format/wire_hostile.h"
#include "quarry/base/process.h"
#include "quarry/format/wire_batch.h"
#include "served_database.h"
#include "support/status_matchers.h"
#include "support/thread_faults.h"
#include "support/zygote.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::ConnectTo;
using testing_util::Eventually;
using testing_util::OpenDescriptors;
using testing_util::ServedDatabase;
using testing_util::TinyGraph;
using testing_util::WirePeer;
using testing_util::Zygote;

class ServerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { served_ = new ServedDatabase(TinyGraph{}); }
  static void TearDownTestSuite() {
    delete served_;
    served_ = nullptr;
  }
  void TearDown() override { served_->server.reset(); }

  // A figure of the server, by name.
  static double Figure(const std::string& name) {
    WirePeer peer(served_->socket());
    EXPECT_OK(peer.Hello());
    const auto stats = peer.CallFor<wire::Counters>(wire::Stats{});
    EXPECT_OK(stats);
    const auto found = std::ranges::find(stats->counters, name, &wire::Counter::name);
    EXPECT_NE(found, stats->counters.end()) << name;
    return found == stats->counters.end() ? -1 : found->value;
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat about {};
    EXPECT_EQ(stat(path.c_str(), &about), 0) << path;
    return about.st_mode & 07777;
  }
  static Status StartAt(const std::string& path, std::vector<uid_t> allow_uids = {}) {
    MemoryBudget budget(64 << 20);
    return Server::Start(*served_->store, budget, {.socket_path = path, .allow_uids = std::move(allow_uids)})
        .status();
  }

  static ServedDatabase* served_;
};
ServedDatabase* ServerTest::served_ = nullptr;

TEST_F(ServerTest, TheFolderIsMadeForTheUserAloneAndTheSocketToo) {
  served_->Start();
  EXPECT_EQ(ModeOf(served_->folder()), 0700U);
  EXPECT_EQ(ModeOf(served_->socket()), 0600U);
  ASSERT_OK(served_->server->Stop());
  EXPECT_FALSE(std::filesystem::exists(served_->socket())) << "a server that stops removes its socket";
}

// Whose lock the store holds.
TEST_F(ServerTest, TheSocketMayLieInTheDatabasesOwnFolder) {
  const std::string folder = served_->store->path();
  const auto before = std::filesystem::status(folder).permissions();
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(StartAt(folder + "/s"));
    EXPECT_FALSE(std::filesystem::exists(folder + "/s")) << "removed when it stopped";
  }
  std::filesystem::permissions(folder, before);
}

TEST_F(ServerTest, APathThatCannotBeIsRefused) {
  const std::string open_folder = served_->tiny.path() + ".open";
  std::filesystem::create_directory(open_folder);
  ASSERT_EQ(chmod(open_folder.c_str(), 0755), 0);
  if (geteuid() != 0) {
    EXPECT_THAT(StartAt(open_folder + "/s").ToString(), HasSubstr("chmod 0700"));
  }
  EXPECT_OK(StartAt(open_folder + "/s", {65534})) << "others may enter where they are asked for their names";
  ASSERT_EQ(chmod(open_folder.c_str(), 0777), 0);
  EXPECT_EQ(StartAt(open_folder + "/s", {65534}).code(), Code::kInvalidArgument);
  ASSERT_EQ(mkdir((open_folder + "/own").c_str(), 0700), 0);
  EXPECT_THAT(StartAt(open_folder + "/own/s").ToString(), HasSubstr("everybody may put another folder"));
  ASSERT_EQ(chmod(open_folder.c_str(), 01777), 0);
  EXPECT_OK(StartAt(open_folder + "/own/s")) << "as in /tmp, it is one's own there";
  ASSERT_EQ(chmod(open_folder.c_str(), 0700), 0);
  EXPECT_EQ(StartAt(open_folder + "/" + std::string(200, 'x')).code(), Code::kInvalidArgument);
  EXPECT_EQ(StartAt("").code(), Code::kInvalidArgument);
  EXPECT_EQ(StartAt(open_folder + "/no/folder/s").code(), Code::kNotFound);
  std::ofstream(open_folder + "/file") << "something";
  EXPECT_THAT(StartAt(open_folder + "/file").ToString(), HasSubstr("no socket"));
  EXPECT_TRUE(std::filesystem::is_regular_file(open_folder + "/file")) << "what is there stays";
  std::filesystem::remove_all(open_folder);
}

// As /run is.
TEST_F(ServerTest, AFolderOfRootsMayBeEnteredByOthersAndNotWrittenTo) {
  if (geteuid() != 0) GTEST_SKIP() << "only root makes folders of root's";
  const std::string folder = served_->tiny.path() + ".run";
  std::filesystem::create_directory(folder);
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  EXPECT_OK(StartAt(folder + "/quarry.sock"));
  EXPECT_EQ(ModeOf(folder), 0755U) << "it stays as it is";
  for (const mode_t mode : {0775, 0757}) {
    ASSERT_EQ(chmod(folder.c_str(), mode), 0);
    EXPECT_THAT(StartAt(folder + "/quarry.sock").ToString(), HasSubstr("chmod 0700"));
  }
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  ASSERT_EQ(chown(folder.c_str(), 65534, 65534), 0);
  EXPECT_THAT(StartAt(folder + "/quarry.sock").ToString(), HasSubstr("user 65534"));
  std::filesystem::remove_all(folder);
}

TEST_F(ServerTest, ASecondServerIsRefusedAndAStaleSocketReplaced) {
  served_->Start();
  EXPECT_EQ(StartAt(served_->socket()).code(), Code::kAlreadyExists);
  EXPECT_OK(WirePeer(served_->socket()).Hello()) << "the first one goes on";
  served_->server.reset();
  // What a killed server leaves, before it listened and after: nobody does.
  std::string unfinished = served_->socket();
  unfinished.back() = '~';
  for (const std::string& path : {served_->socket(), unfinished}) {
    const int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    ASSERT_EQ(bind(dead, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    close(dead);
  }
  served_->Start();
  EXPECT_OK(WirePeer(served_->socket()).Hello());
  EXPECT_FALSE(std::filesystem::exists(unfinished));
}

TEST_F(ServerTest, WhoSeesTheSocketCanConnect) {
  for (int round = 0; round < 30; ++round) {
    served_->server.reset();
    std::atomic<bool> started = false;
    std::thread client([&] {
      while (!std::filesystem::exists(served_->socket()) && !started) {
      }
      const int fd = testing_util::ConnectTo(served_->socket());
      EXPECT_GE(fd, 0) << "round " << round << ": " << std::strerror(errno);
      if (fd >= 0) close(fd);
    });
    served_->Start();
    started = true;
    client.join();
  }
}

// Becomes another user, and ends with what it was told, or 0 when it was heard.
bool CallAsStranger(const std::string& socket, uint64_t /*number*/) {
  if (setgid(65534) != 0 || setuid(65534) != 0) _exit(100);
  WirePeer peer(socket);
  if (peer.fd() < 0) _exit(101);
  const auto answer = peer.Receive(2);  // it says nothing
  if (!answer) _exit(peer.Hello().ok() ? 0 : 102);
  if (answer->id != 0 || !answer->response.ok()) _exit(103);
  const auto* const failure = std::get_if<wire::Failure>(&*answer->response);
  _exit(failure != nullptr && peer.IsClosed() ? static_cast<int>(failure->code) : 104);
}

TEST_F(ServerTest, AnotherUserIsRefusedBeforeAByteIsRead) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto code_of_stranger = [&] {
    Zygote& zygote = Zygote::Instance();
    const int status = zygote.Wait(zygote.Fork(CallAsStranger, served_->socket(), 0).pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  served_->Start();
  // Even where the file system would let them in.
  ASSERT_EQ(chmod(served_->folder().c_str(), 0711), 0);
  ASSERT_EQ(chmod(served_->socket().c_str(), 0666), 0);
  EXPECT_EQ(code_of_stranger(), static_cast<int>(Code::kUsage));
  served_->server.reset();
  served_->Start({.allow_uids = {65534}});
  EXPECT_EQ(ModeOf(served_->socket()), 0666U);
  EXPECT_EQ(code_of_stranger(), 0) << "one who may is heard";
  served_->server.reset();
  ASSERT_EQ(chmod(served_->folder().c_str(), 0700), 0);
}

TEST_F(ServerTest, AStrangerHasToSayHelloFirst) {
  served_->Start();
  WirePeer peer(served_->socket());
  peer.Send(wire::Ping{});
  EXPECT_TRUE(peer.IsClosed());
  EXPECT_EQ(peer.last_failure().code(), Code::kUsage);
  WirePeer old(served_->socket());
  EXPECT_EQ(old.Call(wire::Hello{.version_min = 7, .version_max = 9}).status().code(), Code::kUnsupported);
  EXPECT_TRUE(old.IsClosed());
  WirePeer unable(served_->socket());
  EXPECT_EQ(unable.Hello(1 << 20).status().code(), Code::kUnsupported);
}

TEST_F(ServerTest, RequestsOfAnotherStateAreRefusedAndTheConnectionGoesOn) {
  served_->Start();
  WirePeer peer(served_->socket());
  ASSERT_OK(peer.Hello());
  for (const wire::Request& request :
       std::vector<wire::Request>{wire::Hello{}, wire::Lookup{"feature", std::vector<NodeId>{1}},
                                  wire::TakeSnapshot{}, wire::Stats{7}, wire::ReleaseLeases{{1}},
                                  wire::NextBatch{1}, wire::Sample{.seeds = {1}, .fanouts = {1}}}) {
    EXPECT_EQ(peer.Call(request).status().code(), Code::kUsage) << request.index();
  }
  EXPECT_OK(peer.CallFor<wire::Description>(wire::Describe{}));
  EXPECT_OK(peer.CallFor<wire::Counters>(wire::Stats{}));
  EXPECT_OK(peer.CallFor<wire::Done>(wire::Cancel{99}));
  ASSERT_OK(peer.OpenSession({.budget_bytes = kMiB}));
  EXPECT_EQ(peer.Call(wire::OpenSession{}).status().code(), Code::kUsage);
  EXPECT_OK(peer.CallFor<wire::Rows>(wire::Lookup{"feature", std::vector<NodeId>{1}}));
}

TEST_F(ServerTest, EachHostileFrameIsAnsweredAsItShouldAndNobodyElseIsHarmed) {
  served_->Start();
  WirePeer good(served_->socket());
  ASSERT_OK(good.Open(2 * kMiB));
  for (const wire::HostileFrame& frame : wire::HostileFrames()) {
    SCOPED_TRACE(frame.name);
    WirePeer peer(served_->socket());
    ASSERT_OK(peer.Open(2 * kMiB));
    ASSERT_TRUE(peer.SendBytes(frame.bytes));
    if (frame.fate == wire::Fate::kWaits) {
      EXPECT_FALSE(peer.Receive(0.05));
      EXPECT_FALSE(peer.IsClosed(0.05));
      continue;
    }
    const bool closed = frame.fate == wire::Fate::kClosed;
    const auto answer = peer.Receive(5);
    ASSERT_TRUE(answer && answer->response.ok());
    EXPECT_EQ(answer->id, closed ? 0U : 7U);
    const auto* const failure = std::get_if<wire::Failure>(&*answer->response);
    ASSERT_NE(failure, nullptr);
    EXPECT_EQ(failure->code, frame.code) << failure->message;
    EXPECT_FALSE(failure->message.empty());
    if (closed) {
      EXPECT_TRUE(peer.IsClosed());
    } else {
      EXPECT_OK(peer.CallFor<wire::Done>(wire::Ping{})) << "the connection goes on";
    }
  }
  EXPECT_OK(good.CallFor<wire::Done>(wire::Ping{}));
}

TEST_F(ServerTest, ARequestWithADescriptorEndsTheConnection) {
  served_->Start();
  const size_t before = OpenDescriptors();
  {
    WirePeer peer(served_->socket());
    ASSERT_OK(peer.Hello());
    auto frame = wire::EncodeRequest(9, wire::Ping{});
    ASSERT_OK(frame);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    iovec piece = {frame->data(), frame->size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    *header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    const int sent = peer.fd();
    std::memcpy(CMSG_DATA(header), &sent, sizeof(sent));
    ASSERT_GT(sendmsg(peer.fd(), &message, 0), 0);
    EXPECT_TRUE(peer.IsClosed());
    EXPECT_EQ(peer.last_failure().code(), Code::kUsage);
  }
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() == before; })) << "the server keeps none";
}

TEST_F(ServerTest, MoreThanMayBeOutstandingEndsTheConnection) {
  served_->Start();
  WirePeer peer(served_->socket());
  ASSERT_OK(peer.Open(8 * kMiB));
  const auto opened = peer.OpenStream({.road = wire::LiveSpec{.fanouts = {2}, .batch_size = 10}});
  ASSERT_OK(opened);
  for (uint64_t id = 1000; id < 1064; ++id)
    peer.Send(id, wire::StartPass{.stream = opened->stream, .pass = 1});
  // A pass takes the place of the one before, so at most a few of these are answered with a pass.
  for (uint64_t id = 2000; id < 2200; ++id) peer.Send(id, wire::NextBatch{opened->stream});
  EXPECT_TRUE(peer.IsClosed());
  EXPECT_THAT(peer.last_failure().ToString(), HasSubstr("no more are allowed"));
}

TEST_F(ServerTest, AnIdThatIsUsedTwiceAtATimeEndsTheConnection) {
  served_->Start();
  WirePeer peer(served_->socket());
  ASSERT_OK(peer.Open(8 * kMiB));
  const auto opened = peer.OpenStream({.road = wire::LiveSpec{.fanouts = {2}, .batch_size = 10}});
  ASSERT_OK(opened);
  peer.Send(500, wire::NextBatch{opened->stream});
  peer.Send(501, wire::StartPass{.stream = opened->stream});
  for (int i = 0; i < 20; ++i) peer.Send(502, wire::NextBatch{opened->stream});
  EXPECT_TRUE(peer.IsClosed());
}

// What the table of limits refuses is answered, costs nothing, and the connection goes on.
TEST_F(ServerTest, RequestsBeyondTheLimitsAreRefused) {
  served_->Start();
  WirePeer peer(served_->socket());
  ASSERT_OK(peer.Open(16 * kMiB));
  wire::Limits lax;  // a client that does not keep them
  lax.ids_max = ~uint32_t{0};
  lax.members_max = ~uint32_t{0};
  uint64_t id = 5000;
  const auto refused = [&](const wire::Request& request) {
    const auto frame = wire::EncodeRequest(++id, request, lax);
    EXPECT_OK(frame);
    EXPECT_TRUE(peer.SendBytes(*frame));
    return peer.Await(id).status().code();
  };
  const wire::Range huge = {.region = 1, .bytes = uint64_t{4} * ((1 << 20) + 1)};
  EXPECT_EQ(refused(wire::Lookup{.table = "feature", .ids = huge}), Code::kInvalidArgument);
  EXPECT_EQ(refused(wire::ReadEmbeddings{.table = "x", .ids = wire::Range{.region = 1, .bytes = 1 << 24}}),
            Code::kInvalidArgument);
  EXPECT_EQ(refused(wire::OpenStream{
                .road = wire::LiveSpec{}, .mode = wire::StreamMode::kShared, .group = "g", .members = 1025}),
            Code::kInvalidArgument);
  EXPECT_OK(peer.CallFor<wire::Done>(wire::Ping{}));
}

TEST_F(ServerTest, ARequestForTenGigabytesCostsWhatItsMessageCosts) {
  served_->Start();
  WirePeer peer(served_->socket());
  ASSERT_OK(peer.Open(64 * kMiB));
  const uint64_t before = PeakRssBytes();
  const std::vector<NodeId> ids(200'000, 3);  // 100 MB of rows: more than there is
  EXPECT_EQ(peer.Call(wire::Lookup{"feature", ids}).status().code(), Code::kOutOfBudget);
  wire::Put put = {.number = 1};
  put.tables.push_back({.table = "feature",
                        .rows = 1 << 20,
                        .row_bytes = 10'000,
                        .block = wire::Range{.region = 1, .bytes = (uint64_t{1} << 20) * 10'008}});
  EXPECT_EQ(peer.Call(put).status().code(), Code::kOutOfBudget);
  EXPECT_LT(PeakRssBytes(), before + 16 * kMiB);
  WirePeer greedy(served_->socket());
  EXPECT_EQ(greedy.Open(uint64_t{10} << 30).status().code(), Code::kOutOfBudget);
}

TEST_F(ServerTest, MemoryIsDividedAndWhoWaitsGetsItInOrder) {
  served_->Start();
  const auto whole = static_cast<uint64_t>(Figure("quarry_budget_bytes"));
  EXPECT_EQ(whole, ServedDatabase::kBudgetBytes / 4 * 3);
  auto first = std::make_unique<WirePeer>(served_->socket());
  ASSERT_OK(first->Open(whole - 10 * kMiB));
  WirePeer second(served_->socket());
  ASSERT_OK(second.Hello());
  const auto refused = second.OpenSession({.budget_bytes = 20 * kMiB, .budget_bytes_min = 20 * kMiB});
  EXPECT_EQ(refused.status().code(), Code::kOutOfBudget);
  EXPECT_THAT(refused.status().ToString(), HasSubstr("10.0 MiB of the 192 MiB"));
  const auto less = second.OpenSession({.budget_bytes = 20 * kMiB, .budget_bytes_min = 5 * kMiB});
  ASSERT_OK(less);
  EXPECT_EQ(less->budget_bytes, 10 * kMiB);

  WirePeer third(served_->socket());
  WirePeer fourth(served_->socket());
  ASSERT_OK(third.Hello());
  ASSERT_OK(fourth.Hello());
  const uint64_t large =
      third.Send(wire::OpenSession{.budget_bytes = whole, .budget_bytes_min = 100 * kMiB, .wait_ms = 10'000});
  ASSERT_OK(third.CallFor<wire::Done>(wire::Ping{}));  // so that it is the first
  const auto waited = fourth.CallFor<wire::SessionOpened>(
      wire::OpenSession{.budget_bytes = kMiB, .budget_bytes_min = kMiB, .wait_ms = 50});
  EXPECT_EQ(waited.status().code(), Code::kOutOfBudget) << "it does not overtake";
  const uint64_t small =
      fourth.Send(wire::OpenSession{.budget_bytes = kMiB, .budget_bytes_min = kMiB, .wait_ms = 10'000});
  first.reset();
  const auto opened = third.Await(large);
  ASSERT_OK(opened);
  EXPECT_EQ(std::get<wire::SessionOpened>(*opened).budget_bytes, whole - 10 * kMiB);
  EXPECT_OK(fourth.CallFor<wire::Done>(wire::Cancel{small}));
  EXPECT_EQ(fourth.Await(small).status().code(), Code::kCancelled);
}

TEST_F(ServerTest, MoreSessionsThanAllowedAreToldSo) {
  served_->Start({.sessions_max = 2});
  auto first = std::make_unique<WirePeer>(served_->socket());
  WirePeer second(served_->socket());
  ASSERT_OK(first->Open(1 << 20));
  ASSERT_OK(second.Open(1 << 20));
  WirePeer third(served_->socket());
  EXPECT_TRUE(third.IsClosed());
  EXPECT_EQ(third.last_failure().code(), Code::kBusy);
  first.reset();
  EXPECT_TRUE(Eventually([&] {
    WirePeer fourth(served_->socket());
    return fourth.Hello().ok();
  }));
}

TEST_F(ServerTest, WithoutDescriptorsItWaitsAndDoesNotSpin) {
  served_->Start();
  WirePeer good(served_->socket());
  ASSERT_OK(good.Hello());
  const int waiting = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);  // before there are none
  std::vector<int> taken;
  rlimit old_limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old_limit), 0);
  rlimit low = {OpenDescriptors() + 8, old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  for (int fd = dup(waiting); fd >= 0; fd = dup(waiting)) taken.push_back(fd);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, served_->socket().data(), served_->socket().size());
  ASSERT_EQ(connect(waiting, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const clock_t start = clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const double busy_seconds = static_cast<double>(clock() - start) / CLOCKS_PER_SEC;
  EXPECT_OK(good.CallFor<wire::Done>(wire::Ping{}));
  for (const int fd : taken) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old_limit), 0);
  EXPECT_LT(busy_seconds, 0.2);
  const auto hello = wire::EncodeRequest(1, wire::Hello{});
  ASSERT_EQ(send(waiting, hello->data(), hello->size(), MSG_NOSIGNAL), static_cast<ssize_t>(hello->size()));
  char byte = 0;
  EXPECT_EQ(recv(waiting, &byte, 1, 0), 1) << "who waited is served";
  close(waiting);
}

TEST_F(ServerTest, StopsWithClientsConnectedAndTellsThem) {
  served_->Start();
  WirePeer idle(served_->socket());
  ASSERT_OK(idle.Open(8 * kMiB));
  WirePeer waiting(served_->socket());
  ASSERT_OK(waiting.Open(8 * kMiB));
  const auto opened = waiting.OpenStream({.road = wire::LiveSpec{.fanouts = {2}, .batch_size = 10}});
  ASSERT_OK(opened);
  ASSERT_OK(waiting.CallFor<wire::PassStarted>(wire::StartPass{.stream = opened->stream}));
  uint64_t last = 0;
  for (uint32_t i = 0; i <= opened->slots; ++i) last = waiting.Send(wire::NextBatch{opened->stream});
  WirePeer silent(served_->socket());
  const auto start = std::chrono::steady_clock::now();
  EXPECT_OK(served_->server->Stop());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  EXPECT_EQ(waiting.Await(last).status().code(), Code::kCancelled);
  EXPECT_TRUE(idle.IsClosed());
  EXPECT_EQ(idle.last_failure().code(), Code::kCancelled);
  EXPECT_LT(ConnectTo(served_->socket()), 0);
  EXPECT_OK(served_->server->Stop()) << "twice is once";
}

// Row 7 of a table, which was read with `timestamp_read`; the timestamp that it has then.
int64_t CommitARow(const ServedDatabase& served, const std::string& table, int64_t timestamp_read) {
  WirePeer peer(served.socket());
  EXPECT_OK(peer.Open(8 * kMiB));
  const wire::RowBlockShape shape = {1, 8, 0};
  std::vector<std::byte> block(wire::RowBlockBytes(shape));
  const auto arrays = wire::OpenRowBlock(std::span(block), shape);
  arrays->ids[0] = 7;
  arrays->timestamps[0] = timestamp_read;
  std::ranges::fill(arrays->values, 2.5F);
  static uint64_t number = 0;  // what was told once under a number is told again
  const wire::CommitEmbeddings commit = {++number, {{table, 1, 8, 0, block}}};
  const auto committed = peer.CallFor<wire::EmbeddingsCommitted>(commit);
  EXPECT_OK(committed);
  return committed.ok() ? committed->timestamp : -1;
}

constexpr EmbeddingSpec kKeptSpec = {.row_count = 50, .dim = 8, .optimizer = OptimizerKind::kSgd};

TEST_F(ServerTest, EmbeddingsAreCheckpointedNowAndThenWhenTheyChanged) {
  ASSERT_OK(CreateEmbeddings(*served_->store, "saved", kKeptSpec));
  const auto timestamp = [] { return served_->store->manifest()->FindEmbedding("saved")->timestamp; };
  served_->Start({.checkpoint_embeddings = std::chrono::milliseconds(1)});
  int64_t last = -1;
  for (int i = 0; i < 3; ++i) {
    const int64_t committed = CommitARow(*served_, "saved", last);
    ASSERT_GT(committed, last);
    last = committed;
    EXPECT_TRUE(Eventually([&] { return timestamp() == last; }, 30)) << timestamp();
  }
  ASSERT_OK(served_->server->Stop());
  served_->server.reset();
  served_->Start({.checkpoint_embeddings = std::chrono::milliseconds(0)});
  EXPECT_EQ(CommitARow(*served_, "saved", last), last + 1);
  EXPECT_EQ(timestamp(), last) << "never, until it stops";
  ASSERT_OK(served_->server->Stop());
  EXPECT_EQ(timestamp(), last + 1);
}

TEST_F(ServerTest, CommitsThatWereToldAreThereAfterAStop) {
  const EmbeddingSpec& spec = kKeptSpec;
  ASSERT_OK(CreateEmbeddings(*served_->store, "kept", spec));
  served_->Start();
  CommitARow(*served_, "kept", -1);
  ASSERT_OK(served_->server->Stop());
  served_->server.reset();
  MemoryBudget budget(64 << 20);
  const auto stored = StoredEmbeddings::Open(*served_->store, budget, "kept", {.memory_bytes = 16 << 20});
  ASSERT_OK(stored);
  RowBlock row;
  row.ids = {7};
  row.Resize(spec);
  ASSERT_OK((*stored)->table().Read(row));
  EXPECT_EQ(row.values[3], 2.5F);
}

TEST(ServerThreadsTest, AServerWithoutThreadsIsRefusedAndTheNextListens) {
  ServedDatabase database;
  FailEveryThreadStart([&] {
    const auto server = Server::Start(*database.store, database.budget, {.socket_path = database.socket()});
    return server.status();
  });
  database.Start();
  EXPECT_EQ(database.budget.available_bytes(), 0U) << "the last one has all of it, as if it were the first";
}

}  // namespace
}  // namespace quarry

int main(int count, char** arguments) {
  quarry::testing_util::Zygote::Instance();
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
