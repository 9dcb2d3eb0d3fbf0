#include "quarry/base/regular_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>

#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

void MakeSocket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  path.copy(address.sun_path, path.size());
  const int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  close(descriptor);
}

class RegularFileTest : public testing::Test {
 protected:
  // An open that waits would wait for ever.
  void SetUp() override { alarm(60); }
  void TearDown() override { alarm(0); }

  const TemporaryFolder folder_{"regular"};
};

TEST_F(RegularFileTest, WhatIsNoFileIsRefusedByNameAndNothingWaits) {
  const std::string fifo = folder_ / "fifo", socket = folder_ / "socket", link = folder_ / "link",
                    folder = folder_ / "folder";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  MakeSocket(socket);
  fs::create_symlink("/dev/zero", link);
  fs::create_directory(folder);
  for (const auto& [path, kind] : {std::pair(fifo, "a FIFO"), std::pair(socket, "a socket"),
                                   std::pair(link, "a device"), std::pair(folder, "a folder")}) {
    for (const int flags :
         {O_RDONLY, O_RDWR, O_RDONLY | O_DIRECT, O_RDWR | O_DIRECT, O_WRONLY, O_RDWR | O_CREAT}) {
      const Status status = OpenRegularFile(path, flags, Code::kCorruption).status();
      EXPECT_THAT(status, IsStatus(Code::kCorruption)) << flags;
      EXPECT_THAT(std::string(status.message()), HasSubstr(path + ": is " + kind));
    }
  }
  const Status status = OpenRegularFile(fifo, O_RDONLY, Code::kInvalidArgument).status();
  EXPECT_THAT(status, IsStatus(Code::kInvalidArgument));
}

TEST_F(RegularFileTest, FilesAndLinksToThemAreOpenedAndWaitAsFilesDo) {
  const std::string file = folder_.Write("file", "bytes"), link = folder_ / "link";
  fs::create_symlink(file, link);
  for (const std::string& path : {file, link}) {
    ASSERT_OK_AND_ASSIGN(const OpenedFile opened, OpenRegularFile(path, O_RDONLY, Code::kCorruption));
    EXPECT_FALSE(opened.direct);
    EXPECT_EQ(fcntl(opened.descriptor, F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(fcntl(opened.descriptor, F_GETFD) & FD_CLOEXEC, 0);
    char bytes[8];
    EXPECT_EQ(read(opened.descriptor, bytes, sizeof(bytes)), 5);
    close(opened.descriptor);
  }
  EXPECT_THAT(OpenRegularFile(folder_ / "none", O_RDONLY, Code::kCorruption), IsStatus(Code::kNotFound));
  EXPECT_THAT(OpenRegularFile(file, O_RDWR | O_CREAT | O_EXCL, Code::kCorruption),
              IsStatus(Code::kAlreadyExists));
}

}  // namespace
}  // namespace quarry
