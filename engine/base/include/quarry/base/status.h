// Status and Result<T>: how every room reports a fault of the world.
//
// Quarry throws nothing across rooms and aborts for nothing that a user can cause. An operation that can fail
// returns `Status` or `Result<T>`; both are [[nodiscard]]. The message is one sentence for a person: it names
// the file, the place (line, offset, row) and the offending value, and what to do next. Programming errors
// are asserted instead.
//
// Both are values: copyable, movable, owned by whoever holds them, safe to hand between threads.
#pragma once

#include <fmt/format.h>

#include <cassert>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace quarry {

// What went wrong, coarsely enough for a caller to act on. `ExitCode` maps it to the CLI's exit codes.
enum class Code : uint8_t {
  kOk = 0,
  kUsage,            // a wrong flag or argument: exit 2
  kInvalidArgument,  // input data that cannot be accepted: exit 1
  kNotFound,
  kAlreadyExists,
  kBusy,         // held by another process (LOCK)
  kIoError,      // the operating system refused; the message holds errno's text
  kNoSpace,      // ENOSPC or EDQUOT
  kOutOfBudget,  // the declared memory budget cannot hold it; the message names the least that would do
  kCorruption,   // a checksum or a cross-reference does not hold: exit 3
  kUnsupported,  // well-formed, but not by this version
  kCancelled,    // the caller asked to stop
  kInternal,     // a bug that could be reported instead of asserted
};

std::string_view CodeName(Code code);

// 0 for kOk, 2 for kUsage, 3 for kCorruption, 1 for everything else.
int ExitCode(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK; costs one null pointer
  Status(Code code, std::string message);

  static Status Ok() { return Status(); }

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  std::string_view message() const { return rep_ ? std::string_view(rep_->message) : std::string_view(); }

  // "corruption: features/x.qft: page 7: ..." ; "ok" when ok().
  std::string ToString() const;

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;
};

// MakeStatus(Code::kCorruption, "{}: page {}: checksum mismatch", path, page)
template <typename... Args>
Status MakeStatus(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

// The fault of a failed system call on `path`: kNoSpace for ENOSPC and EDQUOT, kNotFound for ENOENT,
// kAlreadyExists for EEXIST, kIoError for the rest. `what` is the verb: "open", "read 512 bytes at 4096 of".
Status ErrnoStatus(int error, std::string_view what, std::string_view path);

// A T, or the Status that tells why there is none (never OK).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}        // NOLINT: implicit by design
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {  // NOLINT
    assert(!std::get<1>(state_).ok() && "a Result needs a value or an error");
  }
  template <typename U>
  requires(std::is_convertible_v<U&&, T> && !std::is_same_v<std::remove_cvref_t<U>, T> &&
           !std::is_same_v<std::remove_cvref_t<U>, Status> && !std::is_same_v<std::remove_cvref_t<U>, Result>)
      Result(U&& value)
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  Status status() const { return ok() ? Status() : std::get<1>(state_); }

  // REQUIRES: ok()
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace quarry

#define QUARRY_CONCAT_INNER(a, b) a##b
#define QUARRY_CONCAT(a, b) QUARRY_CONCAT_INNER(a, b)

// Returns from the calling function when `expr` (a Status) is not OK.
#define QUARRY_RETURN_IF_ERROR(expr) \
  QUARRY_RETURN_IF_ERROR_INNER(QUARRY_CONCAT(quarry_status_, __COUNTER__), expr)
// By counter, not by line: a lambda within `expr` has statuses of its own.
#define QUARRY_RETURN_IF_ERROR_INNER(temporary, expr)                           \
  do {                                                                          \
    if (::quarry::Status temporary = (expr); !temporary.ok()) return temporary; \
  } while (false)

// QUARRY_TRY(auto file, backend.Open(path)); declares `file` from a Result, or returns its Status.
#define QUARRY_TRY(declaration, expr) \
  QUARRY_TRY_INNER(QUARRY_CONCAT(quarry_result_, __COUNTER__), declaration, expr)
#define QUARRY_TRY_INNER(temporary, declaration, expr) \
  auto temporary = (expr);                             \
  if (!temporary.ok()) return temporary.status();      \
  declaration = std::move(temporary).value()
