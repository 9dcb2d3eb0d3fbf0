// Ctrl-C of a command that a server works for: it ends when the server has undone what it was at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "quarry/format/wire_maintenance.h"
#include "quarry/storage/store.h"
#include "quarry_process.h"
#include "server/served_database.h"
#include "support/gate_backend.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using testing::AllOf;
using testing::HasSubstr;

// Whoever reads the features waits at the gate, once it is closed.
class InterruptedVerbsTest : public testing::Test {
 protected:
  InterruptedVerbsTest() {
    auto gate = std::make_unique<GateBackend>("features/feature");
    gate_ = gate.get();
    served_ =
        std::make_unique<ServedDatabase>(TinyGraph{.nodes = 300, .dim = 32}, std::move(gate), 512 * kMiB);
    served_->Start();
    WriteBatch change;
    change.Put("feature", 7, std::vector<std::byte>(32 * sizeof(float)));
    EXPECT_OK(served_->store->Write(change));
    peer_ = std::make_unique<WirePeer>(served_->socket());
    EXPECT_OK(peer_->Open(kMiB));
  }
  ~InterruptedVerbsTest() override { gate_->OpenGate(); }

  std::string address() const { return "unix:" + served_->socket(); }

  // Requests to cancel that the server has answered.
  double Cancelled() {
    const auto stats = peer_->CallFor<wire::Counters>(wire::Stats{});
    EXPECT_OK(stats);
    for (const wire::Counter& counter : stats->counters) {
      const std::string_view name = counter.name;
      if (name.find("requests_total") != name.npos && name.find("cancel") != name.npos) return counter.value;
    }
    ADD_FAILURE() << "the server counts no requests to cancel";
    return 0;
  }
  // Runs the command until the server is at it, interrupts it there, and lets the server go on once it was told.
  Outcome Interrupt(const std::string& command) {
    const double before = Cancelled();
    gate_->CloseGate();
    const Process process(command, folder_.path());
    gate_->WaitForOne();
    process.Signal(SIGINT);
    EXPECT_TRUE(Eventually([&] { return Cancelled() > before; }));
    gate_->OpenGate();
    return process.Wait();
  }
  Outcome Run(const std::string& command) { return Process(command, folder_.path()).Wait(); }

  const TemporaryFolder folder_{"interrupted"};
  GateBackend* gate_ = nullptr;
  std::unique_ptr<ServedDatabase> served_;
  std::unique_ptr<WirePeer> peer_;
};

TEST_F(InterruptedVerbsTest, NothingIsLeftHalfMade) {
  const std::string path = served_->store->path();
  for (const std::string& command : {"verify " + address(), "compact " + address() + " --table feature",
                                     "export " + address() + " " + folder_ / "out"}) {
    SCOPED_TRACE(command);
    const Outcome outcome = Interrupt(command);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr("interrupted"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  EXPECT_EQ(served_->store->manifest()->FindTable("feature")->generation, 1u);
  const Outcome verified = Run("verify " + address());
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
}

TEST_F(InterruptedVerbsTest, ALayoutBuildNamesItsLeavingsByTheServersPath) {
  const std::string build = "layout build " + address() + " --fanout 4,3 --batch-size 32 --cache 10%";
  const Outcome outcome = Interrupt(build);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.out;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("interrupted"),
                                 HasSubstr(served_->store->path() + "/layouts/default.building stays"),
                                 HasSubstr("`quarry repair " + served_->store->path() + "`")));
  EXPECT_TRUE(served_->store->manifest()->layouts.empty());
  const Outcome again = Run(build + " --resume");
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(served_->store->manifest()->layouts.size(), 1u);
}

}  // namespace
}  // namespace quarry
