// What is left of descriptors and threads: by the system's own limits, and by cgroups in a tree that is made
// here.
#include "quarry/base/process_limits.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>

#include "quarry/base/thread.h"
#include "quarry/base/units.h"
#include "support/pids_group.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

// Whether `holds` does in a process of its own, whose limits it may change.
bool InAChild(const std::function<bool()>& holds) {
  const pid_t child = fork();
  if (child == 0) _exit(holds() ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool LimitDescriptors(rlim_t soft, rlim_t hard) {
  const rlimit limit{.rlim_cur = soft, .rlim_max = hard};
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

TEST(ProcessLimitsTest, AsMuchIsLeftOfTheAddressSpaceAsCanBeMapped) {
  EXPECT_EQ(AddressSpaceLeft(), UINT64_MAX);
  EXPECT_TRUE(InAChild([] {
    // More than there is by now: sanitizers have mapped terabytes.
    rlim_t pages = 0;
    if (!(std::ifstream("/proc/self/statm") >> pages)) return false;
    const rlim_t most = (pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE))) + (4 * kGiB);
    const rlimit limit{.rlim_cur = most, .rlim_max = most};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return false;
    const uint64_t left = AddressSpaceLeft();
    const auto maps = [](uint64_t bytes) {
      return mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
    };
    return !maps(left + kMiB) && maps(left - kMiB) && AddressSpaceLeft() <= kMiB;
  }));
}

TEST(ProcessLimitsTest, AsManyDescriptorsAreLeftAsCanBeOpened) {
  EXPECT_TRUE(InAChild([] {
    if (!LimitDescriptors(60, 100)) return false;
    const uint64_t left = DescriptorsLeft();
    uint64_t opened = 0;
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) ++opened;
    return left == opened && errno == EMFILE && DescriptorsLeft() == 0;
  }));
}

TEST(ProcessLimitsTest, TheSoftLimitOfDescriptorsIsRaisedToTheHardOne) {
  EXPECT_TRUE(InAChild([] {
    if (!LimitDescriptors(60, 100)) return false;
    const uint64_t before = DescriptorsLeft();
    RaiseDescriptorLimit();
    return DescriptorsLeft() == before + 40;
  }));
}

class ThreadsLeftTest : public testing::Test {
 protected:
  void Set(const std::string& group, const std::string& most, const std::string& there) {
    folder_.Write(group + "/pids.max", most + "\n");
    folder_.Write(group + "/pids.current", there + "\n");
  }
  uint64_t Left(const std::string& membership) {
    return ThreadsLeft(folder_.Write("membership", membership), folder_.path());
  }
  // That of the user, where this does not run as root.
  const uint64_t all_ = ThreadsLeft("/nonexistent", "/nonexistent");
  const TemporaryFolder folder_{"threads_left"};
};

TEST_F(ThreadsLeftTest, WithoutALimitNoneIsTold) {
  EXPECT_GE(Left("0::/outer/inner\n"), std::min<uint64_t>(all_, 1));
  Set("outer/inner", "max", "7");
  EXPECT_GE(Left("0::/outer/inner\n"), std::min<uint64_t>(all_, 1));
  if (getuid() == 0) {
    EXPECT_EQ(Left("0::/outer/inner\n"), UINT64_MAX);
  }
}

TEST_F(ThreadsLeftTest, TheLeastOfAGroupAndThoseAboveItCounts) {
  Set("outer/inner", "10", "7");
  EXPECT_EQ(Left("0::/outer/inner\n"), 3U);
  Set("outer", "100", "98");
  EXPECT_EQ(Left("0::/outer/inner\n"), 2U);
  EXPECT_EQ(Left("0::/outer\n"), 2U);
  Set("outer/inner", "7", "9");  // lowered while there were more
  EXPECT_EQ(Left("0::/outer/inner\n"), 0U);
}

TEST_F(ThreadsLeftTest, GroupsOfBothVersionsCount) {
  Set("pids/service", "20", "15");
  EXPECT_EQ(Left("12:cpu:/other\n8:pids:/service\n0::/\n"), 5U);
  EXPECT_EQ(Left("8:cpu,pids:/service\n"), 5U);
  EXPECT_GT(Left("8:pidsetc:/service\n"), 5U);
}

// RLIMIT_NPROC and pids.max where the system has them for this process: as uid nobody, and in a group made
// here.
TEST(ProcessLimitsTest, AUserWithoutPrivilegesHasTheLimitOfItsProcesses) {
  if (getuid() != 0) GTEST_SKIP() << "only root can become a user who has no other process";
  EXPECT_TRUE(InAChild([] {
    constexpr uid_t kNobody = 65534;
    const rlimit limit{.rlim_cur = 8, .rlim_max = 8};
    if (setrlimit(RLIMIT_NPROC, &limit) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) return false;
    const uint64_t left = ThreadsLeft("/nonexistent", "/nonexistent");
    return left <= 7 && ProbeThreads(20) == left;
  }));
}

TEST(ProcessLimitsTest, AGroupsLimitOfProcessesIsWhatCanBeStarted) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer has threads of its own";
#endif
  const PidsGroup group(9);
  if (!group.made()) GTEST_SKIP() << kNoPidsGroup;
  EXPECT_TRUE(InAChild([&] { return group.Enter() && ThreadsLeft() == 8 && ProbeThreads(20) == 8; }));
}

}  // namespace
}  // namespace quarry
