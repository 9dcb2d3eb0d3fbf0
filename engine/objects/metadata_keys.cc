#include "metadata_keys.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "curl_library.h"
#include "quarry/base/text.h"

namespace quarry {
namespace {

constexpr const char* kContainerHost = "http://169.254.170.2";
constexpr const char* kMachineHost = "http://169.254.169.254";
constexpr size_t kMetadataBytesMax = 64 << 10;

struct MetadataAnswer {
  long status = 0;  // 0: nobody answered
  std::string body;
};

// One request at a time, without a proxy: what is asked is on this machine, or beside it.
class MetadataClient {
 public:
  static Result<MetadataClient> Make(const Environment& environment) {
    MetadataClient client;
    QUARRY_TRY(client.curl_, LoadCurl());
    QUARRY_TRY(client.seconds_, NumberOf(environment, "AWS_METADATA_SERVICE_TIMEOUT"));
    QUARRY_TRY(client.attempts_, NumberOf(environment, "AWS_METADATA_SERVICE_NUM_ATTEMPTS"));
    return client;
  }

  Result<MetadataAnswer> Ask(const char* operation, const std::string& url,
                             const std::vector<std::string>& lines) const {
    MetadataAnswer answer;
    for (uint64_t attempt = 0; attempt < attempts_; attempt++) {
      QUARRY_TRY(answer, AskOnce(operation, url, lines));
      if (answer.status != 0 && answer.status < 500) break;
    }
    return answer;
  }

 private:
  static Result<uint64_t> NumberOf(const Environment& environment, const char* name) {
    const std::string text = environment(name).value_or("1");
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size() && number >= 1 && number <= 100)
      return number;
    return MakeStatus(Code::kInvalidArgument, "{}={}: is a number from 1 to 100", name, Printable(text));
  }

  static size_t OnBody(char* data, size_t size, size_t count, void* self) {
    std::string& body = static_cast<MetadataAnswer*>(self)->body;
    const size_t bytes = size * count;
    if (body.size() + bytes > kMetadataBytesMax) return 0;
    body.append(data, bytes);
    return bytes;
  }

  Result<MetadataAnswer> AskOnce(const char* operation, const std::string& url,
                                 const std::vector<std::string>& lines) const {
    const std::unique_ptr<CURL, void (*)(CURL*)> handle(curl_->curl_easy_init(), curl_->curl_easy_cleanup);
    if (handle == nullptr) return Status(Code::kOutOfBudget, "libcurl found no memory for a request");
    curl_slist* list = nullptr;
    for (const std::string& line : lines) list = curl_->curl_slist_append(list, line.c_str());
    const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, curl_->curl_slist_free_all);
    MetadataAnswer answer;
    const auto set = [&](CURLoption option, auto value) { curl_->easy_setopt(handle.get(), option, value); };
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_CUSTOMREQUEST, operation);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_NOPROXY, "*");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_TIMEOUT, static_cast<long>(seconds_));
    set(CURLOPT_USERAGENT, "quarry");
    set(CURLOPT_HTTPHEADER, headers.get());
    set(CURLOPT_WRITEFUNCTION, &MetadataClient::OnBody);
    set(CURLOPT_WRITEDATA, &answer);
    if (curl_->curl_easy_perform(handle.get()) != CURLE_OK) return MetadataAnswer();
    curl_->easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &answer.status);
    return answer;
  }

  const CurlLibrary* curl_ = nullptr;
  uint64_t seconds_ = 1, attempts_ = 1;
};

Status NoKeys(const std::string& url, const MetadataAnswer& answer) {
  if (answer.status == 0)
    return MakeStatus(Code::kIoError, "{}: no answer, and keys were to come from there", url);
  return MakeStatus(Code::kIoError, "{}: answers {}, and no keys", url, answer.status);
}

// The same form from both. What is in it is a secret, and is never shown.
Status TakeKeysOf(const std::string& url, const MetadataAnswer& answer, ObjectAccess& access) {
  const auto id = JsonText(answer.body, "AccessKeyId"), secret = JsonText(answer.body, "SecretAccessKey");
  const std::string token = JsonText(answer.body, "Token").value_or("");
  // They become parts of headers.
  const auto fits = [](const std::optional<std::string>& text) {
    return text && std::all_of(text->begin(), text->end(), [](char c) { return c > ' ' && c < 0x7f; });
  };
  if (answer.status != 200 || !fits(id) || !fits(secret) || !fits(token)) return NoKeys(url, answer);
  access.key_id = *id;
  access.secret = *secret;
  access.token = token;
  access.expires = 0;
  if (const auto expiration = JsonText(answer.body, "Expiration")) {
    const auto seconds = UtcSeconds(*expiration);
    if (!seconds) {
      return MakeStatus(Code::kIoError, "{}: keys that expire at '{}', which is no time", url,
                        Printable(*expiration));
    }
    access.expires = *seconds;
  }
  return Status::Ok();
}

// Without TLS an authorization, and keys, go to this machine and to the addresses that container services have, alone.
Status CheckFullUrl(const std::string& url) {
  if (url.starts_with("https://")) return Status::Ok();
  for (const std::string_view host :
       {"127.", "localhost", "[::1]", "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"}) {
    if (!url.starts_with("http://") || !url.substr(7).starts_with(host)) continue;
    const std::string_view rest = std::string_view(url).substr(7);
    const std::string_view name =
        rest.substr(0, rest.front() == '[' ? rest.find(']') + 1 : rest.find_first_of(":/"));
    if (name == host) return Status::Ok();
    const bool loopback = host == "127." && name.find_first_not_of("0123456789.") == std::string_view::npos;
    if (loopback) return Status::Ok();
  }
  return MakeStatus(
      Code::kInvalidArgument,
      "AWS_CONTAINER_CREDENTIALS_FULL_URI={}: takes https://, or http:// to this machine or to a container "
      "service's own address",
      Printable(url));
}

Result<std::vector<std::string>> AuthorizationOf(const Environment& environment) {
  std::string token = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN").value_or("");
  if (const auto path = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")) {
    std::ifstream file(*path);
    if (!file) {
      return MakeStatus(Code::kInvalidArgument, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE={}: cannot be read",
                        *path);
    }
    token = {std::istreambuf_iterator<char>(file), {}};
    while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  }
  if (std::any_of(token.begin(), token.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; })) {
    return Status(Code::kInvalidArgument, "the container's authorization token has a control character");
  }
  std::vector<std::string> lines;
  if (!token.empty()) lines.push_back("Authorization: " + token);
  return lines;
}

Result<bool> TakeContainerKeys(const MetadataClient& client, const Environment& environment,
                               ObjectAccess& access) {
  std::string url;
  if (const auto relative = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")) {
    url = kContainerHost + *relative;
  } else if (const auto full = environment("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
    QUARRY_RETURN_IF_ERROR(CheckFullUrl(*full));
    url = *full;
  } else {
    return false;
  }
  QUARRY_TRY(const std::vector<std::string> lines, AuthorizationOf(environment));
  QUARRY_TRY(const MetadataAnswer answer, client.Ask("GET", url, lines));
  QUARRY_RETURN_IF_ERROR(TakeKeysOf(url, answer, access));
  return true;
}

// Whoever does not answer the first question is no such machine; one that does has to have keys, but for a machine without
// a role (404).
Result<bool> TakeMachineKeys(const MetadataClient& client, const Environment& environment,
                             ObjectAccess& access) {
  if (environment("AWS_EC2_METADATA_DISABLED") == "true") return false;
  std::string host = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT").value_or(kMachineHost);
  while (host.ends_with('/')) host.pop_back();
  QUARRY_TRY(const MetadataAnswer token,
             client.Ask("PUT", host + "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds: 21600"}));
  if (token.status != 200) return false;
  const std::vector<std::string> session = {"X-aws-ec2-metadata-token: " + token.body};
  const std::string roles = host + "/latest/meta-data/iam/security-credentials/";
  QUARRY_TRY(const MetadataAnswer role, client.Ask("GET", roles, session));
  if (role.status == 404) return false;
  const std::string name = role.body.substr(0, role.body.find('\n'));
  if (role.status != 200 || name.empty() || name.find_first_of(" /?#\r") != std::string::npos) {
    return NoKeys(roles, role);
  }
  QUARRY_TRY(const MetadataAnswer keys, client.Ask("GET", roles + name, session));
  QUARRY_RETURN_IF_ERROR(TakeKeysOf(roles + name, keys, access));
  return true;
}

}  // namespace

Result<bool> TakeMetadataKeys(const Environment& environment, ObjectAccess& access) {
  QUARRY_TRY(const MetadataClient client, MetadataClient::Make(environment));
  QUARRY_TRY(const bool container, TakeContainerKeys(client, environment, access));
  if (container) return true;
  return TakeMachineKeys(client, environment, access);
}

namespace {

// A text of JSON whose first quote is at `at`; moves `at` behind it. Nothing for one that does not end, or has an escape
// of more than a byte, which keys have not.
std::optional<std::string> TakeJsonText(std::string_view json, size_t& at) {
  std::string text;
  for (++at; at < json.size(); ++at) {
    if (json[at] == '"') return ++at, text;
    if (json[at] != '\\') {
      text += json[at];
      continue;
    }
    if (++at == json.size()) return {};
    constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    const size_t escape = kEscapes.find(json[at]);
    if (escape == std::string_view::npos) return {};
    text += kMeant[escape];
  }
  return {};
}

}  // namespace

std::optional<std::string> JsonText(std::string_view json, std::string_view name) {
  int depth = 0;
  std::optional<std::string> last;  // the text before a colon
  for (size_t at = 0; at < json.size();) {
    const char c = json[at];
    if (c == '"') {
      auto text = TakeJsonText(json, at);
      if (!text) return {};
      const size_t next = std::min(json.find_first_not_of(" \t\r\n", at), json.size());
      if (next < json.size() && json[next] == ':') {
        last = std::move(text);
        at = next + 1;
        continue;
      }
      if (depth == 1 && last == name) return text;
      continue;
    }
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    if (c == ',') last.reset();
    ++at;
  }
  return {};
}

std::optional<int64_t> UtcSeconds(const std::string& text) {
  std::tm time{};
  int end = 0;
  const int read = std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &time.tm_year, &time.tm_mon,
                               &time.tm_mday, &time.tm_hour, &time.tm_min, &time.tm_sec, &end);
  if (read != 6 || time.tm_mon < 1 || time.tm_mon > 12) return {};
  std::string_view rest = std::string_view(text).substr(static_cast<size_t>(end));
  if (rest.starts_with('.'))
    rest.remove_prefix(std::min(rest.find_first_not_of("0123456789", 1), rest.size()));
  if (rest != "Z" && rest != "+00:00") return {};
  time.tm_year -= 1900;
  --time.tm_mon;
  return static_cast<int64_t>(timegm(&time));
}

}  // namespace quarry
