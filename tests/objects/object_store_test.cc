// Requests to an object store, over HTTP, with everything that can happen to one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "objects/fake_store.h"
#include "quarry/base/random.h"
#include "quarry/objects/object_store.h"
#include "request_window.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const ObjectPlace kPlace{"bucket", "some/prefix"};

// Quick to try again; a request that hangs costs .3 s, and one that a busy machine delays has 7 times as much twice over.
ObjectStoreOptions QuickOptions() {
  return {.backoff_seconds = 0.001, .first_deadline_seconds = 0.3, .deadline_min_seconds = 0.3, .seed = 7};
}

class ObjectStoreTest : public testing::Test {
 protected:
  std::unique_ptr<ObjectStore> Open(const ObjectStoreOptions& options = QuickOptions()) {
    auto store = ObjectStore::Open(kPlace, server_.access(), budget_, options);
    EXPECT_OK(store);
    return std::move(store).value();
  }
  static std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }
  // The fate of the first requests, one after the other; all later ones are answered.
  void Schedule(std::vector<Fate::Kind> fates) {
    const uint64_t before = server_.requests();
    server_.SetSchedule([fates = std::move(fates), before](const SeenRequest& request) {
      const uint64_t index = request.number - before - 1;
      return Fate{index < fates.size() ? fates[index] : Fate::kAnswer};
    });
  }

  MemoryBudget budget_{1ULL << 30};
  FakeStore server_;
};

TEST_F(ObjectStoreTest, WhatIsPutIsThere) {
  const auto store = Open();
  ASSERT_OK(store->Put("a b/c+d", Bytes("0123456789")));
  EXPECT_THAT(server_.objects(), ElementsAre(testing::Pair("bucket/some/prefix/a b/c+d", "0123456789")));
  std::array<std::byte, 4> range{};
  ASSERT_OK(store->Get({.key = "a b/c+d", .offset = 3, .into = range}));
  EXPECT_EQ(std::memcmp(range.data(), "3456", 4), 0);
  ASSERT_OK_AND_ASSIGN(const ObjectBytes whole, store->GetWhole("a b/c+d", 100));
  EXPECT_EQ(whole.bytes.size(), 10U);
  EXPECT_FALSE(whole.etag.empty());
  ASSERT_OK_AND_ASSIGN(const ObjectAnswer head, store->Head("a b/c+d"));
  EXPECT_EQ(head.bytes, 10U);
  ASSERT_OK(store->Delete("a b/c+d"));
  ASSERT_OK(store->Delete("a b/c+d"));
  EXPECT_THAT(server_.objects(), testing::IsEmpty());
}

TEST_F(ObjectStoreTest, FailuresNameOperationUrlAndAnswer) {
  const auto store = Open();
  EXPECT_THAT(
      store->GetWhole("nothing", 100),
      IsStatus(Code::kNotFound, AllOf(HasSubstr("GET " + server_.endpoint() + "/bucket/some/prefix/nothing"),
                                      HasSubstr("404 NoSuchKey: as the test wants it"))));
  server_.PutObject("bucket/some/prefix/long", std::string(1000, 'x'));
  EXPECT_THAT(store->GetWhole("long", 999), IsStatus(Code::kOutOfBudget, HasSubstr("longer than 999 bytes")));
  server_.SetSchedule([](const SeenRequest&) { return Fate{Fate::kError}; });
  EXPECT_THAT(store->Put("x", Bytes("y")),
              IsStatus(Code::kIoError, AllOf(HasSubstr("PUT "), HasSubstr("500 InternalError"),
                                             HasSubstr("after 8 attempts"))));
}

TEST_F(ObjectStoreTest, ConditionsHold) {
  const auto store = Open();
  ASSERT_OK_AND_ASSIGN(const ObjectAnswer first, store->Put("m", Bytes("1"), {.absent = true}));
  EXPECT_THAT(store->Put("m", Bytes("2"), {.absent = true}),
              IsStatus(Code::kAlreadyExists, HasSubstr("412")));
  ASSERT_OK(store->Put("m", Bytes("3"), {.etag = first.etag}));
  EXPECT_THAT(store->Put("m", Bytes("4"), {.etag = first.etag}), IsStatus(Code::kAlreadyExists));
  EXPECT_EQ(server_.objects()["bucket/some/prefix/m"], "3");
}

TEST_F(ObjectStoreTest, ListingsGoOnOverPages) {
  const auto store = Open();
  for (int i = 0; i < 10; i++) ASSERT_OK(store->Put(fmt::format("data/{}&<", i), Bytes(std::string(i, 'x'))));
  ASSERT_OK(store->Put("other", Bytes("")));
  ASSERT_OK_AND_ASSIGN(const auto listed, store->List("data/"));
  ASSERT_EQ(listed.size(), 10U);
}

TEST_F(ObjectStoreTest, UploadsAreThereWhenTheyAreComplete) {
  const auto store = Open();
  ASSERT_OK_AND_ASSIGN(const std::string upload, store->CreateUpload("big"));
  const std::vector<std::string> bodies = {"one", "two", "three", "four", "five"};
  std::vector<ObjectPart> parts(bodies.size());
  Mutex mutex;
  CondVar changed;
  size_t done = 0;
  for (size_t i = 0; i < bodies.size(); i++) {
    store->StartPutPart("big", upload, static_cast<uint32_t>(i + 1), Bytes(bodies[i]),
                        [&, i](Result<ObjectAnswer> answer) {
                          MutexLock lock(mutex);
                          EXPECT_OK(answer);
                          parts[i] = {static_cast<uint32_t>(i + 1), bodies[i].size(), answer->etag};
                          ++done;
                          changed.NotifyAll();
                        });
  }
  {
    MutexLock lock(mutex);
    while (done < bodies.size()) changed.Wait(mutex);
  }
  EXPECT_THAT(server_.objects(), testing::IsEmpty());
  ASSERT_OK_AND_ASSIGN(const auto found, store->FindUpload("big"));
  EXPECT_EQ(found, upload);
  ASSERT_OK_AND_ASSIGN(const auto listed, store->ListParts("big", upload));
  ASSERT_EQ(listed.size(), parts.size());
  EXPECT_EQ(listed[4].etag, parts[4].etag);
  ASSERT_OK(store->CompleteUpload("big", upload, parts));
  EXPECT_EQ(server_.objects()["bucket/some/prefix/big"], "onetwothreefourfive");
  EXPECT_THAT(store->ListParts("big", upload), IsStatus(Code::kNotFound));
  ASSERT_OK_AND_ASSIGN(const std::string second, store->CreateUpload("big"));
  ASSERT_OK(store->AbortUpload("big", second));
  EXPECT_EQ(server_.uploads(), 0U);
}

// Every kind of failure, once and twice in a row, before a range comes.
TEST_F(ObjectStoreTest, FailedRequestsAreMadeAgain) {
  std::string object(100'000, 0);
  Rng rng(3);
  for (char& c : object) c = static_cast<char>(rng());
  server_.PutObject("bucket/some/prefix/x", object);
  for (const Fate::Kind kind : {Fate::kSlowDown, Fate::kError, Fate::kHang, Fate::kLost, Fate::kHangDone,
                                Fate::kTorn, Fate::kSpoilt}) {
    for (const size_t times : {1, 2}) {
      SCOPED_TRACE(fmt::format("fate {}, {} times", static_cast<int>(kind), times));
      const auto store = Open();
      Schedule(std::vector<Fate::Kind>(times, kind));
      std::vector<std::byte> range(50'000);
      const auto check = [&](std::span<const std::byte> bytes) {
        return std::memcmp(bytes.data(), object.data() + 1000, bytes.size()) == 0
                   ? Status::Ok()
                   : Status(Code::kCorruption, "wrong bytes");
      };
      ASSERT_OK(store->Get({.key = "x", .offset = 1000, .into = range, .check = check}));
      EXPECT_EQ(std::memcmp(range.data(), object.data() + 1000, range.size()), 0);
      EXPECT_GE(store->statistics().retries, times);
      const bool hangs = kind == Fate::kHang || kind == Fate::kHangDone;
      EXPECT_GE(store->statistics().replaced, hangs ? times : 0);
    }
  }
}

TEST_F(ObjectStoreTest, BytesThatStayWrongAreTheCheckersError) {
  server_.PutObject("bucket/some/prefix/x", "abcd");
  const auto store = Open();
  std::array<std::byte, 4> range{};
  const auto check = [](std::span<const std::byte>) { return Status(Code::kCorruption, "not these"); };
  EXPECT_THAT(store->Get({.key = "x", .into = range, .check = check}),
              IsStatus(Code::kCorruption, HasSubstr("not these")));
  EXPECT_EQ(store->statistics().requests, 8U);
}

TEST_F(ObjectStoreTest, CancelEndsAllRequestsOnce) {
  server_.SetSchedule([](const SeenRequest&) { return Fate{Fate::kHang}; });
  const auto store = Open({.first_deadline_seconds = 60});
  std::vector<std::array<std::byte, 4>> buffers(200);
  std::atomic<int> cancelled{0};
  for (auto& buffer : buffers) {
    store->StartGet({.key = "x", .into = buffer}, [&](const Result<ObjectAnswer>& answer) {
      if (answer.status().code() == Code::kCancelled) ++cancelled;
    });
  }
  store->Cancel();
  EXPECT_THAT(store->Head("x"), IsStatus(Code::kCancelled));
  EXPECT_EQ(cancelled, 200);
}

TEST_F(ObjectStoreTest, TheDestructorWaitsForItsRequests) {
  server_.SetSchedule([](const SeenRequest&) { return Fate{Fate::kHang}; });
  std::atomic<int> ended{0};
  std::vector<std::array<std::byte, 4>> buffers(20);
  {
    const auto store = Open();
    for (auto& buffer : buffers)
      store->StartGet({.key = "x", .into = buffer}, [&](const Result<ObjectAnswer>&) { ++ended; });
  }
  EXPECT_EQ(ended, 20);
}

// 300 ranges side by side under a random schedule; every one comes, and right.
TEST_F(ObjectStoreTest, ManyRangesUnderARandomSchedule) {
  constexpr uint64_t kSeed = 20251126;
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  std::string object(300'000, 0);
  for (size_t i = 0; i < object.size(); i++) object[i] = static_cast<char>(Mix64(i));
  server_.PutObject("bucket/some/prefix/x", object);
  server_.SetSchedule([](const SeenRequest& request) {
    const uint64_t draw = MixSeed(kSeed, request.number) % 40;
    return Fate{draw < 7 ? static_cast<Fate::Kind>(1 + draw) : Fate::kAnswer};
  });
  const auto store = Open();
  std::vector<std::vector<std::byte>> ranges(300, std::vector<std::byte>(1000));
  std::atomic<int> right{0};
  Mutex mutex;
  CondVar changed;
  size_t done = 0;
  for (size_t i = 0; i < ranges.size(); i++) {
    const auto check = [&, i](std::span<const std::byte> bytes) {
      return std::memcmp(bytes.data(), object.data() + 1000 * i, 1000) == 0
                 ? Status::Ok()
                 : Status(Code::kCorruption, "wrong");
    };
    store->StartGet({.key = "x", .offset = 1000 * i, .into = ranges[i], .check = check},
                    [&](const Result<ObjectAnswer>& answer) {
                      if (answer.ok()) ++right;
                      MutexLock lock(mutex);
                      ++done;
                      changed.NotifyAll();
                    });
  }
  MutexLock lock(mutex);
  while (done < ranges.size()) changed.Wait(mutex);
  EXPECT_EQ(right, 300);
}

// Where answers come many at a time, as those of requests that were sent together do, the window grows all the same.
TEST_F(ObjectStoreTest, TheWindowGrowsWhereAnswersComeTogether) {
  server_.PutObject("bucket/some/prefix/x", std::string(1000, 'x'));
  server_.SetSchedule([](const SeenRequest&) { return Fate{.delay_seconds = 0.3}; });
  const auto store = Open();
  const unsigned begins = RequestWindow({}).size();
  std::vector<std::vector<std::byte>> ranges(300, std::vector<std::byte>(1000));
  Mutex mutex;
  CondVar changed;
  size_t done = 0;
  for (std::vector<std::byte>& range : ranges) {
    store->StartGet({.key = "x", .into = range}, [&](const Result<ObjectAnswer>& answer) {
      EXPECT_OK(answer);
      MutexLock lock(mutex);
      ++done;
      changed.NotifyAll();
    });
  }
  MutexLock lock(mutex);
  while (done < ranges.size()) changed.Wait(mutex);
  EXPECT_GT(store->statistics().in_flight, begins);
}

TEST_F(ObjectStoreTest, BuffersAreOfTheBudget) {
  MemoryBudget small(1 << 20);
  EXPECT_THAT(ObjectStore::Open(kPlace, server_.access(), small, {}), IsStatus(Code::kOutOfBudget));
  {
    const auto store = Open();
    EXPECT_EQ(budget_.used_bytes(), ObjectStoreOptions().in_flight_max * (512U << 10));
  }
  EXPECT_EQ(budget_.used_bytes(), 0U);
}

}  // namespace
}  // namespace quarry
