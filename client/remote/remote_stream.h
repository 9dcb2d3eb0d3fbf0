// A stream of a server. Private to this library.
#pragma once

#include <memory>

#include "link.h"
#include "quarry/client/store.h"

namespace quarry::client {

Result<std::unique_ptr<Stream>> OpenRemoteStream(const std::shared_ptr<Link>& link,
                                                 const wire::OpenStream& request);

}  // namespace quarry::client
