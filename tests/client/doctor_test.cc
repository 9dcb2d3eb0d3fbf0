// What `quarry doctor` makes of machines that are not here.
#include "cli/doctor_findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "quarry/base/units.h"

namespace quarry::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A machine and a place with nothing to say against them.
MachineFacts GoodMachine() {
  return {.kernel = "6.1.0-18-amd64",
          .io_uring_disabled = "0",
          .memlock_bytes = 8 * kMiB,
          .files_max = 1024,
          .page_bytes = 4096,
          .memory_bytes = 32 * kGiB,
          .memory_limit_bytes = 32 * kGiB,
          .huge_pages = "always [madvise] never",
          .huge_page_defrag = "always defer defer+madvise [madvise] never",
          .processors_online = 8,
          .processors = 8,
          .avx2 = true,
          .f16c = true,
          .avx512 = true,
          .gnuplot = "/usr/bin/gnuplot"};
}

PlaceFacts GoodPlace() {
  return {.path = "/data",
          .file_system = "ext4",
          .block_bytes = 512,
          .free_bytes = 100 * kGiB,
          .total_bytes = 200 * kGiB,
          .device = "nvme0n1",
          .scheduler = "[none] mq-deadline",
          .rotational = false};
}

Finding Of(const std::vector<Finding>& findings, const std::string& what) {
  const auto found = std::ranges::find(findings, what, &Finding::what);
  EXPECT_NE(found, findings.end()) << what;
  return found == findings.end() ? Finding() : *found;
}

Finding OfMachine(const std::string& what, const std::function<void(MachineFacts&)>& change) {
  MachineFacts facts = GoodMachine();
  change(facts);
  const std::vector<Finding> findings = JudgeMachine(facts);
  for (const Finding& other : findings) {
    if (other.what != what) {
      EXPECT_EQ(other.verdict, Verdict::kOk) << other.what;
    }
  }
  return Of(findings, what);
}

Finding OfPlace(const std::string& what, const std::function<void(PlaceFacts&)>& change) {
  PlaceFacts facts = GoodPlace();
  change(facts);
  const std::vector<Finding> findings = JudgePlace(facts);
  for (const Finding& other : findings) {
    if (other.what != what) {
      EXPECT_EQ(other.verdict, Verdict::kOk) << other.what;
    }
  }
  return Of(findings, what);
}

TEST(DoctorTest, AGoodMachineNeedsNothing) {
  for (const std::vector<Finding>& findings : {JudgeMachine(GoodMachine()), JudgePlace(GoodPlace())}) {
    EXPECT_GE(findings.size(), 5U);
    for (const Finding& finding : findings) {
      EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.what;
      EXPECT_THAT(finding.fix, IsEmpty()) << finding.what;
      EXPECT_THAT(finding.value, Not(IsEmpty())) << finding.what;
    }
  }
}

TEST(DoctorTest, WhyThereIsNoIoUringIsToldFromWhoForbidsIt) {
  const Finding by_sysctl = OfMachine("io_uring", [](MachineFacts& facts) {
    facts.io_uring_error = "not permitted";
    facts.io_uring_disabled = "2";
  });
  EXPECT_EQ(by_sysctl.verdict, Verdict::kSlow);
  EXPECT_THAT(by_sysctl.value, AllOf(HasSubstr("not permitted"), HasSubstr("kernel.io_uring_disabled = 2")));
  EXPECT_THAT(by_sysctl.fix, AllOf(HasSubstr("sysctl"), Not(HasSubstr("seccomp"))));
  for (const char* not_forbidden : {"0", ""}) {
    const Finding by_seccomp = OfMachine("io_uring", [&](MachineFacts& facts) {
      facts.io_uring_error = "not permitted";
      facts.io_uring_disabled = not_forbidden;
    });
    EXPECT_EQ(by_seccomp.verdict, Verdict::kSlow);
    EXPECT_THAT(by_seccomp.fix, AllOf(HasSubstr("seccomp"), Not(HasSubstr("sysctl"))));
  }
}

TEST(DoctorTest, LockedMemoryMattersToOldKernelsOnly) {
  const auto little = [](MachineFacts& facts) { facts.memlock_bytes = 64 * kKiB; };
  EXPECT_EQ(OfMachine("memlock limit", little).verdict, Verdict::kOk);
  const auto little_and_old = [&](MachineFacts& facts) {
    little(facts);
    facts.kernel = "5.10.0-28-amd64";
  };
  EXPECT_EQ(OfMachine("memlock limit", little_and_old).verdict, Verdict::kSlow);
  const auto unlimited = [](MachineFacts& facts) { facts.memlock_bytes = UINT64_MAX; };
  EXPECT_EQ(OfMachine("memlock limit", unlimited).value, "unlimited");
}

TEST(DoctorTest, DevicesAreToldAsTheyAre) {
  const Finding none = OfMachine("GPU", [](MachineFacts& facts) {
    facts.gpu_status = Status(Code::kUnsupported, "no CUDA driver: libcuda.so.1: cannot open");
  });
  EXPECT_EQ(none.verdict, Verdict::kOk);
  EXPECT_THAT(none.value, HasSubstr("no CUDA driver"));
  EXPECT_THAT(Of(JudgeMachine(GoodMachine()), "GPU").value, HasSubstr("finds no device"));
  const Finding broken = OfMachine("GPU", [](MachineFacts& facts) {
    facts.gpu_status = Status(Code::kIoError, "start CUDA: CUDA_ERROR_UNKNOWN (999): unknown error");
  });
  EXPECT_EQ(broken.verdict, Verdict::kSlow);
  EXPECT_THAT(broken.fix, HasSubstr("nvidia-smi"));

  const auto with = [](unsigned width, const std::string& pin_error) {
    return [=](MachineFacts& facts) {
      facts.gpus = {{.facts = {.ordinal = 0,
                               .name = "NVIDIA H100",
                               .driver = 13010,
                               .capability = 90,
                               .memory_bytes = 80 * kGiB,
                               .pcie_generation = 5,
                               .pcie_width = width},
                     .pin_error = pin_error}};
    };
  };
  const Finding good = OfMachine("GPU 0", with(16, ""));
  EXPECT_EQ(good.verdict, Verdict::kOk);
  EXPECT_EQ(good.value, "NVIDIA H100, 80.0 GiB, sm_90, driver of CUDA 13.1, PCIe 5 x16");
  EXPECT_EQ(OfMachine("GPU 0", with(0, "")).verdict, Verdict::kOk);  // a virtual machine may not tell
  EXPECT_EQ(OfMachine("GPU 0", with(4, "")).verdict, Verdict::kSlow);
  const Finding unpinned = OfMachine("GPU 0", with(16, "not permitted"));
  EXPECT_EQ(unpinned.verdict, Verdict::kSlow);
  EXPECT_THAT(unpinned.value, HasSubstr("not permitted"));
  EXPECT_THAT(unpinned.fix, HasSubstr("memlock"));
}

TEST(DoctorTest, AQuotaBelowTheProcessorsIsTold) {
  const auto value = [](unsigned quota) {
    return OfMachine("processors",
                     [quota](MachineFacts& facts) {
                       facts.processor_quota = quota;
                       facts.processors = std::min(facts.processors, quota);
                     })
        .value;
  };
  EXPECT_THAT(value(3), testing::StartsWith("3 (the cgroup's quota; the machine has 8)"));
  EXPECT_THAT(value(8), Not(HasSubstr("quota")));
}

TEST(DoctorTest, EveryFactOfTheMachineHasItsVerdict) {
  using Change = std::function<void(MachineFacts&)>;
  const std::tuple<const char*, Verdict, const char*, Change> cases[] = {
      {"kernel", Verdict::kBroken, "QUARRY_IO", [](auto& facts) { facts.kernel = "4.19.0-26-amd64"; }},
      {"kernel", Verdict::kOk, "", [](auto& facts) { facts.kernel = "10.0"; }},
      {"open files limit", Verdict::kBroken, "ulimit -n", [](auto& facts) { facts.files_max = 64; }},
      {"memory", Verdict::kOk, "", [](auto& facts) { facts.memory_limit_bytes = 4 * kGiB; }},
      {"memory", Verdict::kSlow, "cgroup", [](auto& facts) { facts.memory_limit_bytes = 100 * kMiB; }},
      {"huge pages", Verdict::kSlow, "echo madvise",
       [](auto& facts) { facts.huge_pages = "always madvise [never]"; }},
      {"huge pages", Verdict::kOk, "", [](auto& facts) { facts.huge_pages = "[always] madvise never"; }},
      {"huge pages", Verdict::kSlow, "", [](auto& facts) { facts.huge_pages = ""; }},
      {"huge page defrag", Verdict::kSlow, "defrag",
       [](auto& facts) { facts.huge_page_defrag = "always madvise [never]"; }},
      {"page size", Verdict::kBroken, "4 KiB", [](auto& facts) { facts.page_bytes = 65536; }},
      {"processors", Verdict::kSlow, "AVX2", [](auto& facts) { facts.avx2 = false; }},
      {"processors", Verdict::kSlow, "F16C", [](auto& facts) { facts.f16c = false; }},
      {"processors", Verdict::kOk, "", [](auto& facts) { facts.avx512 = false; }},
      {"gnuplot", Verdict::kOk, "apt-get", [](auto& facts) { facts.gnuplot = ""; }},
  };
  for (const auto& [what, verdict, fix, change] : cases) {
    const Finding finding = OfMachine(what, change);
    EXPECT_EQ(finding.verdict, verdict) << what << ": " << finding.value;
    EXPECT_THAT(finding.fix, HasSubstr(fix)) << what;
    EXPECT_EQ(finding.verdict == Verdict::kOk || !finding.fix.empty(), true) << what << " needs a fix";
  }
}

TEST(DoctorTest, EveryFactOfThePlaceHasItsVerdict) {
  using Change = std::function<void(PlaceFacts&)>;
  const std::tuple<const char*, Verdict, const char*, Change> cases[] = {
      {"file system", Verdict::kSlow, "disk of this machine", [](auto& facts) { facts.file_system = "nfs"; }},
      {"file system", Verdict::kBroken, "writable", [](auto& facts) { facts.write_error = "read-only"; }},
      {"O_DIRECT", Verdict::kSlow, "page cache", [](auto& facts) { facts.direct_error = "refused"; }},
      {"direct reads of", Verdict::kOk, "", [](auto& facts) { facts.block_bytes = 4096; }},
      {"direct reads of", Verdict::kBroken, "4.00 KiB", [](auto& facts) { facts.block_bytes = 16384; }},
      {"free space", Verdict::kBroken, "free", [](auto& facts) { facts.free_bytes = kMiB; }},
      {"device", Verdict::kSlow, "SSD", [](auto& facts) { facts.rotational = true; }},
      {"device", Verdict::kOk, "",
       [](auto& facts) { facts.rotational = true, facts.measured_reads = 80'000; }},
      {"device", Verdict::kSlow, "SSD",
       [](auto& facts) { facts.rotational = false, facts.measured_reads = 150; }},
      {"device", Verdict::kSlow, "nvme0n1/queue/scheduler",
       [](auto& facts) { facts.scheduler = "none [bfq]"; }},
      {"device", Verdict::kOk, "", [](auto& facts) { facts.device = ""; }},
      {"device", Verdict::kOk, "", [](auto& facts) { facts.rotational.reset(); }},
  };
  for (const auto& [what, verdict, fix, change] : cases) {
    const Finding finding = OfPlace(what, change);
    EXPECT_EQ(finding.verdict, verdict) << what << ": " << finding.value;
    EXPECT_THAT(finding.fix, HasSubstr(fix)) << what;
  }
}

}  // namespace
}  // namespace quarry::cli
