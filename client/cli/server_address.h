// What verbs that work on a database and on a server's alike say of the latter.
#pragma once

#include <string_view>

#include "cli.h"
#include "quarry/client/store.h"

namespace quarry::cli {

// What a trainer waits for one answer: planning an epoch of superbatches takes minutes, and the server may be started anew.
inline constexpr double kTrainerTimeoutSeconds = 600;

inline bool IsServerAddress(std::string_view path) { return path.starts_with(client::kServerScheme); }

// kUsage for a server's address, where the verb needs the database for itself.
inline Status CheckNoServer(std::string_view verb, std::string_view address) {
  if (!IsServerAddress(address)) return Status::Ok();
  return MakeStatus(Code::kUsage,
                    "{}: {} is a server's, which has the database open: stop it, and give the "
                    "database's folder",
                    verb, address);
}

inline void AddInlineFlag(CLI::App* verb, bool& inline_only) {
  verb->add_flag("--inline", inline_only,
                 "of a server: everything through its socket, for a client that cannot map its memory");
}

// kUsage for one that was given with a database, which is in this process.
inline Status CheckInlineFlag(bool inline_only, std::string_view path) {
  if (!inline_only || IsServerAddress(path)) return Status::Ok();
  return Status(Code::kUsage, "--inline is of a server's address: unix:PATH");
}

}  // namespace quarry::cli
