#include "metrics_http.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <chrono>
#include <list>
#include <optional>
#include <string_view>

#include "quarry/base/exhaustion.h"
#include "quarry/base/log.h"
#include "quarry/base/thread.h"
#include "status_page.h"

namespace quarry {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using local = asio::local::stream_protocol;
using Socket = asio::generic::stream_protocol::socket;
using Stream = beast::basic_stream<asio::generic::stream_protocol>;

constexpr uint32_t kHeaderBytesMax = 8 << 10;
constexpr size_t kConnectionsMax = 32;
// For a whole request, from when the connection or the answer before it was there; and for an answer.
constexpr std::chrono::seconds kRequestTime{10};
constexpr std::chrono::seconds kLingerTime{1};
constexpr std::chrono::milliseconds kAcceptPause{100};

// Nothing from elsewhere is loaded, whatever the page says.
constexpr const char* kPagePolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";

using Response = http::response<http::string_body>;

struct Source {
  const Metrics& metrics;
  std::function<wire::ServerStatus()> status;
};

struct Page {
  http::status status = http::status::ok;
  const char* type = "text/plain; charset=utf-8";
  std::string text;
};

Page PageAt(std::string_view target, const Source& source) {
  target = target.substr(0, target.find('?'));
  if (target == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .text = source.metrics.Prometheus()};
  }
  if (target == "/status.json") return {.type = "application/json", .text = wire::ToJson(source.status())};
  if (target == "/") return {.type = "text/html; charset=utf-8", .text = std::string(kStatusPage)};
  return {.status = http::status::not_found, .text = "/, /metrics and /status.json are all there is\n"};
}

Response ResponseOf(Page page, unsigned version, bool with_body) {
  Response response(page.status, version);
  response.set(http::field::content_type, page.type);
  response.set(http::field::cache_control, "no-store");
  response.set("X-Content-Type-Options", "nosniff");
  response.set("Content-Security-Policy", kPagePolicy);
  if (page.status == http::status::method_not_allowed) response.set(http::field::allow, "GET, HEAD");
  response.content_length(page.text.size());
  if (with_body) response.body() = std::move(page.text);
  return response;
}

// Whether a browser that names this host means this machine, and not a site whose name leads here.
bool IsThisMachine(std::string_view host) {
  host = host.substr(0, host.rfind(':'));
  return host == "127.0.0.1" || host == "localhost";
}

class HttpConnection;

// Those that are there, the one that has been waited for the longest first. Not owned.
using Waiting = std::list<HttpConnection*>;

// One client: requests one after the other.
//
//   read -> write [OnRead] -> read [OnWritten, kept alive] | linger [OnWritten, not] -> closed
//   any  -> closed         [Drop]
//
// Owned by the operation that is under way; a connection with none is gone.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // `over_tcp`: whose peers may be browsers.
  HttpConnection(Socket socket, bool over_tcp, const Source& source, Waiting& waiting)
      : stream_(std::move(socket)), over_tcp_(over_tcp), source_(source), waiting_(waiting) {
    place_ = waiting_.insert(waiting_.end(), this);
  }
  ~HttpConnection() { Drop(); }

  // Its operation ends with an error, and so does it.
  void Drop() {
    if (place_ == waiting_.end()) return;
    waiting_.erase(place_);
    place_ = waiting_.end();
    stream_.close();
  }

  void Read() {
    Waits();
    parser_.emplace();
    parser_->header_limit(kHeaderBytesMax);
    stream_.expires_after(kRequestTime);
    http::async_read(stream_, buffer_, *parser_,
                     beast::bind_front_handler(&HttpConnection::OnRead, shared_from_this()));
  }

 private:
  void Waits() {
    if (place_ != waiting_.end()) waiting_.splice(waiting_.end(), waiting_, place_);
  }

  void OnRead(error_code error, size_t /*bytes*/) {
    if (error == http::error::header_limit) {
      return Refuse({http::status::request_header_fields_too_large, "text/plain",
                     fmt::format("headers are {} bytes at most\n", kHeaderBytesMax)});
    }
    // The peer has gone, or took too long: there is nobody to tell.
    const bool malformed = error.category() == http::make_error_code(http::error::bad_method).category() &&
                           error != http::error::end_of_stream && error != http::error::partial_message;
    if (malformed) return Refuse({http::status::bad_request, "text/plain", error.message() + "\n"});
    if (error) return;
    const auto& request = parser_->get();
    if (request.method() != http::verb::get && request.method() != http::verb::head) {
      return Refuse({http::status::method_not_allowed, "text/plain", "GET and HEAD only\n"});
    }
    const auto host = request.find(http::field::host);
    const bool is_named = host != request.end();
    if (!is_named && request.version() >= 11)
      return Refuse({http::status::bad_request, "text/plain", "no Host\n"});
    if (over_tcp_ && is_named && !IsThisMachine({host->value().data(), host->value().size()})) {
      return Refuse({http::status::misdirected_request, "text/plain",
                     "this server is 127.0.0.1 or localhost, and no other Host\n"});
    }
    const beast::string_view target = request.target();
    Page page = PageAt({target.data(), target.size()}, source_);
    Write(ResponseOf(std::move(page), request.version(), request.method() == http::verb::get),
          request.keep_alive());
  }

  void Refuse(Page page) { Write(ResponseOf(std::move(page), 11, true), false); }

  void Write(Response response, bool keep_alive) {
    response_ = std::move(response);
    response_.keep_alive(keep_alive);
    Waits();
    stream_.expires_after(kRequestTime);
    http::async_write(stream_, response_,
                      beast::bind_front_handler(&HttpConnection::OnWritten, shared_from_this()));
  }

  void OnWritten(error_code error, size_t /*bytes*/) {
    if (error) return;
    if (response_.keep_alive()) return Read();
    stream_.socket().shutdown(Socket::shutdown_send, error);
    stream_.expires_after(kLingerTime);
    Linger({}, 0);
  }

  // Closing while the peer still sends would take the answer from it: what comes is thrown away.
  void Linger(error_code error, size_t /*bytes*/) {
    if (error) return;
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(kHeaderBytesMax),
                            beast::bind_front_handler(&HttpConnection::Linger, shared_from_this()));
  }

  Stream stream_;
  const bool over_tcp_;
  const Source& source_;
  Waiting& waiting_;
  Waiting::iterator place_;  // end: dropped
  beast::flat_buffer buffer_{2 * kHeaderBytesMax};
  std::optional<http::request_parser<http::empty_body>> parser_;
  Response response_;
};

class MetricsHttpImpl final : public MetricsHttp {
 public:
  explicit MetricsHttpImpl(Source source) : source_(std::move(source)) {}
  ~MetricsHttpImpl() override {
    context_.stop();
    thread_.Join();
  }

  Status Listen(const Places& places) {
    users_ = places.users;
    if (places.listener >= 0) {
      error_code error;
      local_.acceptor.assign(local(), places.listener, error);
      if (error) {
        close(places.listener);
        return ErrnoStatus(error.value(), "take", "the socket for metrics");
      }
      Accept(local_);
    }
    if (places.port) {
      QUARRY_RETURN_IF_ERROR(ListenAt(*places.port));
      Accept(tcp_);
    }
    QUARRY_TRY(thread_, Thread::Start(
                            "metrics", [this] { Run(); }, [](const Status&) {}));
    return Status::Ok();
  }

  uint16_t port() const override { return port_; }

 private:
  // The connection of a handler that found no memory ends with it.
  void Run() {
    while (!context_.stopped()) {
      const Status status = CatchExhaustion("the status page", [this] {
        context_.run();
        return Status::Ok();
      });
      if (!status.ok()) Insist([&] { LogWarn("{}", status.message()); });
    }
  }

  template <typename Protocol>
  struct Door {
    explicit Door(asio::io_context& context) : acceptor(context), pause(context) {}
    typename Protocol::acceptor acceptor;
    asio::steady_timer pause;
  };

  Status ListenAt(uint16_t port) {
    const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), port);
    const std::string where = fmt::format("127.0.0.1:{}", port);
    tcp::acceptor& acceptor = tcp_.acceptor;
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(kConnectionsMax, error);
    if (error == asio::error::address_in_use) {
      return MakeStatus(Code::kAlreadyExists, "{}: another program listens there: choose another port",
                        where);
    }
    if (error) return ErrnoStatus(error.value(), "listen on", where);
    port_ = acceptor.local_endpoint(error).port();
    if (error) return ErrnoStatus(error.value(), "listen on", where);
    return Status::Ok();
  }

  template <typename Protocol>
  void Accept(Door<Protocol>& door) {
    door.acceptor.async_accept([this, &door](error_code error, typename Protocol::socket socket) {
      if (error) return AcceptLater(door);
      // Whoever is not served, or finds no memory, is let go by the end of this scope.
      static_cast<void>(CatchExhaustion("the status page", [&] {
        Take(std::move(socket));
        return Status::Ok();
      }));
      Insist([&] { Accept(door); });
    });
  }

  // Without descriptors, accept would fail again at once.
  template <typename Protocol>
  void AcceptLater(Door<Protocol>& door) {
    door.pause.expires_after(kAcceptPause);
    door.pause.async_wait([this, &door](error_code error) {
      if (!error) Accept(door);
    });
  }

  void Take(tcp::socket socket) { Serve(std::move(socket), true); }
  void Take(local::socket socket) {
    ucred peer{};
    socklen_t bytes = sizeof(peer);
    if (getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return;
    if (std::ranges::find(users_, peer.uid) != users_.end()) Serve(std::move(socket), false);
  }
  void Serve(Socket socket, bool over_tcp) {
    if (waiting_.size() >= kConnectionsMax) waiting_.front()->Drop();
    std::make_shared<HttpConnection>(std::move(socket), over_tcp, source_, waiting_)->Read();
  }

  const Source source_;
  std::vector<uid_t> users_;
  uint16_t port_ = 0;
  Waiting waiting_;  // the thread's; outlives the connections, which the context owns
  asio::io_context context_{1};
  Door<local> local_{context_};
  Door<tcp> tcp_{context_};
  Thread thread_;
};

}  // namespace

Result<std::unique_ptr<MetricsHttp>> MetricsHttp::Start(const Metrics& metrics,
                                                        std::function<wire::ServerStatus()> status,
                                                        const Places& places) {
  auto server = std::make_unique<MetricsHttpImpl>(Source{metrics, std::move(status)});
  QUARRY_RETURN_IF_ERROR(server->Listen(places));
  return std::unique_ptr<MetricsHttp>(std::move(server));
}

}  // namespace quarry
