// Traces: what is written is JSON that shows each span on its thread's line, nested as it was.
#include "quarry/base/trace.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

#include "quarry/base/json.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class TraceTest : public testing::Test {
 protected:
  ~TraceTest() override { StopTrace(); }

  // Writes the trace, and reads it back as another program would.
  Json Write() {
    const std::string path = folder_ / "trace.json";
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const auto report = WriteTrace(fd, path);
    close(fd);
    EXPECT_OK(report);
    if (report.ok()) report_ = *report;
    std::ifstream file(path);
    return Json::parse(file);
  }

  static std::vector<Json> Spans(const Json& trace) {
    std::vector<Json> spans;
    for (const Json& event : trace["traceEvents"]) {
      if (event["ph"] == "X") spans.push_back(event);
    }
    return spans;
  }
  // The name of each line.
  static std::map<int, std::string> ThreadNames(const Json& trace) {
    std::map<int, std::string> names;
    for (const Json& event : trace["traceEvents"]) {
      if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
    }
    return names;
  }

  const TemporaryFolder folder_{"trace"};
  TraceReport report_;
};

void Inside(const Json& inner, const Json& outer) {
  EXPECT_EQ(inner["tid"], outer["tid"]);
  const double start = inner["ts"], end = start + inner["dur"].get<double>();
  const double outer_start = outer["ts"], outer_end = outer_start + outer["dur"].get<double>();
  EXPECT_GE(start, outer_start);
  EXPECT_LE(end, outer_end + 0.002) << "times have three digits";
}

TEST_F(TraceTest, SpansNestAndHaveTheirNumbers) {
  StartTrace();
  {
    const ScopedSpan outer("outer", 7);
    for (uint64_t i = 0; i < 2; ++i) {
      const ScopedSpan inner("inner");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  const Json trace = Write();
  const std::vector<Json> spans = Spans(trace);
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[2]["name"], "outer");
  EXPECT_EQ(spans[2]["args"]["number"], 7);
  EXPECT_EQ(spans[2]["pid"], getpid());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(spans[i]["name"], "inner");
    EXPECT_FALSE(spans[i].contains("args"));
    EXPECT_GE(spans[i]["dur"].get<double>(), 1000);
    Inside(spans[i], spans[2]);
  }
  EXPECT_LE(spans[0]["ts"].get<double>() + spans[0]["dur"].get<double>(),
            spans[1]["ts"].get<double>() + 0.002);
  EXPECT_EQ(report_.spans, 3u);
  EXPECT_EQ(report_.dropped, 0u);
}

TEST_F(TraceTest, NothingIsRecordedBeforeAndAfter) {
  { const ScopedSpan early("early"); }
  {
    const ScopedSpan across("begun before");
    StartTrace();
  }
  { const ScopedSpan span("between"); }
  StopTrace();
  { const ScopedSpan late("late"); }
  const std::vector<Json> spans = Spans(Write());
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0]["name"], "between");
  StartTrace();
  EXPECT_THAT(Spans(Write()), IsEmpty()) << "a new trace forgets the one before";
}

TEST_F(TraceTest, AThreadThatEndsLeavesItsLineToTheNextOfItsName) {
  StartTrace();
  for (uint64_t pass = 0; pass < 3; ++pass) {
    std::vector<std::thread> threads;
    std::atomic<unsigned> there{0};
    for (const char* name : {"sample", "extract with a long name", "extract with a long name"}) {
      threads.emplace_back([&there, name, pass] {
        NameThread(name);
        { const ScopedSpan span("work", pass); }
        for (++there; there < 3;) std::this_thread::yield();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const Json trace = Write();
  std::map<int, std::vector<int>> passes;
  for (const Json& span : Spans(trace)) passes[span["tid"]].push_back(span["args"]["number"]);
  std::multiset<std::string> names;
  for (const auto& [tid, name] : ThreadNames(trace)) {
    if (!passes.contains(tid)) continue;
    names.insert(name);
    EXPECT_THAT(passes[tid], ElementsAre(0, 1, 2)) << name;
  }
  EXPECT_THAT(names, UnorderedElementsAre("sample", "extract with a long name", "extract with a long name"));
}

TEST_F(TraceTest, WhatComesAfterTheBoundIsCountedAndDropped) {
  StartTrace(100);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (uint64_t k = 0; k < 50; ++k) const ScopedSpan span("span", k);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Json trace = Write();
  EXPECT_EQ(Spans(trace).size(), 100u);
  EXPECT_EQ(trace["otherData"]["dropped_spans"], 100);
  EXPECT_EQ(report_.spans, 100u);
  EXPECT_EQ(report_.dropped, 100u);
}

TEST_F(TraceTest, ItIsWrittenWhileThreadsGoOn) {
  StartTrace(2'000);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i) {
    threads.emplace_back([&stop] {
      while (!stop) const ScopedSpan span("span");
    });
  }
  for (unsigned i = 0; i < 5; ++i) Write();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Spans(Write()).size(), report_.spans);
}

TEST_F(TraceTest, NamesAreEscapedAndAFullDiskIsReported) {
  StartTrace();
  std::thread([] {
    NameThread("a \"quoted\"\n\\name");
    const ScopedSpan span("tab\there");
  }).join();
  const Json trace = Write();
  EXPECT_EQ(Spans(trace).at(0)["name"], "tab\there");
  EXPECT_EQ(ThreadNames(trace).at(Spans(trace)[0]["tid"]), "a \"quoted\"\n\\name");
  const int full = open("/dev/full", O_WRONLY);
  const Status status = WriteTrace(full, "/dev/full").status();
  close(full);
  EXPECT_THAT(status, IsStatus(Code::kNoSpace));
}

TEST(JsonStringTest, EscapesWhatJsonDoesNotAllow) {
  EXPECT_EQ(JsonString("plain \xc3\xa9"), "\"plain \xc3\xa9\"");
  EXPECT_EQ(JsonString("\"\\\x01\n"), "\"\\\"\\\\\\u0001\\u000a\"");
}

}  // namespace
}  // namespace quarry
