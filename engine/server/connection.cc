#include "connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "quarry/base/units.h"

namespace quarry {
namespace {

using boost::asio::local::stream_protocol;

constexpr size_t kReceiveBytes = 64 * kKiB;
constexpr uint64_t kQueuedBytesMax = kMiB;  // then the client has to read before it is heard again

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

// Sends a piece of a frame, with its descriptors when it is the first. -1 with errno.
ssize_t SendPiece(int socket, const Connection::Outgoing& frame, size_t from) {
  iovec piece = {const_cast<std::byte*>(frame.bytes.data()) + from, frame.bytes.size() - from};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  constexpr size_t kDescriptorsMax = 16;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kDescriptorsMax)> control{};
  const size_t count = std::min(frame.files.size(), kDescriptorsMax);
  if (from == 0 && count > 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    for (size_t i = 0; i < count; ++i) {
      const int descriptor = frame.files[i].descriptor();
      std::memcpy(CMSG_DATA(header) + i * sizeof(int), &descriptor, sizeof(int));
    }
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

Connection::Connection(const Strand& strand, int descriptor, const wire::Limits& limits)
    : limits_(limits), socket_(strand), decoder_(limits), received_(kReceiveBytes) {
  boost::system::error_code error;
  socket_.assign(stream_protocol(), descriptor, error);
  if (error) ::close(descriptor);
}

Connection::~Connection() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void Connection::Start(const std::shared_ptr<void>& owner, Handlers handlers) {
  owner_ = owner;
  handlers_ = std::move(handlers);
  if (!open()) return Close();  // the event loop has no room for it
  WaitReadable();
}

bool Connection::Congested() const {
  return queue_.size() >= limits_.outstanding_max || queued_bytes_ >= kQueuedBytesMax;
}

void Connection::WaitReadable() {
  if (waiting_readable_ || deaf_ || !open() || Congested()) return;
  waiting_readable_ = true;
  socket_.async_wait(stream_protocol::socket::wait_read,
                     [this, owner = owner_.lock()](const boost::system::error_code& error) {
                       waiting_readable_ = false;
                       if (!error) OnReadable();
                     });
}

void Connection::WaitWritable() {
  if (waiting_writable_ || !open()) return;
  waiting_writable_ = true;
  socket_.async_wait(stream_protocol::socket::wait_write,
                     [this, owner = owner_.lock()](const boost::system::error_code& error) {
                       waiting_writable_ = false;
                       if (!error) OnWritable();
                     });
}

void Connection::OnReadable() {
  if (deaf_ || !open() || !unread_.empty()) return;
  iovec piece = {received_.data(), received_.size()};
  msghdr message{};  // no room for descriptors: the kernel closes those that come, and says so
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  const ssize_t bytes = recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0 && (WouldBlock(errno) || errno == EINTR)) return WaitReadable();
  if (bytes <= 0) return Close();
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return Fault(Status(Code::kUsage, "file descriptors came; no request has any"));
  }
  unread_ = {received_.data(), static_cast<size_t>(bytes)};
  TakeFrames();
}

void Connection::TakeFrames() {
  while (!unread_.empty() && !deaf_ && open() && !Congested() && pauses_ == 0) {
    Result<std::optional<wire::Frame>> frame = decoder_.Next(unread_);
    if (!frame.ok()) return Fault(frame.status());
    if (frame->has_value()) handlers_.frame(**frame);
  }
  if (unread_.empty()) WaitReadable();
}

void Connection::Resume() {
  if (--pauses_ == 0 && open()) TakeFrames();
}

void Connection::Send(Outgoing frame) {
  if (!open() || closing_) return;
  queued_bytes_ += frame.bytes.size();
  queue_.push_back(std::move(frame));
  if (!waiting_writable_) WriteQueued();
}

void Connection::WriteQueued() {
  while (!queue_.empty()) {
    const Outgoing& frame = queue_.front();
    const ssize_t bytes = SendPiece(socket_.native_handle(), frame, sent_);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && WouldBlock(errno)) return WaitWritable();
    if (bytes < 0) return Close();
    sent_ += static_cast<size_t>(bytes);
    if (sent_ < frame.bytes.size()) continue;
    queued_bytes_ -= frame.bytes.size();
    sent_ = 0;
    queue_.pop_front();
  }
  if (closing_) Close();
}

void Connection::OnWritable() {
  if (!open()) return;
  WriteQueued();
  if (open()) TakeFrames();
}

void Connection::CloseWhenSent() {
  deaf_ = true;
  closing_ = true;
  if (queue_.empty()) Close();
}

void Connection::Close() {
  if (std::exchange(closed_, true)) return;
  deaf_ = true;
  boost::system::error_code ignored;
  socket_.close(ignored);
  queue_.clear();
  // Not from within the call that found the peer gone: its caller is in the middle of something.
  boost::asio::post(socket_.get_executor(), [this, owner = owner_.lock()] { handlers_.closed(); });
}

void Connection::Fault(const Status& status) {
  deaf_ = true;
  handlers_.fault(status);
}

}  // namespace quarry
