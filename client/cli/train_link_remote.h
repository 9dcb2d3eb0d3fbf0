// `quarry train --task link unix:SOCKET`: what it has of the server: edges, and a place for checkpoints.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "quarry/client/store.h"
#include "quarry/trainer/link_train.h"
#include "remote_states.h"

namespace quarry::cli {

// The edges of a server's database. The server needs memory for one topology at a time, and only meanwhile.
// `inline_only`, here and below: without shared memory.
Result<LinkSource> OpenLinkSource(const std::string& address, bool inline_only);

// The states of a server's runs, in a session of their own that has room for one of this training: so that
// no checkpoint is refused for others who have come in between.
struct LinkStates {
  LinkStates(std::unique_ptr<client::Store> opened, const std::string& address)
      : store(std::move(opened)), states(*store, address) {}
  const std::unique_ptr<client::Store> store;
  RemoteStates states;
};
// kUnsupported for a training whose state is larger than a server takes, kOutOfBudget for one that this
// server has no memory for; both before anything is read, with what would do.
Result<std::unique_ptr<LinkStates>> OpenLinkStates(const std::string& address, bool inline_only,
                                                   const Manifest& manifest, const LinkTrainOptions& train);

}  // namespace quarry::cli
