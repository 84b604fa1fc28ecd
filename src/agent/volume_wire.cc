#include "agent/volume_wire.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "agent/fuse_server.h"

namespace space::agent {

Result<std::shared_ptr<VolumeWire>> VolumeWire::take(http::Exchange& exchange, std::string_view header) {
  if (http::wanted_upgrade(exchange) != "fuse") return fail(ErrorKind::invalid_argument, "invalid_query", "this needs an upgrade to fuse");
  TRY(http::Exchange::Detached detached, exchange.detach());
  // Nothing may follow the request before its answer.
  if (!detached.surplus.empty()) return fail(ErrorKind::invalid_argument, "bad_message", "something follows the request");
  const int flags = ::fcntl(detached.socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(detached.socket.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) return fail_errno(errno, "take a socket");
  auto wire = std::make_shared<VolumeWire>(std::move(detached.socket));
  const std::string head = fmt::format("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: fuse\r\n{}\r\n", header);
  if (!wire->send(std::as_bytes(std::span(head)))) return fail(ErrorKind::unavailable, "connection_lost", "the connection ended");
  return wire;
}

bool VolumeWire::fill(std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t n = ::recv(socket_.get(), into.data(), into.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    into = into.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

std::vector<std::byte> VolumeWire::receive(std::size_t least) {
  std::uint32_t length = 0;
  std::vector<std::byte> message(sizeof length);
  if (!fill(message)) return {};
  std::memcpy(&length, message.data(), sizeof length);
  if (length < least || length > kFuseMessage) return {};
  message.resize(length);
  if (!fill(std::span(message).subspan(sizeof length)) || closed_) return {};
  return message;
}

bool VolumeWire::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

void VolumeWire::close() {
  closed_ = true;
  ::shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace space::agent
