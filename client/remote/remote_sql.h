// SQL of a server. Private to this library.
#pragma once

#include <memory>

#include "link.h"
#include "quarry/client/sql.h"

namespace quarry::client {

Result<std::unique_ptr<SqlConnection>> OpenRemoteSql(std::shared_ptr<Link> link, const SqlOptions& options);

}  // namespace quarry::client
