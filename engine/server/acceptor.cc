#include "acceptor.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <utility>

#include "quarry/base/exhaustion.h"
#include "quarry/base/log.h"
#include "quarry/format/wire.h"

namespace quarry {
namespace {

using boost::asio::local::stream_protocol;

constexpr int kAcceptsMax = 16;                   // before others have a turn
constexpr std::chrono::milliseconds kPause{100};  // when the system has no more descriptors

Result<Session::Peer> PeerOf(int descriptor) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return ErrnoStatus(errno, "ask for the user of", "a connection");
  }
  return Session::Peer{credentials.pid, credentials.uid};
}

// As far as the socket takes it: nobody waits for a stranger.
void Refuse(int descriptor, const Status& status) {
  const auto frame = wire::EncodeResponse(0, wire::ToFailure(status));
  if (frame.ok()) {
    static_cast<void>(send(descriptor, frame->data(), frame->size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  close(descriptor);
}

}  // namespace

Acceptor::Acceptor(boost::asio::io_context& io, int listener, std::vector<uid_t> allow_uids, OnPeer on_peer)
    : allow_uids_(std::move(allow_uids)),
      on_peer_(std::move(on_peer)),
      strand_(boost::asio::make_strand(io.get_executor())),
      acceptor_(strand_),
      pause_(strand_) {
  boost::system::error_code ignored;  // the descriptor was just made
  acceptor_.assign(stream_protocol(), listener, ignored);
}

void Acceptor::Start() {
  boost::asio::post(strand_, [self = shared_from_this()] { self->Wait(); });
}

void Acceptor::Stop(std::function<void(int)> closed) {
  boost::asio::post(strand_, [self = shared_from_this(), closed = std::move(closed)] {
    self->pause_.cancel();
    closed(self->Release());
  });
}

int Acceptor::Release() {
  boost::system::error_code error;
  return acceptor_.release(error);
}

void Acceptor::Wait() {
  if (!acceptor_.is_open()) return;
  acceptor_.async_wait(stream_protocol::acceptor::wait_read,
                       [self = shared_from_this()](const boost::system::error_code& error) {
                         if (!error) self->TryAcceptAll();
                       });
}

// Who finds no memory is let go; the others wait.
void Acceptor::TryAcceptAll() {
  const Status status = CatchExhaustion("a connection", [this] {
    AcceptAll();
    return Status::Ok();
  });
  if (!status.ok()) Insist([this] { Pause(); });
}

void Acceptor::AcceptAll() {
  for (int i = 0; i < kAcceptsMax && acceptor_.is_open(); ++i) {
    const int descriptor = accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor >= 0) {
      short_of_descriptors_ = false;
      Take(descriptor);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      return Pause();
    } else if (errno != EINTR && errno != ECONNABORTED) {
      break;
    }
  }
  Wait();
}

// Who waits in the backlog would wake us at once, again and again.
void Acceptor::Pause() {
  if (!std::exchange(short_of_descriptors_, true)) {
    LogWarn("the system has no descriptor for another connection: it waits");
  }
  pause_.expires_after(kPause);
  pause_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->TryAcceptAll();
  });
}

void Acceptor::Take(int descriptor) {
  const Result<Session::Peer> peer = PeerOf(descriptor);
  if (!peer.ok()) return Refuse(descriptor, peer.status());
  if (peer->uid != geteuid() && std::ranges::find(allow_uids_, peer->uid) == allow_uids_.end()) {
    return Refuse(descriptor, MakeStatus(Code::kUsage, "user {} may not use this server", peer->uid));
  }
  const Status status = on_peer_(*peer, descriptor);
  if (!status.ok()) Refuse(descriptor, status);
}

}  // namespace quarry
