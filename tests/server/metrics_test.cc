// Metrics, and how they are served: the format that Prometheus reads, the JSON of the status page, and a
// server that bad clients cannot hold up.
#include "quarry/service/metrics.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "metrics_http.h"
#include "quarry/base/random.h"
#include "quarry/format/wire.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using Json = nlohmann::json;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

TEST(HistogramTest, QuantilesAreNearThoseOfTheSortedSamples) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Histogram histogram;
    std::vector<double> samples(1 + rng.Below(20'000));
    double sum = 0;
    for (double& sample : samples) {
      sample = std::pow(10.0, -6.0 + 9.0 * rng.Unit());  // 1 us to 1,000 s
      sum += sample;
      histogram.Add(sample);
    }
    std::ranges::sort(samples);
    EXPECT_EQ(histogram.count(), samples.size());
    EXPECT_NEAR(histogram.sum() / sum, 1.0, 1e-6);
    for (const double q : {0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const auto rank =
          std::max<size_t>(1, static_cast<size_t>(std::ceil(q * static_cast<double>(samples.size()))));
      EXPECT_NEAR(histogram.Quantile(q) / samples[rank - 1], 1.0, 0.1) << q;
    }
  }
}

TEST(HistogramTest, HasAPlaceForEverything) {
  Histogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  for (const double seconds : {-1.0, 0.0, 1e-9}) histogram.Add(seconds);
  EXPECT_LE(histogram.Quantile(1), 1.2e-6);
  for (unsigned i = 0; i < 3; ++i) histogram.Add(1e7);
  EXPECT_GE(histogram.Quantile(1), 900.0);
  EXPECT_EQ(histogram.count(), 6u);
  EXPECT_EQ(histogram.counts().front(), 3u);
  EXPECT_EQ(histogram.counts().back(), 3u);
}

TEST(MetricsTest, TheSameNameAndLabelsAreTheSameCounter) {
  Metrics metrics;
  Counter& counter = metrics.AddCounter("a_total", "{kind=\"x\"}", "Help.");
  EXPECT_EQ(&metrics.AddCounter("a_total", "{kind=\"x\"}", "Help."), &counter);
  EXPECT_NE(&metrics.AddCounter("a_total", "{kind=\"y\"}", "Help."), &counter);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (unsigned k = 0; k < 1000; ++k) metrics.AddCounter("a_total", "{kind=\"x\"}", "Help.").Add();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 4000u);
}

// What Prometheus' own parser demands: each family once, HELP and TYPE before its samples, names and labels
// well formed, buckets ascending and cumulative up to +Inf, which is the count.
void ExpectPrometheus(const std::string& text) {
  static const std::regex kSample("([a-zA-Z_:][a-zA-Z0-9_:]*)(\\{(.*)\\})? (\\S+)");
  static const std::regex kLabels("[a-zA-Z_][a-zA-Z0-9_]*=\"[^\"]*\"(,[a-zA-Z_][a-zA-Z0-9_]*=\"[^\"]*\")*");
  ASSERT_TRUE(text.ends_with("\n"));
  std::string family, type;
  std::vector<std::string> families;
  double bucket = 0, bound = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    SCOPED_TRACE(line);
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_EQ(std::ranges::count(families, family), 0) << "twice";
      families.push_back(family);
      ASSERT_TRUE(std::getline(lines, line));
      ASSERT_THAT(line, StartsWith("# TYPE " + family + " "));
      type = line.substr(line.rfind(' ') + 1);
      continue;
    }
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, kSample));
    const std::string name = match[1], labels = match[3];
    if (match[2].matched) {
      ASSERT_TRUE(std::regex_match(labels, kLabels));
    }
    const double value = std::strtod(match[4].str().c_str(), nullptr);
    if (type != "histogram") {
      EXPECT_EQ(name, family);
      continue;
    }
    if (name == family + "_bucket") {
      const size_t le = labels.find("le=\"");
      ASSERT_NE(le, std::string::npos);
      const double next = std::strtod(labels.c_str() + le + 4, nullptr);  // takes +Inf
      if (next < bound) bucket = 0;                                       // of other labels
      EXPECT_GE(value, bucket);
      bound = next;
      bucket = value;
    } else if (name == family + "_count") {
      EXPECT_TRUE(std::isinf(bound));
      EXPECT_EQ(value, bucket);
    } else {
      EXPECT_EQ(name, family + "_sum");
    }
  }
}

TEST(MetricsTest, PrometheusCanReadThem) {
  Metrics metrics;
  metrics.AddCounter("quarry_requests_total", "{kind=\"lookup\"}", "Requests.").Add(3);
  Histogram& lookups = metrics.AddHistogram("quarry_request_seconds", "{kind=\"lookup\"}", "Latency.");
  Histogram& samples = metrics.AddHistogram("quarry_request_seconds", "{kind=\"sample\"}", "Latency.");
  metrics.AddHistogram("quarry_empty_seconds", "", "Nothing yet.");
  metrics.AddCounter("quarry_requests_total", "{kind=\"sample\"}", "Requests.");  // later, in its family
  metrics.AddGauge("quarry_sessions", "", "Sessions now.", [] { return 2.5; });
  metrics.AddGauge("quarry_odd", "{of=\"nan\"}", "Odd.", [] { return std::nan(""); });
  metrics.AddGauge("quarry_odd", "{of=\"inf\"}", "Odd.",
                   [] { return std::numeric_limits<double>::infinity(); });
  for (const double seconds : {3e-6, 1e-3, 1e-3, 2.0, 1e9}) lookups.Add(seconds);
  samples.Add(0.5);
  const std::string text = metrics.Prometheus();
  ExpectPrometheus(text);
  EXPECT_THAT(text, HasSubstr("quarry_requests_total{kind=\"lookup\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("quarry_sessions 2.5\n"));
  EXPECT_THAT(text, HasSubstr("quarry_request_seconds_bucket{kind=\"lookup\",le=\"4e-06\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("quarry_request_seconds_count{kind=\"lookup\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("quarry_empty_seconds_bucket{le=\"+Inf\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("quarry_odd{of=\"nan\"} NaN\n"));
}

TEST(MetricsTest, CountersAreWhatTheWireTakes) {
  Metrics metrics;
  metrics.AddCounter("requests_total", "{kind=\"look up\",of=\"a-b\"}", "Requests.").Add(3);
  metrics.AddHistogram(std::string(70, 'h'), "{kind=\"x\"}", "Latency.").Add(1e-3);
  metrics.AddGauge("quarry_nan", "", "Odd.", [] { return std::nan(""); });
  const std::vector<wire::Counter> counters = metrics.Counters();
  ASSERT_EQ(counters.size(), 4u);
  EXPECT_EQ(counters[0].name, std::string(60, 'h') + "_p50");
  EXPECT_NEAR(counters[0].value, 1e-3, 1e-4);
  EXPECT_EQ(counters[2].name, std::string(58, 'h') + "_count");
  EXPECT_EQ(counters[3], (wire::Counter{"requests_total_look_up_a-b", 3}));
}

class StatusTest : public testing::Test {
 protected:
  StatusTest() {
    metrics_.AddCounter("quarry_requests_total", "", "Requests.").Add(5);
    status_ = {
        .counters = metrics_.Counters(),
        .sessions = {{.id = 7, .pid = 1234, .uid = 1000, .seconds = 1.5, .budget_bytes = 1 << 20}},
        .streams = {{.id = 3, .session = 7, .road = "planned", .group = "all", .batches = 11, .slots = 4}}};
  }
  Metrics metrics_;
  wire::ServerStatus status_;
};

TEST_F(StatusTest, HoweverManyThereAreTheyFitIntoAMessage) {
  status_.sessions.assign(wire::kListedMax + 10, status_.sessions[0]);
  status_.streams.assign(wire::kListedMax + 300, status_.streams[0]);
  for (wire::StreamStatus& stream : status_.streams) stream.group = std::string(wire::kNameBytesMax, 'g');
  EXPECT_FALSE(wire::EncodeResponse(1, status_).ok());
  wire::LeaveOutWhatFindsNoRoom(status_);
  EXPECT_EQ(status_.sessions_left_out, 10u);
  EXPECT_EQ(status_.streams_left_out, 300u);
  const auto encoded = wire::EncodeResponse(1, status_);
  EXPECT_OK(encoded);
}

TEST_F(StatusTest, JsonHasThemAll) {
  status_.streams[0].group = "a\"b";
  status_.sessions[0].seconds = std::nan("");
  const Json json = Json::parse(wire::ToJson(status_));
  EXPECT_EQ(json["counters"]["quarry_requests_total"], 5);
  EXPECT_EQ(json["sessions"][0]["id"], 7);
  EXPECT_EQ(json["sessions"][0]["budget_bytes"], 1 << 20);
  EXPECT_TRUE(json["sessions"][0]["seconds"].is_null());
  EXPECT_EQ(json["streams"][0]["road"], "planned");
  EXPECT_EQ(json["streams"][0]["group"], "a\"b");
  status_.sessions.clear();
  status_.streams.clear();
  EXPECT_EQ(Json::parse(wire::ToJson(status_))["streams"], Json::array());
}

// A client without manners.
class RawClient {
 public:
  explicit RawClient(uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    const timeval patience{.tv_sec = 30};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  ~RawClient() { close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  bool Send(std::string_view text) const {
    return send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  bool WaitForAnswer() const {
    char first = 0;
    return recv(socket_, &first, 1, MSG_PEEK) == 1;
  }
  void EndSending() const { shutdown(socket_, SHUT_WR); }
  // Up to the end of the connection, or its fault. A socket that has a patience is interrupted when the
  // process is stopped and goes on, also without a handler (signal(7)).
  std::string Receive() const {
    std::string all;
    for (char piece[4096];;) {
      const ssize_t bytes = recv(socket_, piece, sizeof(piece), 0);
      if (bytes < 0 && errno == EINTR) continue;
      fault_ = bytes < 0 ? errno : 0;
      if (bytes <= 0) return all;
      all.append(piece, static_cast<size_t>(bytes));
    }
  }
  // Where there is no answer, why.
  std::string Ask(std::string_view request) const {
    if (!connected_) return "not connected";
    if (!Send(request)) return "not sent";
    const std::string answer = Receive();
    return answer.empty() ? fmt::format("closed ({})", std::strerror(fault_)) : answer;
  }

 private:
  mutable int fault_ = 0;  // of Receive
  const int socket_;
  bool connected_ = false;
};

std::string Body(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

class MetricsHttpTest : public StatusTest {
 protected:
  MetricsHttpTest() {
    auto server = MetricsHttp::Start(metrics_, [this] { return status_; }, {.port = 0});
    EXPECT_OK(server);
    server_ = std::move(server).value();
  }
  std::string Ask(std::string_view request) const { return RawClient(server_->port()).Ask(request); }
  std::string Get(std::string_view target) const {
    return Ask(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", target));
  }
  std::unique_ptr<MetricsHttp> server_;
};

TEST_F(MetricsHttpTest, ServesMetricsPageAndJson) {
  const std::string metrics = Get("/metrics");
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(metrics, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  ExpectPrometheus(Body(metrics));
  EXPECT_EQ(Json::parse(Body(Get("/status.json?x=1")))["sessions"][0]["pid"], 1234);
  const std::string page = Get("/");
  EXPECT_THAT(page, HasSubstr("Content-Type: text/html"));
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme"));
  EXPECT_THAT(page, Not(HasSubstr("http://")));
  EXPECT_THAT(page, Not(HasSubstr("https://")));
}

TEST_F(MetricsHttpTest, HeadIsGetWithoutTheBody) {
  const std::string get = Get("/metrics");
  const std::string head = Ask("HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(Body(head), IsEmpty());
  EXPECT_EQ(head, get.substr(0, get.size() - Body(get).size()));
}

TEST_F(MetricsHttpTest, AConnectionTakesManyRequests) {
  std::string two;
  for (const char* connection : {"keep-alive", "close"}) {
    two += fmt::format("GET /status.json HTTP/1.1\r\nHost: localhost\r\nConnection: {}\r\n\r\n", connection);
  }
  const std::string answers = Ask(two);
  const size_t second = answers.find("HTTP/1.1 200", 1);
  ASSERT_NE(second, std::string::npos) << answers;
  EXPECT_EQ(Body(answers.substr(0, second)), Body(answers.substr(second)));
  EXPECT_THAT(Ask("GET /status.json HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.0 200"));
}

TEST_F(MetricsHttpTest, AnythingElseIsRefused) {
  EXPECT_THAT(Get("/metrics/"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get("/../etc/passwd"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get("http://elsewhere/metrics"), StartsWith("HTTP/1.1 404"));
  const std::string post = Ask("POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(post, StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(post, HasSubstr("Allow: GET, HEAD"));
  EXPECT_THAT(Ask("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"),
              StartsWith("HTTP/1.1 4"));
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"), StartsWith("HTTP/1.1 4"));
  for (const char* bad :
       {"\r\n\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "\x16\x03\x01 hello over TLS\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"}) {
    EXPECT_THAT(Ask(bad), StartsWith("HTTP/1.1 400")) << bad;
  }
  const std::string large(4 << 20, 'a');  // more than the buffers of a socket hold
  // The answer may be there, and the connection closed, before all of it is sent.
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\nX: " + large + "\r\n\r\n"),
              AnyOf(StartsWith("HTTP/1.1 431"), "not sent"));
  EXPECT_THAT(Ask("GET /" + large + " HTTP/1.1\r\n\r\n"), AnyOf(StartsWith("HTTP/1.1 4"), "not sent"));
  EXPECT_THAT(Get("/metrics"), StartsWith("HTTP/1.1 200")) << "and it serves on";
}

TEST_F(MetricsHttpTest, WhoIsRefusedWhileItSendsCanSendOnAndReadsWhy) {
  // The server lingers for a second: a machine that stalls for as long is given another chance.
  const auto send_on = [this] {
    const RawClient client(server_->port());
    const std::string piece(64 << 10, 'a');
    if (!client.Send("GET / HTTP/1.1\r\nX: " + piece)) return false;
    if (!client.WaitForAnswer()) return false;
    for (int i = 0; i < 5; ++i) {
      if (!client.Send(piece)) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // for a reset, if there is to be one
    }
    client.EndSending();
    return client.Receive().starts_with("HTTP/1.1 431");
  };
  EXPECT_TRUE(send_on() || send_on() || send_on());
}

TEST_F(MetricsHttpTest, ClientsThatSayNothingHoldNobodyUp) {
  std::vector<std::unique_ptr<RawClient>> silent;
  for (unsigned i = 0; i < 16; ++i) silent.push_back(std::make_unique<RawClient>(server_->port()));
  for (const auto& client : silent) EXPECT_TRUE(client->Send("GET / HT"));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(Get("/metrics"), StartsWith("HTTP/1.1 200"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  silent[0]->EndSending();
  EXPECT_THAT(silent[0]->Receive(), IsEmpty());
  // The server's end does not wait for them.
  server_.reset();
  EXPECT_THAT(silent[1]->Receive(), IsEmpty());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST_F(MetricsHttpTest, WhoHasBeenWaitedForTheLongestMakesRoom) {
  std::vector<std::unique_ptr<RawClient>> silent;
  for (unsigned i = 0; i < 32; ++i) silent.push_back(std::make_unique<RawClient>(server_->port()));
  for (const auto& client : silent) ASSERT_TRUE(client->Send("GET / HT"));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Get("/metrics"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(silent[0]->Receive(), IsEmpty()) << "its place was needed";
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8)) << "and did not time out";
}

TEST_F(MetricsHttpTest, APageOfAnotherSiteIsNotAnswered) {
  const auto ask = [this](std::string_view host) {
    return Ask(fmt::format("GET /status.json HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", host));
  };
  for (const char* host : {"evil.example", "evil.example:9100", "127.0.0.1.evil.example:80", "localhost.",
                           "[::1]:1", "x@127.0.0.1:1", ""}) {
    EXPECT_THAT(ask(host), StartsWith("HTTP/1.1 421")) << host;
  }
  for (const std::string host : {"localhost", "127.0.0.1"}) {
    EXPECT_THAT(ask(host), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(ask(host + ":" + std::to_string(server_->port())), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\nConnection: close\r\n\r\n"), StartsWith("HTTP/1.1 400")) << "no Host";
}

TEST_F(MetricsHttpTest, ATakenPortIsSaid) {
  const Status status =
      MetricsHttp::Start(metrics_, [this] { return status_; }, {.port = server_->port()}).status();
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(server_->port())));
}

}  // namespace
}  // namespace quarry
