// Errors for a system that has no more memory or threads, and the place where exceptions about it end.
//
// Code between the roots does not look for std::bad_alloc: it is left to unwind to the thread's body
// (thread.h), the request of a session, the C entry point or main. Each of these is a root, and turns it into
// a Status.
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

// Returns what `work` returns (a Status or a Result); what it throws becomes OutOfMemory or Unexpected.
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

// Calls `work`, and calls it again after a pause when it finds no memory, for up to a second; then the
// exception passes. For announcing an end that others wait for: what was held when memory ran out is usually
// free by then. `work` must bear being called again from its beginning.
void Insist(const std::function<void()>& work);

}  // namespace quarry
