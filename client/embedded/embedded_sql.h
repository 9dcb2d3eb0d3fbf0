// SQL of this process. Private to this library.
#pragma once

#include <memory>

#include "quarry/client/sql.h"
#include "quarry/sql/connection.h"

namespace quarry::client {

std::unique_ptr<SqlConnection> WrapSql(std::unique_ptr<sql::Connection> connection);

}  // namespace quarry::client
