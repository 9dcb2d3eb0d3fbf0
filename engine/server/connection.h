// Connection: the bytes of one client. Cuts frames from what arrives, and sends answers with the descriptors
// that come with them, on a socket that never blocks.
//
//   reading -> congested  answers wait to be sent: nothing more is read, so that a client which does not
//                         read holds what it has asked for and no more [Send]
//   congested -> reading  they are sent [OnWritable]
//   any -> closing        reads no more, sends what is queued, and closes [CloseWhenSent]
//   any -> closed         [Close], the peer's end, an error
//
// All calls and callbacks are on the strand. Asio is used for waiting alone: descriptors travel by sendmsg.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/strand.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/wire.h"
#include "quarry/io/backend.h"

namespace quarry {

using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;

class Connection {
 public:
  // A whole frame on its way out.
  struct Outgoing {
    std::vector<std::byte> bytes;
    std::vector<File> files;                // whose descriptors go with its first byte
    MemoryBudget::Reservation reservation;  // for the bytes, where they are many
  };
  struct Handlers {
    std::function<void(const wire::Frame&)> frame;
    // The peer broke the protocol: nothing more is read; what is sent still goes, and the owner has to close.
    std::function<void(const Status&)> fault;
    std::function<void()> closed;  // once, by Close or by the peer
  };

  // `descriptor`: of a connected socket, which does not block; owned from here on.
  Connection(const Strand& strand, int descriptor, const wire::Limits& limits);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // `owner` keeps the connection, and what the handlers need, alive while it waits.
  void Start(const std::shared_ptr<void>& owner, Handlers handlers);
  // Longer messages are allowed from the next frame on.
  void HandshakeDone(uint32_t message_bytes_max) { decoder_.HandshakeDone(message_bytes_max); }
  void Send(Outgoing frame);  // dropped once closed
  // No frame is taken until Resume has been called as often.
  void Pause() { ++pauses_; }
  void Resume();
  void CloseWhenSent();
  void Close();
  bool open() const { return socket_.is_open(); }
  bool idle() const { return queue_.empty(); }  // all that was sent has gone

 private:
  bool Congested() const;
  void WaitReadable();
  void WaitWritable();
  void OnReadable();
  void OnWritable();
  void TakeFrames();
  void WriteQueued();
  void Fault(const Status& status);

  const wire::Limits limits_;
  boost::asio::local::stream_protocol::socket socket_;
  std::weak_ptr<void> owner_;
  Handlers handlers_;

  wire::FrameDecoder decoder_;
  std::vector<std::byte> received_;
  std::span<const std::byte> unread_;  // the part of received_ that no frame has taken yet
  bool waiting_readable_ = false;
  bool deaf_ = false;  // reads no more
  unsigned pauses_ = 0;

  std::deque<Outgoing> queue_;
  uint64_t queued_bytes_ = 0;
  size_t sent_ = 0;  // bytes of the first frame that are sent
  bool waiting_writable_ = false;
  bool closing_ = false;  // when all is sent
  bool closed_ = false;
};

}  // namespace quarry
