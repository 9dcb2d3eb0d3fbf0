// Quotas of processors in a tree of cgroups that is made here.
#include "quarry/base/processor_quota.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "quarry/base/process.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

class ProcessorQuotaTest : public testing::Test {
 protected:
  ProcessorQuotaTest() { fs::create_directories(root_ / "outer/inner"); }
  ~ProcessorQuotaTest() override { fs::remove_all(root_); }

  void SetMax(const std::string& group, const std::string& text) {
    std::ofstream(root_ / group / "cpu.max") << text << "\n";
  }
  std::optional<unsigned> QuotaOf(const std::string& membership) {
    std::ofstream(root_ / "membership") << membership;
    return ProcessorQuota(root_ / "membership", root_);
  }

  const fs::path root_ = fs::path(testing::TempDir()) / ("processor_quota-" + std::to_string(getpid()));
};

TEST_F(ProcessorQuotaTest, WithoutACgroupOrAQuotaThereIsNone) {
  EXPECT_EQ(ProcessorQuota(root_ / "missing", root_), std::nullopt);
  EXPECT_EQ(QuotaOf("0::/outer/inner\n"), std::nullopt);
  SetMax("outer/inner", "max 100000");
  EXPECT_EQ(QuotaOf("0::/outer/inner\n"), std::nullopt);
  SetMax("outer/inner", "100000 0");
  EXPECT_EQ(QuotaOf("0::/outer/inner\n"), std::nullopt) << "no period at all";
  SetMax("outer/inner", "100000 100000");
  EXPECT_EQ(QuotaOf("4:cpu:/outer/inner\n"), std::nullopt) << "a group of version 1";
}

TEST_F(ProcessorQuotaTest, PartsOfAProcessorCountAsOne) {
  const std::pair<const char*, unsigned> cases[] = {{"1000 100000", 1},
                                                    {"100000 100000", 1},
                                                    {"100001 100000", 2},
                                                    {"250000 100000", 3},
                                                    {"60000 20000", 3}};
  for (const auto& [text, processors] : cases) {
    SetMax("outer/inner", text);
    EXPECT_EQ(QuotaOf("0::/outer/inner\n"), processors) << text;
  }
}

TEST_F(ProcessorQuotaTest, TheLeastOnTheWayUpwardsCounts) {
  SetMax("outer/inner", "max 100000");
  SetMax("outer", "300000 100000");
  EXPECT_EQ(QuotaOf("1:memory:/x\n0::/outer/inner\n"), 3U);
  SetMax("outer/inner", "500000 100000");
  EXPECT_EQ(QuotaOf("0::/outer/inner\n"), 3U);
  SetMax("outer/inner", "200000 100000");
  EXPECT_EQ(QuotaOf("0::/outer/inner\n"), 2U);
  EXPECT_EQ(QuotaOf("0::/outer\n"), 3U) << "groups below are others'";
  SetMax(".", "100000 100000");  // a container sees its own group as the root
  EXPECT_EQ(QuotaOf("0::/\n"), 1U);
  EXPECT_EQ(QuotaOf("0::/outer/inner\n"), 1U);
}

TEST_F(ProcessorQuotaTest, ThisProcessHasNoMoreProcessorsThanItsQuota) {
  EXPECT_GE(ProcessorCount(), 1U);
  if (const std::optional<unsigned> quota = ProcessorQuota()) {
    EXPECT_LE(ProcessorCount(), *quota);
  }
}

}  // namespace
}  // namespace quarry
