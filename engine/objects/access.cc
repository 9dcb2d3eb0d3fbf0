#include "quarry/objects/access.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <vector>

#include "escape.h"
#include "metadata_keys.h"

namespace quarry {
namespace {

// Sections of a file of AWS: "[profile x]" with lines "name = value"; indented lines are a map within the name above, as
// "name.inner".
using ConfigSection = std::map<std::string, std::string>;
struct ConfigFile {
  std::string path;
  std::map<std::string, ConfigSection> sections;

  const ConfigSection* Find(const std::string& name) const {
    const auto found = sections.find(name);
    return found == sections.end() ? nullptr : &found->second;
  }
};

std::string_view Stripped(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// A file that is not there is an empty one.
Result<ConfigFile> ReadConfigFile(const std::string& path) {
  ConfigFile config{path, {}};
  std::ifstream file(path);
  ConfigSection* section = nullptr;
  std::string line, outer;
  for (size_t number = 1; std::getline(file, line); number++) {
    const std::string_view text = Stripped(line);
    if (text.empty() || text.front() == '#' || text.front() == ';') continue;
    if (text.front() == '[') {
      const size_t end = text.find(']');
      if (end == std::string_view::npos) {
        return MakeStatus(Code::kInvalidArgument, "{}: line {}: a section without ]: {}", path, number, text);
      }
      section = &config.sections[std::string(Stripped(text.substr(1, end - 1)))];
      continue;
    }
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || section == nullptr) {
      // The line may be of a secret, so it is not shown.
      return MakeStatus(Code::kInvalidArgument, "{}: line {}: neither [section] nor name = value within one",
                        path, number);
    }
    const std::string name(Stripped(text.substr(0, equals)));
    const bool inner = line.front() == ' ' || line.front() == '\t';
    if (!inner) outer = name;
    (*section)[inner ? outer + "." + name : name] = Stripped(text.substr(equals + 1));
  }
  return config;
}

class Resolver {
 public:
  explicit Resolver(const Environment& environment) : environment_(environment) {}

  Status ReadFiles() {
    profile_ = First({"AWS_PROFILE", "AWS_DEFAULT_PROFILE"}).value_or("default");
    const std::string home = environment_("HOME").value_or("");
    QUARRY_TRY(
        credentials_,
        ReadConfigFile(environment_("AWS_SHARED_CREDENTIALS_FILE").value_or(home + "/.aws/credentials")));
    QUARRY_TRY(config_, ReadConfigFile(environment_("AWS_CONFIG_FILE").value_or(home + "/.aws/config")));
    const bool named = First({"AWS_PROFILE", "AWS_DEFAULT_PROFILE"}).has_value();
    if (!named || credentials_.Find(profile_) != nullptr || Profile() != nullptr) return Status::Ok();
    return MakeStatus(Code::kInvalidArgument, "AWS_PROFILE={}: neither {} nor {} has this profile", profile_,
                      credentials_.path, config_.path);
  }

  std::optional<std::string> First(std::initializer_list<const char*> names) const {
    for (const char* const name : names) {
      if (auto value = environment_(name)) return value;
    }
    return {};
  }

  // A setting of the profile, as ~/.aws/config has it.
  std::optional<std::string> Setting(const std::string& name) const { return In(Profile(), name); }

  Status TakeKeys(ObjectAccess& access) const {
    const auto id = environment_("AWS_ACCESS_KEY_ID"), secret = environment_("AWS_SECRET_ACCESS_KEY");
    if (id.has_value() != secret.has_value()) {
      return MakeStatus(Code::kInvalidArgument, "{} is set in the environment, and {} is not",
                        id ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                        id ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
    }
    if (id) {
      access.key_id = *id;
      access.secret = *secret;
      access.token = environment_("AWS_SESSION_TOKEN").value_or("");
      return Status::Ok();
    }
    for (const auto& [file, section] :
         {std::pair{&credentials_, credentials_.Find(profile_)}, std::pair{&config_, Profile()}}) {
      const auto key = In(section, "aws_access_key_id"), hidden = In(section, "aws_secret_access_key");
      if (!key && !hidden) continue;
      if (!key || !hidden) {
        return MakeStatus(Code::kInvalidArgument, "{}: profile {}: no {}", file->path, profile_,
                          key ? "aws_secret_access_key" : "aws_access_key_id");
      }
      access.key_id = *key;
      access.secret = *hidden;
      access.token = In(section, "aws_session_token").value_or("");
      return Status::Ok();
    }
    for (const char* const other : {"sso_session", "sso_start_url", "role_arn", "credential_process",
                                    "web_identity_token_file", "credential_source"}) {
      if (!Setting(other) && !In(credentials_.Find(profile_), other)) continue;
      return MakeStatus(
          Code::kUnsupported,
          "profile {} gets its keys by {}, which Quarry does not ask: let the AWS command line do it "
          "(eval \"$(aws configure export-credentials --profile {} --format env)\")",
          profile_, other, profile_);
    }
    QUARRY_TRY(const bool handed_out, TakeMetadataKeys(environment_, access));
    if (handed_out) {
      access.renew = [environment = environment_, access]() -> Result<ObjectAccess> {
        ObjectAccess next = access;
        QUARRY_TRY(const bool again, TakeMetadataKeys(environment, next));
        if (again) return next;
        return Status(Code::kIoError, "whoever handed out the keys for the object store does not answer");
      };
      return Status::Ok();
    }
    return MakeStatus(
        Code::kNotFound,
        "no credentials for an object store: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the "
        "environment, nor profile {} in {} or {}, nor a container or machine that hands them out",
        profile_, credentials_.path, config_.path);
  }

  // Nothing: AWS's own.
  std::optional<std::string> Endpoint() const {
    if (environment_("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") == "true") return {};
    if (auto url = First({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"})) return url;
    if (Setting("ignore_configured_endpoint_urls") == "true") return {};
    if (const auto services = Setting("services")) {
      if (auto url = In(config_.Find("services " + *services), "s3.endpoint_url")) return url;
    }
    return Setting("endpoint_url");
  }

 private:
  const ConfigSection* Profile() const {
    if (const ConfigSection* const section = config_.Find("profile " + profile_)) return section;
    return profile_ == "default" ? config_.Find("default") : nullptr;
  }
  static std::optional<std::string> In(const ConfigSection* section, const std::string& name) {
    if (section == nullptr) return {};
    const auto found = section->find(name);
    if (found == section->end() || found->second.empty()) return {};
    return found->second;
  }

  const Environment& environment_;
  std::string profile_;
  ConfigFile credentials_, config_;
};

// Characters that belong in no header and no URL's host.
Status CheckLine(std::string_view what, std::string_view value) {
  for (const char c : value) {
    if (c > ' ' && c < 0x7f) continue;
    return MakeStatus(Code::kInvalidArgument,
                      "the {} for the object store has a blank or a control character", what);
  }
  return Status::Ok();
}

Status CheckEndpoint(const std::string& endpoint) {
  const size_t scheme = endpoint.starts_with("https://") ? 8 : endpoint.starts_with("http://") ? 7 : 0;
  if (scheme == 0 || endpoint.size() == scheme ||
      endpoint.find_first_of("/?#@", scheme) != std::string::npos) {
    return MakeStatus(
        Code::kInvalidArgument,
        "{}: no endpoint of an object store: it is https://HOST[:PORT] (or http://, without TLS)", endpoint);
  }
  return CheckLine("endpoint", endpoint);
}

}  // namespace

std::optional<std::string> ProcessEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == 0) return {};
  return value;
}

std::string ObjectAccess::UrlOf(const ObjectPlace& place, std::string_view key) const {
  std::string url = endpoint + (path_style ? "/" + place.bucket : "");
  return url + "/" + PercentEncoded(key, /*keep_slashes=*/true);
}

Result<ObjectAccess> ResolveObjectAccess(const ObjectPlace& place, const Environment& environment) {
  Resolver resolver(environment);
  QUARRY_RETURN_IF_ERROR(resolver.ReadFiles());
  ObjectAccess access;
  QUARRY_RETURN_IF_ERROR(resolver.TakeKeys(access));
  access.region = resolver.First({"AWS_REGION", "AWS_DEFAULT_REGION"})
                      .value_or(resolver.Setting("region").value_or("us-east-1"));
  access.ca_bundle =
      environment("AWS_CA_BUNDLE").value_or(resolver.Setting("ca_bundle").value_or(std::string()));
  for (const auto& [what, value] :
       {std::pair{"access key", &access.key_id}, std::pair{"secret", &access.secret},
        std::pair{"session token", &access.token}, std::pair{"region", &access.region}}) {
    QUARRY_RETURN_IF_ERROR(CheckLine(what, *value));
  }
  if (const auto endpoint = resolver.Endpoint()) {
    access.endpoint = *endpoint;
    while (access.endpoint.ends_with('/')) access.endpoint.pop_back();
    QUARRY_RETURN_IF_ERROR(CheckEndpoint(access.endpoint));
    return access;
  }
  // AWS's certificates cover one label before s3, so a bucket with dots in its name goes into the path.
  const std::string domain = access.region.starts_with("cn-") ? ".amazonaws.com.cn" : ".amazonaws.com";
  access.path_style = place.bucket.find('.') != std::string::npos;
  access.endpoint =
      "https://" + (access.path_style ? "" : place.bucket + ".") + "s3." + access.region + domain;
  return access;
}

}  // namespace quarry
