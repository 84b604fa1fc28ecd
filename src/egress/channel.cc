#include "egress/channel.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <sys/socket.h>

#include "base/unix_socket.h"

namespace space::egress {
namespace {

constexpr std::size_t kPacketPiece = 48 << 10;  // of a message, in one packet: well below the socket's buffer
constexpr std::size_t kMostFds = 8;

// In front of every packet. The sizes stand in the first one of a message and are 0 in the others.
struct PacketHead {
  std::uint32_t first = 0;
  std::uint32_t json_bytes = 0;
  std::uint32_t secret_bytes = 0;
};

tl::unexpected<Error> gone() { return fail(ErrorKind::unavailable, "peer_closed", "the other end of the gateway is gone"); }
tl::unexpected<Error> malformed(std::string_view why) {
  return fail(ErrorKind::corrupt, "bad_packet", std::string("a message inside the gateway ") + std::string(why));
}

}  // namespace

struct Channel::State : std::enable_shared_from_this<State> {
  State(const asio::any_io_executor& executor, Fd fd) : socket(executor, fd.release()), drained(executor) {}

  struct Packet {
    Secret bytes;
    std::vector<Fd> fds;
  };

  // True while packets may follow.
  bool write_some() {
    while (!queue.empty()) {
      Packet& packet = queue.front();
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostFds)] = {};
      iovec part{packet.bytes.bytes().data(), packet.bytes.bytes().size()};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      if (!packet.fds.empty()) {
        int fds[kMostFds];
        for (std::size_t i = 0; i < packet.fds.size(); ++i) fds[i] = packet.fds[i].get();
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * packet.fds.size());
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * packet.fds.size());
        std::memcpy(CMSG_DATA(header), fds, sizeof(int) * packet.fds.size());
      }
      const ssize_t n = ::sendmsg(socket.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == ENOBUFS)) return true;
      if (n < 0) return shut(), false;
      queued -= packet.bytes.bytes().size();
      queue.pop_front();
    }
    drained.notify_all();
    return true;
  }

  asio::awaitable<void> pump() {
    while (!closed && !queue.empty()) {
      const auto [error] = co_await socket.async_wait(asio::posix::stream_descriptor::wait_write, kAsTuple);
      if (error || !write_some()) break;
    }
    pumping = false;
  }

  void shut() {
    if (std::exchange(closed, true)) return;
    boost::system::error_code ignored;
    socket.close(ignored);
    queue.clear();
    queued = 0;
    drained.notify_all();
  }

  asio::posix::stream_descriptor socket;
  Signal drained;
  std::deque<Packet> queue;
  std::size_t queued = 0;
  bool pumping = false;
  bool closed = false;
};

Result<std::unique_ptr<Channel>> Channel::make(asio::any_io_executor executor, Fd socket) {
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) != 0) return fail_errno(errno, "set up a channel");
  return std::unique_ptr<Channel>(new Channel(std::make_shared<State>(executor, std::move(socket))));
}

Channel::~Channel() { state_->shut(); }
void Channel::close() { state_->shut(); }

bool Channel::send(Message message) {
  State& s = *state_;
  if (s.closed) return false;
  const std::string text = json::serialize(message.body);
  const std::string_view secret = message.secret.view();
  const std::size_t total = text.size() + secret.size();
  if (total > kLongest || message.fds.size() > kMostFds || s.queued + total > kMostQueued) return s.shut(), false;
  std::size_t at = 0;
  do {
    const std::size_t piece = std::min(kPacketPiece, total - at);
    State::Packet packet{Secret(sizeof(PacketHead) + piece), {}};
    PacketHead head;
    if (at == 0) head = {1, static_cast<std::uint32_t>(text.size()), static_cast<std::uint32_t>(secret.size())};
    char* out = reinterpret_cast<char*>(packet.bytes.bytes().data());
    std::memcpy(out, &head, sizeof head);
    out += sizeof head;
    const std::size_t of_text = at < text.size() ? std::min(piece, text.size() - at) : 0;
    std::memcpy(out, text.data() + (of_text > 0 ? at : 0), of_text);
    if (piece > of_text) std::memcpy(out + of_text, secret.data() + (at + of_text - text.size()), piece - of_text);
    if (at == 0) packet.fds = std::move(message.fds);
    at += piece;
    s.queued += packet.bytes.bytes().size();
    s.queue.push_back(std::move(packet));
  } while (at < total);
  if (s.pumping) return true;
  if (!s.write_some()) return false;
  if (!s.queue.empty()) {
    s.pumping = true;
    asio::co_spawn(
        s.socket.get_executor(), [](std::shared_ptr<State> state) -> asio::awaitable<void> { co_await state->pump(); }(state_),
        asio::detached);
  }
  return true;
}

asio::awaitable<void> Channel::flushed() {
  const auto state = state_;
  while (!state->closed && !state->queue.empty()) co_await state->drained.wait();
}

Task<Message> Channel::receive() {
  const auto state = state_;
  Secret buffer(sizeof(PacketHead) + kPacketPiece);
  Message message;
  std::string text;
  Secret secret;
  std::size_t json_bytes = 0, secret_bytes = 0, got = 0;
  for (bool first = true;;) {
    if (state->closed) co_return gone();
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostFds)] = {};
    iovec part{buffer.bytes().data(), buffer.bytes().size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(state->socket.native_handle(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      const auto [error] = co_await state->socket.async_wait(asio::posix::stream_descriptor::wait_read, kAsTuple);
      if (error) co_return gone();
      continue;
    }
    if (n <= 0) co_return gone();
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
        message.fds.emplace_back(fd);
      }
    }
    if (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) co_return malformed("is cut off");
    if (message.fds.size() > kMostFds) co_return malformed("brings too many descriptors");
    const auto size = static_cast<std::size_t>(n);
    PacketHead head;
    if (size < sizeof head) co_return malformed("is too short");
    std::memcpy(&head, buffer.bytes().data(), sizeof head);
    if (head.first != (first ? 1U : 0U)) co_return malformed("is out of order");
    if (first) {
      json_bytes = head.json_bytes;
      secret_bytes = head.secret_bytes;
      if (json_bytes + secret_bytes > kLongest) co_return malformed("is too long");
      text.reserve(json_bytes);
      secret = Secret(secret_bytes);
      first = false;
    }
    std::string_view piece = buffer.view().substr(sizeof head, size - sizeof head);
    if (piece.empty()) co_return malformed("has an empty part");  // with such ones it would never end
    if (piece.size() > json_bytes + secret_bytes - got) co_return malformed("is longer than it says");
    const std::string_view of_text = piece.substr(0, json_bytes - text.size());
    text.append(of_text);
    piece.remove_prefix(of_text.size());
    if (!piece.empty()) std::memcpy(secret.bytes().data() + (got + of_text.size() - json_bytes), piece.data(), piece.size());
    got += of_text.size() + piece.size();
    if (got == json_bytes + secret_bytes) break;
  }
  CO_TRY(message.body, parse_json_object(text, kLongest));
  message.secret = std::move(secret);
  co_return message;
}

}  // namespace space::egress
