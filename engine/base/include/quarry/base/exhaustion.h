// What to say when the system has no more memory or threads, and where exceptions that tell of it end.
//
// Code between the roots does not look for std::bad_alloc: it is left to unwind to the thread's body
// (thread.h), the request of a session, the C entry point or main. Each of these is a root, and makes a
// Status of it.
#pragma once

#include <exception>
#include <functional>
#include <new>
#include <string_view>
#include <type_traits>

#include "quarry/base/status.h"

namespace quarry {

// kOutOfBudget: the system refused memory to `what`.
Status OutOfMemory(std::string_view what);

// kInternal: `what` threw something that nobody expected; a bug, here or in a library.
Status Unexpected(std::string_view what, const std::exception& error);

// What `work` returns (a Status or a Result); of what it throws, OutOfMemory or Unexpected.
template <typename Work>
std::invoke_result_t<Work&> CatchExhaustion(std::string_view what, Work&& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return OutOfMemory(what);
  } catch (const std::exception& error) {
    return Unexpected(what, error);
  }
}

// Calls `work`, again after a pause where it finds no memory, for up to a second; then what it throws passes.
// For telling of an end that others wait for: what was held when memory ran out is free by then. `work` may
// be called again from its beginning.
void Insist(const std::function<void()>& work);

}  // namespace quarry
