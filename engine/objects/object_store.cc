#include "quarry/objects/object_store.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "escape.h"
#include "quarry/base/text.h"
#include "transport.h"

namespace quarry {
namespace {

// A number in an element; nothing where there is none, or it is no number.
std::optional<uint64_t> XmlNumber(std::string_view xml, std::string_view name) {
  const auto text = XmlText(xml, name);
  uint64_t number = 0;
  if (!text) return {};
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size()) return {};
  return number;
}

// Completing an upload takes so long that a server may have begun its answer before it fails.
bool IsError(const std::string& text) { return XmlText(text, "Error").has_value(); }

class HttpObjectStore final : public ObjectStore {
 public:
  HttpObjectStore(ObjectPlace place, ObjectAccess access, std::unique_ptr<Transport> transport)
      : place_(std::move(place)), access_(std::move(access)), transport_(std::move(transport)) {}

  const ObjectPlace& place() const override { return place_; }

  void StartGet(ObjectGet get, Done done) override {
    HttpRequest request = GetOf(std::move(get));
    request.done = std::move(done);
    transport_->Start(std::move(request));
  }

  void StartPut(const std::string& key, std::span<const std::byte> body, Done done) override {
    HttpRequest request{.operation = "PUT", .url = UrlOf(key), .body = body};
    request.done = std::move(done);
    transport_->Start(std::move(request));
  }

  void StartPutPart(const std::string& key, const std::string& upload, uint32_t number,
                    std::span<const std::byte> body, Done done) override {
    HttpRequest request{
        .operation = "PUT",
        .url = fmt::format("{}?partNumber={}&uploadId={}", UrlOf(key), number, PercentEncoded(upload)),
        .body = body};
    request.done = std::move(done);
    transport_->Start(std::move(request));
  }

  Status Get(ObjectGet get) override { return transport_->Perform(GetOf(std::move(get))).status(); }

  Result<ObjectAnswer> Put(const std::string& key, std::span<const std::byte> body,
                           const PutCondition& condition) override {
    HttpRequest request{.operation = "PUT", .url = UrlOf(key), .body = body};
    if (condition.absent) request.headers.emplace_back("If-None-Match: *");
    if (!condition.etag.empty()) request.headers.push_back("If-Match: " + condition.etag);
    return transport_->Perform(std::move(request));
  }

  Result<ObjectBytes> GetWhole(const std::string& key, uint64_t bytes_max) override {
    QUARRY_TRY(ObjectAnswer answer,
               transport_->Perform({.operation = "GET", .url = UrlOf(key), .text_bytes_max = bytes_max}));
    const auto bytes = std::as_bytes(std::span(answer.body));
    return ObjectBytes{{bytes.begin(), bytes.end()}, std::move(answer.etag)};
  }

  Result<ObjectAnswer> Head(const std::string& key) override {
    return transport_->Perform({.operation = "HEAD", .url = UrlOf(key)});
  }

  Status Delete(const std::string& key) override {
    const Status deleted = transport_->Perform({.operation = "DELETE", .url = UrlOf(key)}).status();
    return deleted.code() == Code::kNotFound ? Status::Ok() : deleted;
  }

  Result<std::vector<ListedObject>> List(const std::string& key_prefix) override {
    std::vector<ListedObject> listed;
    std::string token;
    do {
      // In the order in which a signature has them.
      const std::string query = (token.empty() ? "" : "continuation-token=" + PercentEncoded(token) + "&") +
                                "list-type=2&prefix=" + PercentEncoded(place_.KeyOf(key_prefix));
      QUARRY_TRY(const ObjectAnswer answer,
                 transport_->Perform({.operation = "GET", .url = BucketUrl() + "?" + query}));
      for (const std::string_view entry : XmlElements(answer.body, "Contents")) {
        const auto key = XmlText(entry, "Key");
        const auto bytes = XmlNumber(entry, "Size");
        if (!key || !bytes || !key->starts_with(place_.prefix + "/")) return Unexpected("list", answer.body);
        listed.push_back({key->substr(place_.prefix.size() + 1), *bytes});
      }
      const bool more = XmlText(answer.body, "IsTruncated") == "true";
      std::string next = more ? XmlText(answer.body, "NextContinuationToken").value_or("") : "";
      if (more && (next.empty() || next == token)) return Unexpected("list", answer.body);
      token = std::move(next);
    } while (!token.empty());
    return listed;
  }

  Result<std::string> CreateUpload(const std::string& key) override {
    QUARRY_TRY(const ObjectAnswer answer,
               transport_->Perform({.operation = "POST", .url = UrlOf(key) + "?uploads="}));
    auto id = XmlText(answer.body, "UploadId");
    if (!id || id->empty()) return Unexpected("begin an upload", answer.body);
    return *std::move(id);
  }

  Result<std::optional<std::string>> FindUpload(const std::string& key) override {
    const std::string whole = place_.KeyOf(key);
    QUARRY_TRY(const ObjectAnswer answer,
               transport_->Perform({.operation = "GET",
                                    .url = BucketUrl() + "?prefix=" + PercentEncoded(whole) + "&uploads="}));
    std::optional<std::string> found;
    for (const std::string_view entry : XmlElements(answer.body, "Upload")) {
      if (XmlText(entry, "Key") == whole) found = XmlText(entry, "UploadId");
    }
    return found;
  }

  Result<std::vector<ObjectPart>> ListParts(const std::string& key, const std::string& upload) override {
    std::vector<ObjectPart> parts;
    uint64_t marker = 0;
    while (true) {
      const std::string query = (marker == 0 ? "" : fmt::format("part-number-marker={}&", marker)) +
                                "uploadId=" + PercentEncoded(upload);
      QUARRY_TRY(const ObjectAnswer answer,
                 transport_->Perform({.operation = "GET", .url = UrlOf(key) + "?" + query}));
      for (const std::string_view entry : XmlElements(answer.body, "Part")) {
        const auto number = XmlNumber(entry, "PartNumber"), bytes = XmlNumber(entry, "Size");
        const auto etag = XmlText(entry, "ETag");
        if (!number || !bytes || !etag) return Unexpected("list parts", answer.body);
        parts.push_back({static_cast<uint32_t>(*number), *bytes, *etag});
      }
      if (XmlText(answer.body, "IsTruncated") != "true") return parts;
      const auto next = XmlNumber(answer.body, "NextPartNumberMarker");
      if (!next || *next <= marker) return Unexpected("list parts", answer.body);
      marker = *next;
    }
  }

  Status CompleteUpload(const std::string& key, const std::string& upload,
                        std::span<const ObjectPart> parts) override {
    std::string body = "<CompleteMultipartUpload>";
    for (const ObjectPart& part : parts) {
      std::string etag;
      for (const char c : part.etag) etag += c == '"' ? std::string("&quot;") : std::string(1, c);
      body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", part.number, etag);
    }
    body += "</CompleteMultipartUpload>";
    return transport_
        ->Perform({.operation = "POST",
                   .url = UrlOf(key) + "?uploadId=" + PercentEncoded(upload),
                   .body = std::as_bytes(std::span(body)),
                   .fails = IsError})
        .status();
  }

  Status AbortUpload(const std::string& key, const std::string& upload) override {
    return transport_
        ->Perform({.operation = "DELETE", .url = UrlOf(key) + "?uploadId=" + PercentEncoded(upload)})
        .status();
  }

  void Cancel() override { transport_->Cancel(); }
  ObjectStatistics statistics() const override { return transport_->statistics(); }

 private:
  std::string UrlOf(const std::string& key) const { return access_.UrlOf(place_, place_.KeyOf(key)); }
  // Without a slash at the end, as the AWS command line asks for lists.
  std::string BucketUrl() const {
    std::string url = access_.UrlOf(place_, "");
    if (access_.path_style) url.pop_back();
    return url;
  }

  HttpRequest GetOf(ObjectGet get) const {
    HttpRequest request{.operation = "GET", .url = UrlOf(get.key)};
    request.into = get.into;
    request.offset = get.offset;
    request.check = std::move(get.check);
    return request;
  }

  Status Unexpected(std::string_view what, const std::string& body) const {
    return MakeStatus(Code::kIoError, "{} ({}): the store's answer to '{}' is none of S3's: {}",
                      place_.address(), access_.endpoint, what,
                      Printable(std::string_view(body).substr(0, 300)));
  }

  const ObjectPlace place_;
  const ObjectAccess access_;
  const std::unique_ptr<Transport> transport_;
};

}  // namespace

Result<std::unique_ptr<ObjectStore>> ObjectStore::Open(const ObjectPlace& place, const ObjectAccess& access,
                                                       MemoryBudget& budget,
                                                       const ObjectStoreOptions& options) {
  QUARRY_TRY(std::unique_ptr<Transport> transport, Transport::Make(access, budget, options));
  return std::unique_ptr<ObjectStore>(std::make_unique<HttpObjectStore>(place, access, std::move(transport)));
}

}  // namespace quarry
