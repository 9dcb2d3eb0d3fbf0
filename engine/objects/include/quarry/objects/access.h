// ObjectAccess: how an object store is reached and who asks, resolved as the AWS command line does it.
//
//   what         first of
//   key pair     AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; the profile in
//                AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials); the profile in AWS_CONFIG_FILE (~/.aws/config);
//                those of the container, then of the machine, that this runs in (metadata_keys.h)
//   region       AWS_REGION, AWS_DEFAULT_REGION, the profile's `region`, us-east-1
//   endpoint     AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's service section (services = NAME, in
//                [services NAME] s3 = endpoint_url), the profile's `endpoint_url`, AWS's own for the region;
//                AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true: AWS's own
//   certificates AWS_CA_BUNDLE, the profile's `ca_bundle`, the system's
//
// The profile is AWS_PROFILE, or AWS_DEFAULT_PROFILE, or "default". Sources that ask another service (single sign-on,
// roles to assume, processes) are refused with a sentence that says how to get a key pair of them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "quarry/base/status.h"
#include "quarry/objects/place.h"

namespace quarry {

struct ObjectAccess {
  std::string key_id, secret, token;  // token: of keys that expire, else empty
  std::string region;
  std::string endpoint;    // "https://host:port", without a slash at the end
  bool path_style = true;  // ENDPOINT/BUCKET/KEY; else the endpoint's host has the bucket's name
  std::string ca_bundle;   // file; empty: the system's certificates
  // Keys that are handed out: when they expire (seconds since 1970; 0: never), and how to get the next ones, which is
  // thread-safe and waits.
  int64_t expires = 0;
  std::function<Result<ObjectAccess>()> renew = {};

  std::string UrlOf(const ObjectPlace& place, std::string_view key) const;  // percent-encoded
};

// A variable of the environment, empty ones counting as none.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> ProcessEnvironment(const char* name);

// kInvalidArgument names the file and line, or the variable, that does not hold; kNotFound, where there is no key
// pair, the places that were searched; kIoError, when a container or machine does not hand out those that it has. Reads
// files and, where they have no keys, asks container and machine; thread-safe. `environment` is used by `renew` too.
Result<ObjectAccess> ResolveObjectAccess(const ObjectPlace& place,
                                         const Environment& environment = ProcessEnvironment);

}  // namespace quarry
