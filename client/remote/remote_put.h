// Rows that are put at a server: in one request where the session's memory holds them, else in pieces, which
// are one commit. Private to this library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "link.h"
#include "quarry/client/store.h"

namespace quarry::client {

// `number`: of the client's writes.
Result<uint64_t> RemotePut(Link& link, const wire::Put& request, uint64_t number);
Result<std::unique_ptr<LargePut>> BeginRemotePut(std::shared_ptr<Link> link, uint64_t number,
                                                 const std::optional<wire::PutGraph>& graph);
Result<wire::GraphChanged> RemoteChange(Link& link, const wire::Put& request, uint64_t number);

}  // namespace quarry::client
