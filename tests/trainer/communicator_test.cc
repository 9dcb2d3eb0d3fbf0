#include "quarry/trainer/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "gradient_exchange.h"
#include "metrics.h"
#include "quarry/base/random.h"
#include "scores.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"
#include "thread_communicator.h"

namespace quarry {
namespace {

using testing::HasSubstr;

constexpr uint32_t kRanks = 3;
constexpr uint64_t kValuesSeed = 20;

Result<std::unique_ptr<Communicator>> JoinAt(const TemporaryFolder& folder, uint32_t rank,
                                             uint32_t size = kRanks, double timeout_seconds = 20) {
  Rendezvous rendezvous{.rank = rank, .size = size, .timeout_seconds = timeout_seconds};
  rendezvous.address = folder / "rendezvous";
  return JoinTrainers(rendezvous);
}

template <typename T>
std::vector<T> RandomValues(size_t count, uint32_t rank) {
  Rng rng(MixSeed(kValuesSeed, count, rank));
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(rng.Unit() - 0.5);
  return values;
}

template <typename T>
void ExpectSums(Communicator& gloo, Communicator& threads, size_t count) {
  std::vector<T> sums = RandomValues<T>(count, gloo.rank());
  std::vector<T> expected = sums;
  EXPECT_OK(gloo.AllReduceSum(sums));
  EXPECT_OK(threads.AllReduceSum(expected));
  for (size_t i = 0; i < count; i++) ASSERT_NEAR(sums[i], expected[i], 1e-6) << "value " << i;
  // The same bits at all ranks.
  std::vector<T> first = sums;
  EXPECT_OK(threads.Broadcast(std::as_writable_bytes(std::span(first)), 0));
  EXPECT_EQ(sums, first);
}

TEST(Communicator, SumsOfProcessesAreThoseOfThreads) {
  SCOPED_TRACE(testing::Message() << "seed " << kValuesSeed);
  const TemporaryFolder folder("sums");
  ThreadTrainers oracle(kRanks);
  OnRanks(kRanks, [&](uint32_t rank) {
    ASSERT_OK_AND_ASSIGN(const auto joined, JoinAt(folder, rank));
    const std::unique_ptr<Communicator> threads = oracle.Join(rank);
    EXPECT_EQ(joined->rank(), rank);
    EXPECT_EQ(joined->size(), kRanks);
    for (const size_t count : {1, 2, 1000, 300'000}) {
      ExpectSums<float>(*joined, *threads, count);
      ExpectSums<double>(*joined, *threads, count);
    }
    for (uint32_t from = 0; from < kRanks; from++) {
      std::array<uint32_t, 3> told = {rank, rank + 10, rank + 20};
      EXPECT_OK(joined->Broadcast(std::as_writable_bytes(std::span(told)), from));
      EXPECT_EQ(told, (std::array<uint32_t, 3>{from, from + 10, from + 20}));
    }
    EXPECT_OK(joined->Barrier());
  });
}

TEST(Communicator, AllRanksGetTheErrorOfTheFirstThatHasOne) {
  const TemporaryFolder folder("agree");
  OnRanks(kRanks, [&](uint32_t rank) {
    ASSERT_OK_AND_ASSIGN(const auto joined, JoinAt(folder, rank));
    EXPECT_OK(Agree(joined.get(), Status::Ok()));
    const Status mine = rank == 0 ? Status::Ok() : MakeStatus(Code::kNoSpace, "disk {} is full", rank);
    const Status all = Agree(joined.get(), mine);
    EXPECT_THAT(all, IsStatus(Code::kNoSpace));
    EXPECT_EQ(all.message(), "trainer 1: disk 1 is full");
    EXPECT_OK(Agree(joined.get(), Status::Ok()));  // and they can go on
  });
}

TEST(Communicator, WhoIsLeftAloneIsTold) {
  const TemporaryFolder folder("alone");
  OnRanks(2, [&](uint32_t rank) {
    ASSERT_OK_AND_ASSIGN(auto joined, JoinAt(folder, rank, 2));
    EXPECT_OK(joined->Barrier());
    if (rank == 1) return;  // and is gone
    const Status status = joined->Barrier();
    EXPECT_THAT(status, IsStatus(Code::kIoError, HasSubstr("another trainer is gone")));
    const Status mine(Code::kCorruption, "a page does not verify");
    EXPECT_EQ(Agree(joined.get(), mine).ToString(),
              mine.ToString());  // it is not lost over the others' absence
  });
}

TEST(Communicator, OneWhoseOthersDoNotComeSaysWhere) {
  const TemporaryFolder folder("timeout");
  const auto joined = JoinAt(folder, 0, 2, 0.3);
  ASSERT_FALSE(joined.ok());
  EXPECT_THAT(joined, IsStatus(Code::kIoError));
  EXPECT_THAT(std::string(joined.status().message()),
              HasSubstr("2 trainers did not meet at " + folder.path()));
}

Result<std::optional<Rendezvous>> From(const std::map<std::string, std::string>& environment) {
  return RendezvousFromEnvironment([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Rendezvous, IsWhatTheLauncherSetInTheEnvironment) {
  struct Case {
    std::map<std::string, std::string> environment;
    uint32_t rank, size;
    std::string address;
    uint16_t port;
  };
  const Case cases[] = {
      {{{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "host"}, {"MASTER_PORT", "1234"}},
       2,
       4,
       "host",
       1234},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}}, 0, 2, "127.0.0.1", 29500},
      {{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "8"}}, 1, 8, "127.0.0.1", 29500},
      {{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MASTER_PORT", "77"}}, 3, 4, "127.0.0.1", 77},
      {{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_NODELIST", "n[08-11,20]"}}, 1, 2, "n08", 29500},
      {{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_NODELIST", "a,b[1-2]"}}, 1, 2, "a", 29500},
      {{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_NODELIST", "only"}}, 1, 2, "only", 29500},
      // As torchrun 2.2 sets it: alone it listens at the port itself, with --standalone it leaves that to
      // rank 0.
      {{{"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"GROUP_WORLD_SIZE", "1"},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", "29500"},
        {"TORCHELASTIC_RUN_ID", "none"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_ERROR_FILE", "/tmp/torchelastic_a/none_b/attempt_0/1/error.json"}},
       1,
       2,
       "/tmp/torchelastic_a/none_b/attempt_0/quarry-rendezvous",
       29500},
      {{{"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"MASTER_ADDR", "localhost"},
        {"MASTER_PORT", "48937"},
        {"TORCHELASTIC_USE_AGENT_STORE", "False"},
        {"TORCHELASTIC_ERROR_FILE", "/tmp/torchelastic_a/b/attempt_0/1/error.json"}},
       1,
       2,
       "localhost",
       48937},
      // mpirun in a Slurm job: two tasks of Slurm's, four of its own.
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}},
       3,
       4,
       "127.0.0.1",
       29500},
  };
  for (const Case& expected : cases) {
    SCOPED_TRACE(expected.environment.begin()->first);
    const auto found = From(expected.environment).value();
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->rank, expected.rank);
    EXPECT_EQ(found->size, expected.size);
    EXPECT_EQ(found->address, expected.address);
    EXPECT_EQ(found->port, expected.port);
  }
}

TEST(Rendezvous, OfOneThereIsNone) {
  EXPECT_EQ(From({}).value(), std::nullopt);
  EXPECT_EQ(From({{"RANK", "0"}}).value(), std::nullopt);
  EXPECT_EQ(From({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).value(), std::nullopt);
}

TEST(Rendezvous, NonsenseIsNamed) {
  const std::map<std::string, std::string> bad[] = {
      {{"RANK", "4"}, {"WORLD_SIZE", "4"}},
      {{"RANK", "-1"}, {"WORLD_SIZE", "4"}},
      {{"RANK", "x"}, {"WORLD_SIZE", "4"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "many"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "99999"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "0"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
      {{"RANK", "0"},
       {"WORLD_SIZE", "4"},
       {"GROUP_WORLD_SIZE", "2"},
       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
       {"TORCHELASTIC_ERROR_FILE", "/tmp/torchelastic_a/none_b/attempt_0/1/error.json"}}};
  for (const auto& environment : bad) {
    const auto found = From(environment);
    ASSERT_FALSE(found.ok());
    EXPECT_THAT(found, IsStatus(Code::kUsage, HasSubstr("the environment has ")));
  }
}

TEST(GradientExchange, AveragesOverSeedsNotOverTrainers) {
  ThreadTrainers trainers(kRanks);
  OnRanks(kRanks, [&](uint32_t rank) {
    const std::unique_ptr<Communicator> joined = trainers.Join(rank);
    GradientExchange exchange(*joined);
    std::vector<float> weight = {1.0F + static_cast<float>(rank), 2}, bias = {4 * static_cast<float>(rank)};
    // Rank 0 has 10 seeds, rank 1 has 30, rank 2 nothing left.
    const StepShare share = rank == 2 ? StepShare{} : StepShare{1, rank == 0 ? 10U : 30U};
    const StepShare total = exchange.Average(Status::Ok(), share, {weight, bias}).value();
    EXPECT_EQ(total.batches, 2u);
    EXPECT_EQ(total.seeds, 40u);
    EXPECT_THAT(weight, testing::ElementsAre(testing::FloatEq(1.75F), testing::FloatEq(2)));
    EXPECT_THAT(bias, testing::ElementsAre(testing::FloatEq(3)));
    const StepShare none = exchange.Average(Status::Ok(), {}, {weight, bias}).value();
    EXPECT_EQ(none.batches, 0u);
    EXPECT_THAT(bias, testing::ElementsAre(testing::FloatEq(3)));
    const Status mine = rank == 1 ? Status(Code::kIoError, "no batch") : Status::Ok();
    EXPECT_EQ(exchange.Average(mine, share, {weight, bias}).status().message(), "trainer 1: no batch");
  });
}

TEST(Scores, OfTrainersTogetherAreThoseOfOne) {
  SCOPED_TRACE(testing::Message() << "seed " << kValuesSeed);
  constexpr size_t kNodes = 1000;
  Rng rng(kValuesSeed);
  std::vector<float> logits(2 * kNodes);
  for (float& logit : logits) logit = static_cast<float>(rng.Below(20));  // ties occur
  std::vector<int64_t> labels(kNodes);
  for (int64_t& label : labels) label = static_cast<int64_t>(rng.Below(3)) - 1;
  Scores one(NodeTask::kClasses, 2);
  one.Add(logits, labels);
  ThreadTrainers trainers(kRanks);
  OnRanks(kRanks, [&](uint32_t rank) {
    const std::unique_ptr<Communicator> joined = trainers.Join(rank);
    Scores scores(NodeTask::kClasses, 2);
    // Rank 1 gets nothing.
    const size_t begin = rank == 0 ? 0 : 301, end = rank == 2 ? kNodes : 301;
    scores.Add(std::span(logits).subspan(2 * begin, 2 * (end - begin)),
               std::span(labels).subspan(begin, end - begin));
    EXPECT_OK(scores.Gather(*joined));
    const Evaluation all = scores.Evaluate().value();
    EXPECT_EQ(all.nodes, one.Evaluate()->nodes);
    EXPECT_EQ(all.accuracy, one.Evaluate()->accuracy);
    EXPECT_EQ(all.auc, one.Evaluate()->auc);
  });
}

TEST(Scores, OfTargetsOfTrainersTogetherAreThoseOfOne) {
  SCOPED_TRACE(testing::Message() << "seed " << kValuesSeed);
  constexpr size_t kNodes = 400, kWidth = 3;
  Rng rng(kValuesSeed);
  std::vector<float> outputs(kNodes * kWidth), targets(kNodes * kWidth);
  for (float& output : outputs) output = static_cast<float>(rng.Below(20)) - 10;
  for (float& target : targets) {
    target = rng.Below(5) == 0 ? std::nanf("") : static_cast<float>(rng.Below(2));
  }
  for (const NodeTask task : {NodeTask::kRegression, NodeTask::kMultiLabel}) {
    Scores one(task, kWidth);
    one.AddTargets(outputs, targets);
    const Evaluation expected = one.Evaluate().value();
    ThreadTrainers trainers(kRanks);
    OnRanks(kRanks, [&](uint32_t rank) {
      const std::unique_ptr<Communicator> joined = trainers.Join(rank);
      Scores scores(task, kWidth);
      // Rank 1 gets nothing.
      const size_t begin = rank == 0 ? 0 : 301, end = rank == 2 ? kNodes : 301;
      const auto part = [&](std::span<const float> all) {
        return all.subspan(kWidth * begin, kWidth * (end - begin));
      };
      scores.AddTargets(part(outputs), part(targets));
      EXPECT_OK(scores.Gather(*joined));
      const Evaluation all = scores.Evaluate().value();
      EXPECT_EQ(all.nodes, expected.nodes);
      EXPECT_EQ(all.auc, expected.auc);
      EXPECT_EQ(all.micro_f1, expected.micro_f1);
      EXPECT_EQ(all.rmse.has_value(), expected.rmse.has_value());
      EXPECT_NEAR(all.rmse.value_or(0), expected.rmse.value_or(0), 1e-12);
      EXPECT_NEAR(all.mae.value_or(0), expected.mae.value_or(0), 1e-12);
    });
  }
}

}  // namespace
}  // namespace quarry
