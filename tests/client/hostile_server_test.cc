// A remote store survives its server, whatever that sends: calls fail with a sentence, nothing is read beyond
// what was mapped, no descriptor stays open.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "client/fake_server.h"
#include "format/wire_hostile.h"
#include "quarry/client/store.h"
#include "remote/unix_socket.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using Reply = FakeServer::Reply;
using Scripted = std::optional<Reply>;
using testing::AnyOf;
using testing::HasSubstr;

constexpr uint64_t kRegionBytes = 1 << 20;
const Reply kAsUsual;  // as a good server answers

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator fds("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(fds), end(fds)));
}

class HostileServerTest : public testing::Test {
 protected:
  HostileServerTest() : folder_("hostile"), descriptors_(OpenDescriptors()) {}
  ~HostileServerTest() override { EXPECT_EQ(OpenDescriptors(), descriptors_) << "nothing leaks"; }
  std::string socket() const { return folder_ / "q.sock"; }
  static Result<std::unique_ptr<client::Store>> Connect(const FakeServer& server) {
    return client::OpenRemote(server.address(), {.memory_bytes = 16 << 20, .timeout_seconds = 1});
  }

 private:
  const TemporaryFolder folder_;
  const size_t descriptors_;
};

// The client hears no more of a frame that does not end; what else comes is not an answer to what it asked,
// or is of a kind that it does not know. Messages that a server would refuse have their kind behind the
// frame's header, the segment's length and the root's pointer.
Code CodeOf(const wire::HostileFrame& frame) {
  if (frame.fate == wire::Fate::kWaits) return Code::kIoError;
  if (frame.fate == wire::Fate::kClosed) return Code::kCorruption;
  uint16_t kind = 0;
  std::memcpy(&kind, &frame.bytes[wire::kFrameHeaderBytes + 16], sizeof(kind));
  return kind < std::variant_size_v<wire::Response> ? Code::kCorruption : Code::kUnsupported;
}

TEST(ServerPlaceTest, AnAddressMayNameTheServersUser) {
  using client::ParsePlace;
  EXPECT_EQ(ParsePlace("/run/q").value().path, "/run/q");
  EXPECT_FALSE(ParsePlace("/run/q?x").value().server_uid) << "a path like any other";
  EXPECT_EQ(ParsePlace("/run/q?server-uid=1000").value().path, "/run/q");
  EXPECT_EQ(ParsePlace("/run/q?server-uid=1000").value().server_uid, uid_t{1000});
  for (const char* bad : {"q?server-uid=", "q?server-uid=-1", "q?server-uid=me", "q?server-uid=4294967296",
                          "q?server-uid=1 "}) {
    EXPECT_THAT(ParsePlace(bad), IsStatus(Code::kInvalidArgument)) << bad;
  }
}

TEST(ServerPlaceTest, AServerRunsAsOneselfAsRootOrAsWhomTheAddressNames) {
  using client::CheckServerUser;
  EXPECT_OK(CheckServerUser({.path = "q"}, 1000, 1000));
  EXPECT_OK(CheckServerUser({.path = "q"}, 0, 1000));
  EXPECT_THAT(CheckServerUser({.path = "q"}, 1001, 1000).message(), HasSubstr("unix:q?server-uid=1001"));
  EXPECT_FALSE(CheckServerUser({.path = "q"}, 1001, 0).ok()) << "root's data are root's, too";
  EXPECT_OK(CheckServerUser({.path = "q", .server_uid = 1001}, 1001, 1000));
  EXPECT_FALSE(CheckServerUser({.path = "q", .server_uid = 1001}, 1002, 1000).ok());
}

// The kernel notes a server's user when it begins to listen.
TEST_F(HostileServerTest, AnotherUsersServerIsToldNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can listen as another user";
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket().data(), socket().size());
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(syscall(SYS_setresuid, -1, 65534, -1), 0);  // of this thread alone
  const int listens = listen(listener, 8);
  ASSERT_EQ(syscall(SYS_setresuid, -1, 0, -1), 0);
  ASSERT_EQ(listens, 0);
  const auto refused = client::OpenRemote("unix:" + socket(), {.timeout_seconds = 1});
  EXPECT_THAT(refused, IsStatus(Code::kInvalidArgument, HasSubstr("user 65534 who serves there")));
  const int connection = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  char byte = 0;
  EXPECT_EQ(recv(connection, &byte, 1, 0), 0) << "not a byte was sent";
  close(connection);
  const auto silent = client::OpenRemote("unix:" + socket() + "?server-uid=65534", {.timeout_seconds = 0.05});
  EXPECT_THAT(silent, IsStatus(Code::kIoError)) << "it is asked, and says nothing";
  close(listener);
}

// The refusal and the hello pass each other, and the hello may find the connection closed.
TEST_F(HostileServerTest, WhyAServerLetsNobodyInIsHeardWhoeverSpeaksFirst) {
  const FakeServer::Reply refusal = FakeServer::Answer(
      0, wire::Failure{.code = Code::kOutOfBudget, .message = "it has no descriptors left (ulimit -n)"});
  Listener server(socket(), [&](int connection) { SendWith(connection, refusal.frame); });
  for (int i = 0; i < 300; ++i) {
    const Status status = client::OpenRemote(server.address(), {.timeout_seconds = 10}).status();
    ASSERT_THAT(status.message(), HasSubstr("ulimit -n")) << i;
  }
}

TEST_F(HostileServerTest, FramesThatDoHarmAreNoWelcome) {
  for (const wire::HostileFrame& frame : wire::HostileFrames()) {
    SCOPED_TRACE(frame.name);
    FakeServer server(socket(), [&](uint64_t, const wire::Request&) -> Scripted {
      return Reply{.frame = frame.bytes, .close = true};
    });
    const Status status = Connect(server).status();
    EXPECT_EQ(status.code(), CodeOf(frame)) << status.ToString();
  }
}

TEST_F(HostileServerTest, FramesThatDoHarmAreNoAnswer) {
  for (const wire::HostileFrame& frame : wire::HostileFrames()) {
    SCOPED_TRACE(frame.name);
    FakeServer server(socket(), [&](uint64_t, const wire::Request& request) -> Scripted {
      if (!std::holds_alternative<wire::Describe>(request)) return kAsUsual;
      return Reply{.frame = frame.bytes, .close = true};
    });
    ASSERT_OK_AND_ASSIGN(auto store, Connect(server));
    const Status status = store->Describe().status();
    EXPECT_EQ(status.code(), CodeOf(frame)) << status.ToString();
  }
}

TEST_F(HostileServerTest, AnswersToNobodyEndTheConnection) {
  FakeServer server(socket(), [](uint64_t id, const wire::Request& request) -> Scripted {
    if (!std::holds_alternative<wire::Ping>(request)) return kAsUsual;
    return FakeServer::Answer(id + 100, wire::Done{});
  });
  ASSERT_OK_AND_ASSIGN(auto store, Connect(server));
  const Status status = store->Ping();
  EXPECT_THAT(status, IsStatus(Code::kCorruption));
}

TEST_F(HostileServerTest, AnswersOfAnotherKindAreCorruption) {
  FakeServer server(socket(), [](uint64_t id, const wire::Request& request) -> Scripted {
    if (std::holds_alternative<wire::Hello>(request) || std::holds_alternative<wire::OpenSession>(request)) {
      return kAsUsual;
    }
    return FakeServer::Answer(id, wire::Written{.timestamp = 1});
  });
  ASSERT_OK_AND_ASSIGN(auto store, Connect(server));
  const std::vector<NodeId> ids = {1};
  EXPECT_THAT(store->Ping(), IsStatus(Code::kCorruption));
  EXPECT_THAT(store->Describe(), IsStatus(Code::kCorruption));
  EXPECT_THAT(store->Lookup({.table = "label", .ids = ids}), IsStatus(Code::kCorruption));
  EXPECT_THAT(store->Sample({.seeds = ids, .fanouts = {1}}), IsStatus(Code::kCorruption));
  EXPECT_THAT(store->OpenStream({.road = wire::LiveSpec{}}), IsStatus(Code::kCorruption));
  EXPECT_THAT(store->TakeSnapshot(), IsStatus(Code::kCorruption));
}

TEST_F(HostileServerTest, ServersOfAnotherProtocolAreUnsupported) {
  FakeServer server(socket(), [](uint64_t id, const wire::Request&) -> Scripted {
    return FakeServer::Answer(id, wire::Welcome{.version = 99, .capabilities = 3});
  });
  EXPECT_THAT(Connect(server), IsStatus(Code::kUnsupported));
}

// It would ignore the fields that it does not know, and draw otherwise than it is asked to.
TEST_F(HostileServerTest, AServerWithoutSamplersIsAskedForPlainDrawsAlone) {
  const Status heard(Code::kNotFound, "heard");
  FakeServer server(socket(), [&](uint64_t id, const wire::Request& request) -> Scripted {
    if (std::holds_alternative<wire::Hello>(request)) {
      return FakeServer::Answer(id, wire::Welcome{.capabilities = wire::kInline | wire::kMaintenance,
                                                  .limits = {.sessions_max = 4, .budget_bytes = 64 << 20}});
    }
    if (std::holds_alternative<wire::OpenSession>(request)) return kAsUsual;
    return FakeServer::Answer(id, wire::ToFailure(heard));
  });
  ASSERT_OK_AND_ASSIGN(auto store, Connect(server));
  const auto expect = [&](const wire::LiveSpec& spec, Code code, const char* why) {
    EXPECT_THAT(store->OpenStream({.road = spec}), IsStatus(code, HasSubstr(why)));
    EXPECT_THAT(store->OpenStream({.road = wire::SuperbatchSpec{.live = spec}}),
                IsStatus(code, HasSubstr(why)));
    EXPECT_THAT(store->OpenStream({.road = wire::PlannedSpec{.layout = "l", .live = spec}}),
                IsStatus(code, HasSubstr(why)));
    EXPECT_THAT(store->Maintain(wire::BuildLayout{.name = "l", .road = spec}, {}),
                IsStatus(code, HasSubstr(why)));
  };
  wire::LiveSpec spec;
  spec.replace = true;
  expect(spec, Code::kNotFound, "heard");
  spec.replace = false;
  spec.sampler = SamplerKind::kLabor;
  expect(spec, Code::kUnsupported, "uniformly");
  spec.sampler = SamplerKind::kNeighbor;
  spec.weighted = true;
  expect(spec, Code::kUnsupported, "uniformly");
  EXPECT_THAT(store->OpenStream({.road = wire::PlannedSpec{.layout = "l"}}), IsStatus(Code::kNotFound));
}

// What the fields mean that it does not know, it is not asked for.
TEST_F(HostileServerTest, AServerWithoutTypedDrawsIsNotAskedForThem) {
  const Status heard(Code::kNotFound, "heard");
  FakeServer server(socket(), [&](uint64_t id, const wire::Request& request) -> Scripted {
    if (std::holds_alternative<wire::Hello>(request) || std::holds_alternative<wire::OpenSession>(request))
      return kAsUsual;
    return FakeServer::Answer(id, wire::ToFailure(heard));
  });
  ASSERT_OK_AND_ASSIGN(auto store, Connect(server));
  const wire::LiveSpec typed = {.fanouts = {2}, .relation_fanouts = {2}}, all = {.fanouts = {kAllNeighbors}};
  EXPECT_THAT(store->OpenStream({.road = typed}),
              IsStatus(Code::kUnsupported, HasSubstr("without batches by types")));
  EXPECT_THAT(store->OpenStream({.road = all}),
              IsStatus(Code::kUnsupported, HasSubstr("take all neighbors")));
  EXPECT_THAT(store->Sample({.seeds = {1}, .fanouts = {2}, .relation_fanouts = {2}}),
              IsStatus(Code::kUnsupported, HasSubstr("without batches by types")));
  EXPECT_THAT(store->Sample({.seeds = {1}, .fanouts = {2}, .replace = true}),
              IsStatus(Code::kUnsupported, HasSubstr("drawn with replacement")));
  EXPECT_THAT(store->Sample({.seeds = {1}, .fanouts = {2}, .weighted = true}),
              IsStatus(Code::kUnsupported, HasSubstr("drawn by weights")));
  EXPECT_THAT(store->Sample({.seeds = {1}, .fanouts = {kAllNeighbors}}), IsStatus(Code::kNotFound))
      << "which it has always known";
}

// Whoever sorts edges by their types has room for those that were asked for.
TEST_F(HostileServerTest, EdgesAreOfTypesThatThereAre) {
  uint16_t relation = 0;
  bool has_relations = true;
  FakeServer server(socket(), [&](uint64_t id, const wire::Request& request) -> Scripted {
    if (std::holds_alternative<wire::Hello>(request)) {
      return FakeServer::Answer(id, wire::Welcome{.capabilities = wire::kInline | wire::kTypedDraws,
                                                  .limits = {.sessions_max = 4, .budget_bytes = 64 << 20}});
    }
    if (!std::holds_alternative<wire::Sample>(request)) return kAsUsual;
    const wire::BatchShape shape = {
        .hops = 1, .seeds = 1, .targets = 1, .nodes = 2, .edges = 1, .relations = has_relations};
    struct alignas(wire::kBatchAlignment) Line {
      std::byte bytes[wire::kBatchAlignment] = {};
    };
    std::vector<Line> lines(wire::BatchBytes(shape).value() / sizeof(Line));
    const std::span<std::byte> slot = std::as_writable_bytes(std::span(lines));
    const wire::BatchWriter batch = wire::WriteBatchHeader(shape, slot).value();
    batch.hop_offsets[0] = 1;
    batch.hop_offsets[1] = 2;
    batch.indptr[1] = 1;
    batch.indices[0] = 1;
    batch.nodes[1] = 5;
    if (has_relations) batch.relations[0] = relation;
    return FakeServer::Answer(id, wire::Sampled{.payload = std::vector<std::byte>(slot.begin(), slot.end())});
  });
  ASSERT_OK_AND_ASSIGN(auto store, Connect(server));
  const wire::Sample sample = {.seeds = {0}, .fanouts = {2}, .relation_fanouts = {1, 1, 1}};
  EXPECT_OK(store->Sample(sample));
  relation = 2;
  EXPECT_OK(store->Sample(sample));
  relation = 3;
  EXPECT_THAT(store->Sample(sample), IsStatus(Code::kCorruption, HasSubstr("an edge of type 3, of 3 types")));
  has_relations = false;
  EXPECT_THAT(store->Sample(sample), IsStatus(Code::kCorruption, HasSubstr("without types of its edges")));
}

// A session with one region, and what a lookup in it answers.
Scripted WithRegion(uint64_t id, const wire::Request& request, const wire::Region& region,
                    std::vector<int> fds, const wire::Response& answer) {
  if (std::holds_alternative<wire::OpenSession>(request)) {
    return FakeServer::Answer(
        id, wire::SessionOpened{.session = 1, .budget_bytes = 16 << 20, .regions = {region}}, std::move(fds));
  }
  if (std::holds_alternative<wire::Lookup>(request)) return FakeServer::Answer(id, answer);
  return kAsUsual;
}

wire::Rows LeasedRows(const wire::Range& range) {
  return {.rows = 512,
          .element_type = ElementType::kInt64,
          .dim = 1,
          .payload = wire::Lease{.id = 1, .range = range}};
}

TEST_F(HostileServerTest, RegionsAreWhatTheyShouldBe) {
  struct Case {
    std::string name;
    uint64_t announced = kRegionBytes;
    uint64_t bytes = kRegionBytes;
    int seals = F_SEAL_SHRINK;
  };
  for (const Case& bad :
       {Case{.name = "could shrink", .seals = F_SEAL_GROW}, Case{.name = "no seals", .seals = 0},
        Case{.name = "smaller", .bytes = 4096}, Case{.name = "larger", .bytes = 2 * kRegionBytes}}) {
    SCOPED_TRACE(bad.name);
    const int fd = MakeRegion(bad.bytes, bad.seals);
    FakeServer server(socket(), [&](uint64_t id, const wire::Request& request) {
      return WithRegion(id, request, {.id = 1, .bytes = bad.announced}, {fd}, wire::Done{});
    });
    const auto store = Connect(server);
    EXPECT_THAT(store, IsStatus(Code::kCorruption));
    close(fd);
  }
  // Something else than memory.
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    FakeServer server(socket(), [&](uint64_t id, const wire::Request& request) {
      return WithRegion(id, request, {.id = 1, .bytes = 4096}, {ends[0]}, wire::Done{});
    });
    EXPECT_THAT(Connect(server), IsStatus(Code::kCorruption));
  }
  close(ends[0]);
  close(ends[1]);
}

TEST_F(HostileServerTest, DescriptorsComeWithTheirFrames) {
  const int fd = MakeRegion(kRegionBytes);
  for (const size_t sent : {0, 18, 40}) {
    SCOPED_TRACE(testing::Message() << sent << " descriptors");
    FakeServer server(socket(), [&](uint64_t id, const wire::Request& request) {
      return WithRegion(id, request, {.id = 1, .bytes = kRegionBytes}, std::vector<int>(sent, fd),
                        wire::Done{});
    });
    const auto store = Connect(server);
    // Too many may be noticed behind the frame that they came with.
    const Status status = store.ok() ? (*store)->Ping() : store.status();
    EXPECT_THAT(status, IsStatus(Code::kCorruption));
  }
  close(fd);
}

TEST_F(HostileServerTest, LeasesLieInTheirRegions) {
  const int fd = MakeRegion(kRegionBytes);
  const wire::Region region = {.id = 1, .bytes = kRegionBytes};
  for (const wire::Range& range : {wire::Range{.region = 2, .offset = 0, .bytes = 4096},
                                   wire::Range{.region = 1, .offset = kRegionBytes, .bytes = 4096},
                                   wire::Range{.region = 1, .offset = uint64_t{1} << 45, .bytes = 4096}}) {
    SCOPED_TRACE(testing::Message() << "region " << range.region << ", offset " << range.offset);
    FakeServer server(socket(), [&](uint64_t id, const wire::Request& request) {
      return WithRegion(id, request, region, {fd}, LeasedRows(range));
    });
    ASSERT_OK_AND_ASSIGN(auto store, Connect(server));
    const auto rows = store->Lookup({.table = "label", .ids = std::vector<NodeId>(512)});
    EXPECT_THAT(rows, IsStatus(Code::kCorruption));
  }
  close(fd);
}

TEST_F(HostileServerTest, AnswersHaveWhatWasAskedFor) {
  FakeServer server(socket(), [&](uint64_t id, const wire::Request& request) -> Scripted {
    if (!std::holds_alternative<wire::Lookup>(request)) return kAsUsual;
    return FakeServer::Answer(
        id,
        wire::Rows{
            .rows = 1, .element_type = ElementType::kInt64, .dim = 1, .payload = std::vector<std::byte>(8)});
  });
  ASSERT_OK_AND_ASSIGN(auto store, Connect(server));
  EXPECT_THAT(store->Lookup({.table = "label", .ids = std::vector<NodeId>{1, 2}}),
              IsStatus(Code::kCorruption));
}

// A claim costs the server nothing; it must cost the client nothing either.
TEST_F(HostileServerTest, ALeaseIsNoLargerThanItsSession) {
  FakeServer server(socket(), [&](uint64_t id, const wire::Request& request) -> Scripted {
    if (!std::holds_alternative<wire::Sample>(request)) return kAsUsual;
    return FakeServer::Answer(
        id, wire::Sampled{.payload = wire::Lease{
                              .id = 1, .range = {.region = 0, .offset = 0, .bytes = uint64_t{1} << 45}}});
  });
  ASSERT_OK_AND_ASSIGN(auto store, Connect(server));
  EXPECT_THAT(store->Sample({.seeds = {1}, .fanouts = {1}}), IsStatus(Code::kCorruption));
}

std::vector<std::byte> BytesOf(const std::vector<uint8_t>& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

TEST_F(HostileServerTest, RowsOfSqlAreRows) {
  const std::pair<wire::Response, const char*> kAnswers[] = {
      {wire::SqlRows{BytesOf({9}), false}, "a value of type 9"},
      {wire::SqlRows{BytesOf({0}), true}, "the last is cut short"},
      {wire::SqlRows{BytesOf({0, 0, 1}), true}, "the last is cut short"},
      {wire::SqlRows{BytesOf({4, 255, 255, 255, 255}), false}, "a value of 4294967295 bytes"},
      {wire::Statement{.cursor = 7, .columns = {"a", "b"}}, "something else than what it was asked"},
      {wire::Written{.timestamp = 1}, "something else than what it was asked"},
      {wire::Failure{.code = Code::kCorruption, .message = "page 3 is damaged"}, "page 3 is damaged"},
  };
  for (const auto& [answer, said] : kAnswers) {
    SCOPED_TRACE(said);
    FakeServer server(socket(), [&](uint64_t id, const wire::Request& request) -> Scripted {
      if (std::holds_alternative<wire::Hello>(request)) {
        return FakeServer::Answer(id, wire::Welcome{.capabilities = wire::kInline | wire::kSql,
                                                    .limits = {.sessions_max = 4, .budget_bytes = 64 << 20}});
      }
      if (std::holds_alternative<wire::OpenSql>(request)) {
        return FakeServer::Answer(id, wire::SqlOpened{.connection = 1});
      }
      if (std::holds_alternative<wire::Query>(request)) {
        return FakeServer::Answer(id, wire::Statement{.cursor = 7, .columns = {"a", "b"}});
      }
      if (std::holds_alternative<wire::Fetch>(request)) return FakeServer::Answer(id, answer);
      if (std::holds_alternative<wire::OpenSession>(request)) return kAsUsual;
      return FakeServer::Answer(id, wire::Done{});
    });
    ASSERT_OK_AND_ASSIGN(auto store, Connect(server));
    ASSERT_OK_AND_ASSIGN(auto rows, store->Query("SELECT a, b FROM t"));
    Result<bool> more = rows->Next();
    while (more.ok() && *more) more = rows->Next();  // of the third, one is whole
    EXPECT_THAT(more, IsStatus(Code::kCorruption, HasSubstr(said)));
    EXPECT_FALSE(rows->Next().value()) << "it has ended";
  }
}

// A stream whose region holds one batch; `spoil` makes something else of it.
class LyingStream {
 public:
  using Spoil = std::function<void(wire::BatchWriter&, std::span<std::byte>)>;
  LyingStream(const std::string& socket, const Spoil& spoil, uint64_t index = 0)
      : fd_(MakeRegion(kRegionBytes)),
        index_(index),
        server_(socket, [this](uint64_t id, const wire::Request& request) { return Answer(id, request); }) {
    memory_ =
        static_cast<std::byte*>(mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    const wire::BatchShape shape = {.hops = 1, .seeds = 2, .targets = 2, .nodes = 4, .edges = 3};
    auto batch = wire::WriteBatchHeader(shape, slot());
    EXPECT_OK(batch);
    writer_ = *batch;
    std::ranges::copy(std::vector<uint32_t>{2, 4}, writer_.hop_offsets.begin());
    std::ranges::copy(std::vector<uint32_t>{0, 2, 3}, writer_.indptr.begin());
    std::ranges::copy(std::vector<uint32_t>{2, 3, 1}, writer_.indices.begin());
    std::ranges::copy(std::vector<uint32_t>{10, 11, 12, 13}, writer_.nodes.begin());
    spoil(writer_, slot());
  }
  ~LyingStream() {
    munmap(memory_, kRegionBytes);
    close(fd_);
  }
  const FakeServer& server() const { return server_; }
  wire::BatchWriter& writer() { return writer_; }

 private:
  std::span<std::byte> slot() { return {memory_, kRegionBytes}; }
  Scripted Answer(uint64_t id, const wire::Request& request) {
    if (std::holds_alternative<wire::OpenStream>(request)) {
      return FakeServer::Answer(
          id, wire::StreamOpened{.stream = 1, .slots = 1, .regions = {{.id = 5, .bytes = kRegionBytes}}},
          {fd_});
    }
    if (std::holds_alternative<wire::StartPass>(request))
      return FakeServer::Answer(id, wire::PassStarted{.batches = 1});
    if (std::holds_alternative<wire::NextBatch>(request)) {
      return FakeServer::Answer(
          id, wire::Batch{.index = index_, .payload = wire::Lease{.id = 9, .range = {5, 0, kRegionBytes}}});
    }
    return kAsUsual;
  }

  const int fd_;
  const uint64_t index_;
  std::byte* memory_ = nullptr;
  wire::BatchWriter writer_;
  FakeServer server_;
};

Result<std::unique_ptr<client::Batch>> FirstBatch(client::Store& store,
                                                  std::unique_ptr<client::Stream>& stream,
                                                  const wire::LiveSpec& spec = {}) {
  QUARRY_TRY(stream, store.OpenStream({.road = spec}));
  QUARRY_RETURN_IF_ERROR(stream->StartPass({}).status());
  return stream->Next();
}

TEST_F(HostileServerTest, BatchesAreBlocks) {
  const std::vector<std::pair<std::string, LyingStream::Spoil>> lies = {
      {"indices", [](auto& batch, auto) { batch.indices[1] = 4; }},
      {"offsets", [](auto& batch, auto) { batch.indptr[1] = 7; }},
      {"hops", [](auto& batch, auto) { batch.hop_offsets[1] = 5; }},
      {"edges", [](auto&, auto slot) { slot[48] = std::byte{255}; }},
      {"places", [](auto&, auto slot) { slot[88] = std::byte{1}; }},
      {"magic", [](auto&, auto slot) { slot[0] = std::byte{0}; }},
      {"number", [](auto&, auto slot) { slot[16] = std::byte{3}; }},
      {"nodes", [](auto&, auto slot) { slot[47] = std::byte{200}; }},
  };
  for (const auto& [name, spoil] : lies) {
    SCOPED_TRACE(name);
    LyingStream lying(socket(), spoil);
    ASSERT_OK_AND_ASSIGN(auto store, Connect(lying.server()));
    std::unique_ptr<client::Stream> stream;
    const auto batch = FirstBatch(*store, stream);
    EXPECT_THAT(batch, IsStatus(Code::kCorruption));
  }
}

// As one of an earlier Quarry answers, which does not know what is asked for.
TEST_F(HostileServerTest, BatchesWithoutTheEdgeIdsThatWereAskedForAreRefused) {
  LyingStream lying(socket(), [](auto&, auto) {});
  ASSERT_OK_AND_ASSIGN(auto store, Connect(lying.server()));
  std::unique_ptr<client::Stream> stream;
  EXPECT_THAT(FirstBatch(*store, stream, {.edge_ids = true}),
              IsStatus(Code::kUnsupported, HasSubstr("edge ids")));
}

TEST_F(HostileServerTest, WhatWasCheckedStaysAsItWas) {
  LyingStream lying(socket(), [](auto&, auto) {});
  ASSERT_OK_AND_ASSIGN(auto store, Connect(lying.server()));
  std::unique_ptr<client::Stream> stream;
  ASSERT_OK_AND_ASSIGN(auto batch, FirstBatch(*store, stream));
  std::ranges::fill(lying.writer().indices, 0xffffffff);
  std::ranges::fill(lying.writer().indptr, 0xffffffff);
  std::ranges::fill(lying.writer().hop_offsets, 0xffffffff);
  EXPECT_OK(wire::CheckBatch(batch->view()));
  batch.reset();
}

}  // namespace
}  // namespace quarry
