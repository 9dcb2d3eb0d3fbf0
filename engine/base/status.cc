#include "quarry/base/status.h"

#include <cerrno>
#include <system_error>

namespace quarry {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kUsage:
      return "usage";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kAlreadyExists:
      return "already exists";
    case Code::kBusy:
      return "busy";
    case Code::kIoError:
      return "I/O error";
    case Code::kNoSpace:
      return "no space";
    case Code::kOutOfBudget:
      return "out of budget";
    case Code::kCorruption:
      return "corruption";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kCancelled:
      return "cancelled";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown";
}

int ExitCode(Code code) {
  switch (code) {
    case Code::kOk:
      return 0;
    case Code::kUsage:
      return 2;
    case Code::kCorruption:
      return 3;
    default:
      return 1;
  }
}

Status::Status(Code code, std::string message) {
  if (code != Code::kOk) rep_ = std::make_shared<const Rep>(Rep{code, std::move(message)});
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  return fmt::format("{}: {}", CodeName(code()), message());
}

Status ErrnoStatus(int error, std::string_view what, std::string_view path) {
  Code code = Code::kIoError;
  if (error == ENOSPC || error == EDQUOT) code = Code::kNoSpace;
  if (error == ENOENT) code = Code::kNotFound;
  if (error == EEXIST) code = Code::kAlreadyExists;
  return MakeStatus(code, "cannot {} {}: {}", what, path, std::generic_category().message(error));
}

}  // namespace quarry
