// Acceptor: connections, and whose they are. A peer is asked of the kernel (SO_PEERCRED) before a byte of it
// is read.
#pragma once

#include <sys/types.h>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "connection.h"
#include "quarry/base/status.h"
#include "session.h"

namespace quarry {

class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  // Takes a connected socket, or says why there is no place for it.
  using OnPeer = std::function<Status(const Session::Peer& peer, int descriptor)>;

  // `listener` is owned from here on. Peers of other users than the own and `allow_uids` are refused.
  Acceptor(boost::asio::io_context& io, int listener, std::vector<uid_t> allow_uids, OnPeer on_peer);
  void Start();
  // Afterwards nobody is accepted any more; returns before that, from any thread. `closed` gets the listener,
  // which is not closed yet.
  void Stop(std::function<void(int listener)> closed);
  // The listener, when no thread runs the loop. REQUIRES: none has.
  int Release();

 private:
  void Wait();
  void TryAcceptAll();
  void AcceptAll();
  void Take(int descriptor);
  void Pause();

  const std::vector<uid_t> allow_uids_;
  const OnPeer on_peer_;
  const Strand strand_;
  boost::asio::local::stream_protocol::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  bool short_of_descriptors_ = false;  // and has said so
};

}  // namespace quarry
