// Keys that a machine or a container hands out to what runs on it, as the AWS command line asks for them:
//
//   container  AWS_CONTAINER_CREDENTIALS_RELATIVE_URI (at 169.254.170.2) or AWS_CONTAINER_CREDENTIALS_FULL_URI, with
//              AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE or AWS_CONTAINER_AUTHORIZATION_TOKEN as the authorization
//   machine    instance metadata, version 2: a session's token, then the role's name, then its keys; at
//              AWS_EC2_METADATA_SERVICE_ENDPOINT, else 169.254.169.254; not where AWS_EC2_METADATA_DISABLED is true.
//              AWS_METADATA_SERVICE_TIMEOUT (seconds, 1) and AWS_METADATA_SERVICE_NUM_ATTEMPTS (1)
//
// Private to this room. Thread-safe; each call waits for its answers.
#pragma once

#include <optional>

#include "quarry/base/status.h"
#include "quarry/objects/access.h"

namespace quarry {

// Sets the key pair, its token and when it expires. False where there is nobody to ask: no container, and no machine that
// answers. kInvalidArgument for variables that do not hold; kIoError names who was asked and what came instead of keys.
Result<bool> TakeMetadataKeys(const Environment& environment, ObjectAccess& access);

// The text of a member of the outermost object; nothing where there is none, or it is no text. Pure.
std::optional<std::string> JsonText(std::string_view json, std::string_view name);
// Seconds since 1970 of "2026-11-26T20:00:00Z"; nothing for another form. Pure.
std::optional<int64_t> UtcSeconds(const std::string& text);

}  // namespace quarry
