// `quarry put unix:SOCKET`: arrays are read and checked here, and rows committed by the server.
#pragma once

#include "quarry/client/store.h"
#include "quarry/import/put.h"

namespace quarry::cli {

// What the server's database has, and the way to it. The store outlives it.
Result<PutTarget> RemoteTarget(client::Store& store);

}  // namespace quarry::cli
