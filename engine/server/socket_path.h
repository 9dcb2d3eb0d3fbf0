// The socket in the file system: its folder, and who else is there.
#pragma once

#include <string>

#include "quarry/base/status.h"

namespace quarry {

// A socket that listens at `path`, for the user alone (0600), or, with `others`, for whoever may enter the
// folder; who it is then is asked of each connection.
//
// The folder is made (0700) when there is none. kInvalidArgument for a path that is too long for a socket,
// and for a folder of somebody else's, that others may enter (with `others`: write to), or that lies in one
// where everybody may rename it; root's, where nobody else may write, are taken by all. A socket where
// nobody listens is replaced; kAlreadyExists when somebody does, or what is there is no socket. `database`:
// the folder that this process has locked already, and may have the socket in; kBusy in another's that is
// open.
Result<int> ListenAt(const std::string& path, bool others, const std::string& database);

// Removes the socket, if it is still the one of `descriptor` (-1: of one that is closed), and closes that in
// any case.
void RemoveSocket(const std::string& path, int descriptor, const std::string& database);

}  // namespace quarry
