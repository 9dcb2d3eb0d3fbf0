#include "quarry/io/backend.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <thread>

#include "io_util.h"
#include "quarry/base/units.h"
#include "quarry/io/buffer.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::HasOneLineWith;
using testing_util::MakeBackend;
using testing_util::RandomBytes;
using testing_util::ScratchFolder;
using testing_util::WriteFile;

class BackendTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    backend_ = MakeBackend(GetParam());
    if (!backend_) GTEST_SKIP() << "the kernel refuses io_uring";
  }
  // Direct where that is possible.
  File MakeFile(const std::string& name, const std::vector<std::byte>& bytes) {
    WriteFile(folder_.Path(name), bytes);
    return backend_->Open(folder_.Path(name), OpenMode::kReadDirect).value();
  }

  ScratchFolder folder_;
  std::unique_ptr<IoBackend> backend_;
};
INSTANTIATE_TEST_SUITE_P(Backends, BackendTest, testing::Values("io_uring", "threads"),
                         testing_util::NameOfParameter);

TEST_P(BackendTest, HasItsName) { EXPECT_EQ(backend_->name(), GetParam()); }

TEST_P(BackendTest, WhatIsWrittenIsReadBack) {
  const auto bytes = RandomBytes(3 * 4096 + 17, 1);
  {
    const File file = backend_->Open(folder_.Path("f"), OpenMode::kCreate).value();
    ASSERT_OK(backend_->WriteAt(file, 5, bytes));
    ASSERT_OK(backend_->SyncFile(file));
    ASSERT_OK(backend_->SyncDirectory(folder_.Path("")));
  }
  const File file = backend_->Open(folder_.Path("f"), OpenMode::kReadBuffered).value();
  EXPECT_EQ(backend_->FileBytes(file).value(), bytes.size() + 5);
  std::vector<std::byte> out(bytes.size());
  ASSERT_OK(backend_->ReadAt(file, 5, out));
  EXPECT_EQ(out, bytes);
}

TEST_P(BackendTest, AFileThatExistsIsReadAndWrittenInPlace) {
  const auto bytes = RandomBytes(3 * 4096, 1);
  WriteFile(folder_.Path("f"), bytes);
  const IoBuffer buffer = IoBuffer::Allocate(3 * 4096).value();
  std::ranges::copy(RandomBytes(4096, 2), buffer.data());
  const File file = backend_->Open(folder_.Path("f"), OpenMode::kReadWriteDirect).value();
  ASSERT_OK(backend_->WriteAt(file, 4096, buffer.span().first(4096)));
  ASSERT_OK(backend_->ReadAt(file, 0, buffer.span()));
  auto expected = bytes;
  std::ranges::copy(RandomBytes(4096, 2), expected.begin() + 4096);
  EXPECT_TRUE(std::ranges::equal(buffer.span(), expected));
}

TEST_P(BackendTest, ErrorsOfOpeningNameTheFile) {
  const std::string path = folder_.Path("f");
  for (const OpenMode mode : {OpenMode::kReadDirect, OpenMode::kReadBuffered, OpenMode::kReadWriteDirect}) {
    const Status status = backend_->Open(path, mode).status();
    EXPECT_THAT(status, IsStatus(Code::kNotFound, HasSubstr(path)));
  }
  for (const OpenMode mode : {OpenMode::kCreate, OpenMode::kCreateDirect}) {
    ASSERT_OK(backend_->Open(path, mode));
    EXPECT_THAT(backend_->Open(path, mode), IsStatus(Code::kAlreadyExists));
    std::filesystem::remove(path);
  }
}

TEST_P(BackendTest, ReadingPastTheEndSaysWhereTheFileEnds) {
  for (const OpenMode mode : {OpenMode::kReadDirect, OpenMode::kReadBuffered}) {
    WriteFile(folder_.Path("f"), RandomBytes(5000, 1));
    const File file = backend_->Open(folder_.Path("f"), mode).value();
    const IoBuffer out = IoBuffer::Allocate(16384).value();
    const Status status = backend_->ReadAt(file, 0, out.span());
    EXPECT_THAT(status, IsStatus(Code::kCorruption, HasSubstr("ends at offset 5000")));
    EXPECT_THAT(backend_->ReadAt(file, 8192, out.span()), IsStatus(Code::kCorruption));
  }
}

TEST_P(BackendTest, AFullDiskIsNoSpace) {
  const File full(open("/dev/full", O_WRONLY | O_CLOEXEC), "/dev/full", false);
  if (full.descriptor() < 0) GTEST_SKIP() << "no /dev/full";
  const auto bytes = RandomBytes(100, 1);
  const Status status = backend_->WriteAt(full, 0, bytes);
  EXPECT_THAT(status, IsStatus(Code::kNoSpace, HasSubstr("100 bytes at offset 0 of /dev/full")));
}

TEST_P(BackendTest, ARenamedFileHasItsNewNameAlone) {
  MakeFile("a", RandomBytes(10, 1));
  ASSERT_OK(backend_->Rename(folder_.Path("a"), folder_.Path("b")));
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("a")));
  EXPECT_TRUE(std::filesystem::exists(folder_.Path("b")));
  EXPECT_THAT(backend_->Rename(folder_.Path("a"), folder_.Path("c")), IsStatus(Code::kNotFound));
  EXPECT_THAT(backend_->SyncDirectory(folder_.Path("none")), IsStatus(Code::kNotFound));
}

TEST_P(BackendTest, NamesAreMadeLinkedAndRemoved) {
  namespace fs = std::filesystem;
  const std::string folder = folder_.Path("d");
  ASSERT_OK(backend_->CreateDirectory(folder));
  EXPECT_THAT(backend_->CreateDirectory(folder), IsStatus(Code::kAlreadyExists));
  EXPECT_THAT(backend_->CreateDirectory(folder_.Path("none/d")), IsStatus(Code::kNotFound));
  MakeFile("a", RandomBytes(10, 1));
  ASSERT_OK(backend_->Link(folder_.Path("a"), folder + "/b"));
  EXPECT_TRUE(fs::equivalent(folder_.Path("a"), folder + "/b"));
  EXPECT_THAT(backend_->Link(folder_.Path("a"), folder + "/b"), IsStatus(Code::kAlreadyExists));
  EXPECT_THAT(backend_->Link(folder_.Path("none"), folder + "/c"), IsStatus(Code::kNotFound));
  EXPECT_THAT(backend_->Remove(folder), IsStatus(Code::kIoError)) << "it is not empty";
  ASSERT_OK(backend_->Remove(folder + "/b"));
  EXPECT_TRUE(fs::exists(folder_.Path("a")));
  ASSERT_OK(backend_->Remove(folder));
  EXPECT_THAT(backend_->Remove(folder), IsStatus(Code::kNotFound));
}

TEST_P(BackendTest, AFileIsTruncatedAndGrowsByZeros) {
  const File file = backend_->Open(folder_.Path("f"), OpenMode::kCreate).value();
  const auto bytes = RandomBytes(100, 1);
  ASSERT_OK(backend_->WriteAt(file, 0, bytes));
  ASSERT_OK(backend_->Truncate(file, 40));
  ASSERT_OK(backend_->Truncate(file, 60));
  std::vector<std::byte> expected(bytes.begin(), bytes.begin() + 40), found(60);
  expected.resize(60);
  ASSERT_EQ(backend_->FileBytes(file).value(), 60u);
  ASSERT_OK(backend_->ReadAt(file, 0, found));
  EXPECT_EQ(found, expected);
}

TEST_P(BackendTest, FoldersAreEnsuredAndTreesRemoved) {
  namespace fs = std::filesystem;
  const std::string folder = folder_.Path("d");
  for (int again = 0; again < 2; ++again) {
    ASSERT_OK(EnsureDirectory(*backend_, folder));
    ASSERT_OK(EnsureSyncedDirectory(*backend_, folder + "/e"));
  }
  MakeFile("d/e/f", RandomBytes(10, 1));
  MakeFile("kept", RandomBytes(10, 1));
  EXPECT_THAT(EnsureDirectory(*backend_, folder + "/e/f"), IsStatus(Code::kAlreadyExists)) << "it is a file";
  fs::create_symlink(folder_.Path("kept"), folder + "/e/link");
  fs::create_directory_symlink(folder_.Path(""), folder + "/up");
  ASSERT_OK(RemoveTree(*backend_, folder));
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_TRUE(fs::exists(folder_.Path("kept"))) << "links were followed";
  EXPECT_OK(RemoveTree(*backend_, folder)) << "there is nothing to remove";
}

TEST_P(BackendTest, AFileClosesItsDescriptorOnce) {
  File file = MakeFile("f", RandomBytes(10, 1));
  const int descriptor = file.descriptor();
  {
    const File moved = std::move(file);
    EXPECT_EQ(moved.descriptor(), descriptor);
    EXPECT_EQ(file.descriptor(), -1);  // NOLINT: what a moved-from file is
    EXPECT_NE(fcntl(descriptor, F_GETFD), -1);
  }
  EXPECT_EQ(fcntl(descriptor, F_GETFD), -1);
}

TEST_P(BackendTest, ReadsAndWritesOfAPortCarryTheirUserData) {
  constexpr unsigned kDepth = 16;
  constexpr uint32_t kPiece = 4096;
  const auto bytes = RandomBytes(kDepth * kPiece, 1);
  const IoBuffer written = IoBuffer::Allocate(bytes.size()).value();
  const IoBuffer read = IoBuffer::Allocate(bytes.size()).value();
  std::ranges::copy(bytes, written.data());
  const File file = backend_->Open(folder_.Path("f"), OpenMode::kCreateDirect).value();
  const std::unique_ptr<IoPort> port = backend_->NewPort(kDepth).value();
  for (const auto kind : {RawRequest::Kind::kWrite, RawRequest::Kind::kRead}) {
    const IoBuffer& buffer = kind == RawRequest::Kind::kWrite ? written : read;
    std::vector<RawRequest> requests;
    for (uint32_t i = 0; i < kDepth; i++) {
      requests.push_back({kind, file.descriptor(), i * kPiece, buffer.data() + i * kPiece, kPiece, 100 + i});
    }
    ASSERT_OK(port->Submit(requests));
    std::vector<bool> seen(kDepth);
    std::vector<RawCompletion> completions(3);  // fewer than there are
    for (uint32_t count = 0; count < kDepth;) {
      const size_t more = port->Wait(1, completions).value();
      ASSERT_GT(more, 0u);
      for (size_t i = 0; i < more; i++) {
        EXPECT_EQ(completions[i].result, static_cast<int32_t>(kPiece));
        ASSERT_FALSE(seen.at(completions[i].user_data - 100));
        seen[completions[i].user_data - 100] = true;
      }
      count += static_cast<uint32_t>(more);
    }
  }
  EXPECT_TRUE(std::ranges::equal(read.span(), bytes));
}

TEST_P(BackendTest, WaitingForMoreThanIsInFlightEnds) {
  const File file = MakeFile("f", RandomBytes(8192, 1));
  const IoBuffer buffer = IoBuffer::Allocate(8192).value();
  const std::unique_ptr<IoPort> port = backend_->NewPort(8).value();
  std::vector<RawCompletion> completions(8);
  EXPECT_EQ(port->Wait(5, completions).value(), 0u);
  const RawRequest requests[] = {
      {.descriptor = file.descriptor(), .buffer = buffer.data(), .bytes = 4096},
      {.descriptor = file.descriptor(), .buffer = buffer.data() + 4096, .bytes = 4096}};
  ASSERT_OK(port->Submit(requests));
  EXPECT_EQ(port->Wait(5, completions).value(), 2u);
  EXPECT_EQ(port->Wait(0, completions).value(), 0u);
}

TEST_P(BackendTest, ErrorsOfTheKernelComeBackAsCompletions) {
  const std::unique_ptr<IoPort> port = backend_->NewPort(1).value();
  std::byte buffer[16];
  const RawRequest request = {.descriptor = -1, .buffer = buffer, .bytes = 16};
  ASSERT_OK(port->Submit({&request, 1}));
  RawCompletion completion;
  ASSERT_EQ(port->Wait(1, {&completion, 1}).value(), 1u);
  EXPECT_EQ(completion.result, -EBADF);
}

TEST_P(BackendTest, NoBufferIsWrittenAfterItsPortIsGone) {
  constexpr unsigned kDepth = 64;
  const File file = MakeFile("f", std::vector<std::byte>(kDepth * 65536, std::byte{1}));
  const IoBuffer buffer = IoBuffer::Allocate(kDepth * 65536).value();
  for (int round = 0; round < 5; round++) {
    {
      const std::unique_ptr<IoPort> port = backend_->NewPort(kDepth).value();
      std::vector<RawRequest> requests;
      for (uint32_t i = 0; i < kDepth; i++) {
        requests.push_back({.descriptor = file.descriptor(),
                            .offset = i * 65536,
                            .buffer = buffer.data() + i * 65536,
                            .bytes = 65536});
      }
      ASSERT_OK(port->Submit(requests));
    }
    std::ranges::fill(buffer.span(), std::byte{2});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_TRUE(std::ranges::all_of(buffer.span(), [](std::byte b) { return b == std::byte{2}; }));
  }
}

TEST_P(BackendTest, APortMayBeMadeByOneThreadAndUsedByAnother) {
  const auto bytes = RandomBytes(4096, 1);
  const File file = MakeFile("f", bytes);
  const IoBuffer buffer = IoBuffer::Allocate(4096).value();
  const std::unique_ptr<IoPort> port = backend_->NewPort(1).value();
  std::thread([&] {
    const RawRequest request = {.descriptor = file.descriptor(), .buffer = buffer.data(), .bytes = 4096};
    ASSERT_OK(port->Submit({&request, 1}));
    RawCompletion completion;
    ASSERT_EQ(port->Wait(1, {&completion, 1}).value(), 1u);
    EXPECT_EQ(completion.result, 4096);
  }).join();
  EXPECT_TRUE(std::ranges::equal(buffer.span(), bytes));
}

TEST_P(BackendTest, DirectReadsAtTheLogicalBlockWork) {
  const auto bytes = RandomBytes(256 * kKiB, 1);
  const File file = MakeFile("f", bytes);
  const uint32_t block_bytes = LogicalBlockBytes(file);
  ASSERT_GE(block_bytes, 512u);
  ASSERT_LE(block_bytes, 65536u);
  ASSERT_TRUE(std::has_single_bit(block_bytes));
  const IoBuffer buffer = IoBuffer::Allocate(block_bytes).value();
  ASSERT_OK(backend_->ReadAt(file, block_bytes, buffer.span()));
  EXPECT_TRUE(std::ranges::equal(buffer.span(), std::span(bytes).subspan(block_bytes, block_bytes)));
}

TEST(FallbackDeathTest, AFileSystemWithoutDirectReadsIsReadBufferedAndSaidOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto open_two = [] {  // procfs has no O_DIRECT on any kernel
    const auto backend = MakeThreadBackend(1);
    const File first = backend->Open("/proc/version", OpenMode::kReadDirect).value();
    const File second = backend->Open("/proc/version", OpenMode::kReadDirect).value();
    std::byte out[5];
    const bool read = backend->ReadAt(first, 0, out).ok();
    std::exit(read && !first.direct() && !second.direct() ? 0 : 1);
  };
  EXPECT_EXIT(open_two(), testing::ExitedWithCode(0), testing::Truly([](const std::string& output) {
                return HasOneLineWith(output, "has no O_DIRECT");
              }));
}

// From now on io_uring_setup fails with EPERM, as in a container that forbids it.
bool ForbidIoUring() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = std::size(filter), .filter = filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(FallbackDeathTest, AKernelThatRefusesIoUringGetsThreadsAndOneLine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto make_two = [] {
    unsetenv("QUARRY_IO");
    if (!ForbidIoUring()) std::exit(2);
    const auto first = MakeDefaultBackend();
    const auto second = MakeDefaultBackend();
    const bool threads = first->name() == "threads" && second->name() == "threads";
    std::exit(threads && MakeUringBackend().status().code() == Code::kIoError ? 0 : 1);
  };
  EXPECT_EXIT(make_two(), testing::ExitedWithCode(0), testing::Truly([](const std::string& output) {
                return HasOneLineWith(output, "io_uring is not to be had");
              }));
}

TEST(FallbackDeathTest, TheEnvironmentChoosesThreadsWithoutAWord) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto make = [] {
    setenv("QUARRY_IO", "threads", 1);
    std::exit(MakeDefaultBackend()->name() == "threads" ? 0 : 1);
  };
  EXPECT_EXIT(make(), testing::ExitedWithCode(0), testing::Not(HasSubstr("io_uring")));
}

}  // namespace
}  // namespace quarry
