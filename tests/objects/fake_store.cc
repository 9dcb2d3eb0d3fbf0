#include "objects/fake_store.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <set>
#include <thread>

#include "quarry/format/checksum.h"

namespace quarry {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

namespace {

struct Upload {
  std::string path;
  std::map<uint32_t, std::string> parts;
};

std::string EtagOf(const std::string& bytes) {
  return fmt::format("\"{:016x}{:016x}\"", Checksum64(std::as_bytes(std::span(bytes))), bytes.size());
}

std::string Decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::map<std::string, std::string> QueryOf(std::string_view target) {
  std::map<std::string, std::string> query;
  const size_t mark = target.find('?');
  if (mark == std::string_view::npos) return query;
  for (std::string_view rest = target.substr(mark + 1); !rest.empty();) {
    const size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    const size_t equals = std::min(pair.find('='), pair.size());
    query[Decoded(pair.substr(0, equals))] = Decoded(pair.substr(std::min(equals + 1, pair.size())));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return query;
}

struct Reply {
  unsigned status = 200;
  std::string body;
  std::string etag;
};

Reply ErrorReply(unsigned status, const char* code) {
  return {status,
          fmt::format(
              "<?xml version=\"1.0\"?><Error><Code>{}</Code><Message>as the test wants it</Message></Error>",
              code),
          ""};
}

}  // namespace

struct FakeStore::State {
  asio::io_context context;
  tcp::acceptor acceptor{context, tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
  Mutex mutex;
  Schedule schedule;
  std::map<std::string, std::string> objects;
  std::map<std::string, Upload> uploads;
  uint64_t upload_count = 0, requests = 0, manifest_writes = 0;
  std::set<int> sockets;
  size_t connections = 0;
  CondVar gone;
  std::thread accepting;
  bool ending = false;

  using Request = http::request<http::string_body>;

  Reply PutObject(const Request& request, const std::string& path) {
    const auto found = objects.find(path);
    const bool conditional = request.count("If-None-Match") + request.count("If-Match") > 0;
    if (request.count("If-None-Match") > 0 && found != objects.end())
      return ErrorReply(412, "PreconditionFailed");
    if (request.count("If-Match") > 0) {
      if (found == objects.end()) return ErrorReply(404, "NoSuchKey");
      if (EtagOf(found->second) != request["If-Match"]) return ErrorReply(412, "PreconditionFailed");
    }
    if (conditional) ++manifest_writes;
    objects[path] = request.body();
    return {200, "", EtagOf(request.body())};
  }

  Reply GetObject(const Request& request, const std::string& path) {
    const auto found = objects.find(path);
    if (found == objects.end()) return ErrorReply(404, "NoSuchKey");
    const std::string range(request["Range"]);
    unsigned long long first = 0, last = 0;
    if (std::sscanf(range.c_str(), "bytes=%llu-%llu", &first, &last) != 2) {
      return {200, found->second, EtagOf(found->second)};
    }
    if (first >= found->second.size()) return ErrorReply(416, "InvalidRange");
    // Without an etag, which would be a hash of all of a large object for each of its blocks.
    return {206, found->second.substr(first, last - first + 1), ""};
  }

  // Pages of 3, so that listings of tests go on.
  Reply List(const std::string& bucket, const std::map<std::string, std::string>& query) {
    const std::string prefix = bucket + "/" + query.at("prefix");
    const auto token = query.find("continuation-token");
    auto entry = token == query.end() ? objects.lower_bound(prefix) : objects.upper_bound(token->second);
    std::string body = "<ListBucketResult>", last;
    size_t count = 0;
    for (; entry != objects.end() && entry->first.starts_with(prefix); ++entry) {
      if (count++ == 3) {
        return {200,
                body + "<IsTruncated>true</IsTruncated><NextContinuationToken>" + last +
                    "</NextContinuationToken></ListBucketResult>",
                ""};
      }
      last = entry->first;
      body += fmt::format("<Contents><Key>{}</Key><Size>{}</Size></Contents>",
                          entry->first.substr(bucket.size() + 1), entry->second.size());
    }
    return {200, body + "<IsTruncated>false</IsTruncated></ListBucketResult>", ""};
  }

  Reply ListUploads(const std::string& bucket, const std::map<std::string, std::string>& query) {
    std::string body = "<ListMultipartUploadsResult>";
    for (const auto& [id, upload] : uploads) {
      if (!upload.path.starts_with(bucket + "/" + query.at("prefix"))) continue;
      body += fmt::format("<Upload><Key>{}</Key><UploadId>{}</UploadId></Upload>",
                          upload.path.substr(bucket.size() + 1), id);
    }
    return {200, body + "</ListMultipartUploadsResult>", ""};
  }

  Reply OfUpload(const Request& request, const std::map<std::string, std::string>& query) {
    const std::string id = query.at("uploadId");
    const auto found = uploads.find(id);
    if (found == uploads.end()) return ErrorReply(404, "NoSuchUpload");
    Upload& upload = found->second;
    if (request.method() == http::verb::put) {
      upload.parts[static_cast<uint32_t>(std::stoul(query.at("partNumber")))] = request.body();
      return {200, "", EtagOf(request.body())};
    }
    if (request.method() == http::verb::get) {
      std::string body = "<ListPartsResult>";
      const auto marker = query.find("part-number-marker");
      auto part = upload.parts.upper_bound(
          marker == query.end() ? 0 : static_cast<uint32_t>(std::stoul(marker->second)));
      size_t count = 0;
      uint32_t last = 0;
      for (; part != upload.parts.end() && count < 2; ++part, ++count) {
        std::string etag;
        for (const char c : EtagOf(part->second))
          etag += c == '"' ? std::string("&quot;") : std::string(1, c);
        body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag><Size>{}</Size></Part>",
                            part->first, etag, part->second.size());
        last = part->first;
      }
      const bool more = part != upload.parts.end();
      return {200,
              body + fmt::format("<IsTruncated>{}</IsTruncated><NextPartNumberMarker>{}</"
                                 "NextPartNumberMarker></ListPartsResult>",
                                 more, last),
              ""};
    }
    if (request.method() == http::verb::delete_) {
      uploads.erase(found);
      return {204, "", ""};
    }
    // Complete: the parts that it names, in their order, with their ETags.
    std::string bytes, body = request.body();
    uint32_t number = 0;
    for (size_t at = 0; (at = body.find("<PartNumber>", at)) != std::string::npos; at++) {
      const auto named = static_cast<uint32_t>(std::stoul(body.substr(at + 12)));
      if (named <= number || !upload.parts.contains(named)) return ErrorReply(400, "InvalidPart");
      number = named;
      std::string etag = EtagOf(upload.parts[named]);
      etag = "&quot;" + etag.substr(1, etag.size() - 2) + "&quot;";
      if (body.find(etag, at) == std::string::npos) return ErrorReply(400, "InvalidPart");
      bytes += upload.parts[named];
    }
    objects[upload.path] = bytes;
    uploads.erase(found);
    return {200, "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>", ""};
  }

  Reply Do(const Request& request) {
    const std::string target(request.target());
    const std::string path = Decoded(target.substr(1, std::min(target.find('?'), target.size()) - 1));
    const auto query = QueryOf(target);
    const size_t slash = path.find('/');
    const bool of_bucket = slash == std::string::npos || slash + 1 == path.size();
    if (of_bucket && query.contains("uploads")) return ListUploads(path.substr(0, slash), query);
    if (of_bucket) return List(path.substr(0, slash), query);
    if (query.contains("uploadId")) return OfUpload(request, query);
    if (query.contains("uploads")) {
      const std::string id = "upload/" + std::to_string(++upload_count) + "+=";
      uploads[id].path = path;
      return {
          200,
          "<InitiateMultipartUploadResult><UploadId>" + id + "</UploadId></InitiateMultipartUploadResult>",
          ""};
    }
    switch (request.method()) {
      case http::verb::put:
        return PutObject(request, path);
      case http::verb::get:
        return GetObject(request, path);
      case http::verb::head:
        return GetObject(request, path);
      case http::verb::delete_:
        return objects.erase(path), Reply{204, "", ""};
      default:
        return ErrorReply(405, "MethodNotAllowed");
    }
  }

  void Serve(tcp::socket& socket) {
    beast::flat_buffer buffer;
    beast::error_code error;
    while (true) {
      http::request_parser<http::string_body> parser;
      parser.body_limit(1ULL << 30);
      http::read(socket, buffer, parser, error);
      if (error) return;
      const Request request = parser.release();
      SeenRequest seen{.method = std::string(request.method_string()),
                       .target = std::string(request.target()),
                       .range = std::string(request["Range"]),
                       .authorization = std::string(request["Authorization"])};
      Fate fate;
      Schedule plan;
      {
        MutexLock lock(mutex);
        seen.number = ++requests;
        plan = schedule;
      }
      if (plan) fate = plan(seen);
      if (fate.delay_seconds > 0)
        std::this_thread::sleep_for(std::chrono::duration<double>(fate.delay_seconds));
      Reply reply;
      if (fate.kind == Fate::kSlowDown) reply = ErrorReply(503, "SlowDown");
      if (fate.kind == Fate::kError) reply = ErrorReply(500, "InternalError");
      if (fate.kind != Fate::kSlowDown && fate.kind != Fate::kError && fate.kind != Fate::kHang) {
        MutexLock lock(mutex);
        reply = Do(request);
      }
      if (fate.kind == Fate::kHang || fate.kind == Fate::kHangDone) {
        char byte = 0;
        socket.read_some(asio::buffer(&byte, 1), error);  // until the client closes
        return;
      }
      if (fate.before_answer) fate.before_answer();
      if (fate.kind == Fate::kLost) return;
      if (fate.kind == Fate::kSpoilt && !reply.body.empty()) reply.body[seen.number % reply.body.size()] ^= 4;
      if (!Send(socket, request, reply, fate.kind == Fate::kTorn)) return;
    }
  }

  static bool Send(tcp::socket& socket, const Request& request, const Reply& reply, bool torn) {
    std::string text =
        fmt::format("HTTP/1.1 {} x\r\nContent-Length: {}\r\n", reply.status, reply.body.size());
    if (!reply.etag.empty()) text += "ETag: " + reply.etag + "\r\n";
    text += "\r\n";
    if (request.method() != http::verb::head)
      text += torn ? reply.body.substr(0, reply.body.size() / 2) : reply.body;
    beast::error_code error;
    asio::write(socket, asio::buffer(text), error);
    return !error && !torn;
  }

  void Accept() {
    while (true) {
      beast::error_code error;
      tcp::socket socket(context);
      acceptor.accept(socket, error);
      MutexLock lock(mutex);
      if (error || ending) return;
      socket.set_option(tcp::no_delay(true), error);
      const int descriptor = socket.native_handle();
      sockets.insert(descriptor);
      auto held = std::make_shared<tcp::socket>(std::move(socket));
      ++connections;
      // Detached: thousands of connections come and go in a test, and threads that ended keep their stacks until joined.
      std::thread([this, held, descriptor]() mutable {
        Serve(*held);
        MutexLock guard(mutex);
        sockets.erase(descriptor);
        held.reset();  // it uses the context, which may go with the last connection
        --connections;
        gone.NotifyAll();
      }).detach();
    }
  }
};

FakeStore::FakeStore(Schedule schedule) : state_(std::make_shared<State>()) {
  state_->schedule = std::move(schedule);
  state_->accepting = std::thread([state = state_.get()] { state->Accept(); });
}

FakeStore::~FakeStore() {
  {
    MutexLock lock(state_->mutex);
    state_->ending = true;
    for (const int socket : state_->sockets) shutdown(socket, SHUT_RDWR);
  }
  shutdown(state_->acceptor.native_handle(), SHUT_RDWR);
  state_->accepting.join();
  MutexLock lock(state_->mutex);
  while (state_->connections > 0) state_->gone.Wait(state_->mutex);
}

std::string FakeStore::endpoint() const {
  return fmt::format("http://127.0.0.1:{}", state_->acceptor.local_endpoint().port());
}

ObjectAccess FakeStore::access() const {
  return {.key_id = "key",
          .secret = "secret",
          .token = "",
          .region = "us-east-1",
          .endpoint = endpoint(),
          .path_style = true,
          .ca_bundle = ""};
}

void FakeStore::SetSchedule(Schedule schedule) {
  MutexLock lock(state_->mutex);
  state_->schedule = std::move(schedule);
}

std::map<std::string, std::string> FakeStore::objects() const {
  MutexLock lock(state_->mutex);
  return state_->objects;
}
void FakeStore::PutObject(const std::string& path, const std::string& bytes) {
  MutexLock lock(state_->mutex);
  state_->objects[path] = bytes;
}
void FakeStore::Clear() {
  MutexLock lock(state_->mutex);
  state_->objects.clear();
  state_->uploads.clear();
}
size_t FakeStore::uploads() const {
  MutexLock lock(state_->mutex);
  return state_->uploads.size();
}
uint64_t FakeStore::requests() const {
  MutexLock lock(state_->mutex);
  return state_->requests;
}
uint64_t FakeStore::manifest_writes() const {
  MutexLock lock(state_->mutex);
  return state_->manifest_writes;
}

}  // namespace quarry
