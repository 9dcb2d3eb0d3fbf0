// client::Open where there is no engine: in libquarry_remote.
#include "quarry/client/store.h"

namespace quarry::client {

Result<std::unique_ptr<Store>> Open(std::string_view address, const OpenOptions& options) {
  if (address.starts_with(kServerScheme)) return OpenRemote(address, options);
  return MakeStatus(Code::kUnsupported,
                    "{}: this program is linked with libquarry_remote, which opens servers (unix:PATH) only; "
                    "databases by their paths are opened by libquarry",
                    address);
}

}  // namespace quarry::client
