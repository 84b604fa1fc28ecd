#include "base/unix_socket.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace space {
namespace {

Result<sockaddr_un> address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  if (text.size() >= sizeof address.sun_path)
    return fail(ErrorKind::invalid_argument, "socket_path_too_long",
                fmt::format("{} has more than {} bytes", text, sizeof address.sun_path - 1), "choose a shorter run directory");
  std::memcpy(address.sun_path, text.c_str(), text.size() + 1);
  return address;
}

}  // namespace

Result<std::pair<Fd, Fd>> seqpacket_pair() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return fail_errno(errno, "socketpair");
  return std::pair(Fd(pair[0]), Fd(pair[1]));
}

Result<Fd> listen_unix(const std::filesystem::path& path, int type, unsigned mode, int backlog) {
  TRY(sockaddr_un address, address_of(path));
  Fd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "socket");
  ::unlink(path.c_str());
  // fchmod before bind sets the mode of the file that bind makes, less the umask; so there is no moment with more than `mode`.
  if (::fchmod(fd.get(), mode) != 0) return fail_errno(errno, "fchmod of a socket");
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return fail_errno(errno, fmt::format("bind {}", path.string()));
  if (::chmod(path.c_str(), mode) != 0) return fail_errno(errno, fmt::format("chmod {}", path.string()));
  if (::listen(fd.get(), backlog) != 0) return fail_errno(errno, "listen");
  return fd;
}

Result<Fd> connect_unix(const std::filesystem::path& path, int type) {
  TRY(sockaddr_un address, address_of(path));
  Fd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "socket");
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return fail_errno(errno, fmt::format("connect to {}", path.string()));
  return fd;
}

Result<Fd> accept_unix(const Fd& listener) {
  for (;;) {
    const int fd = ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) return Fd(fd);
    if (errno != EINTR && errno != ECONNABORTED) return fail_errno(errno, "accept");
  }
}

Result<PeerCredentials> peer_credentials(const Fd& socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return fail_errno(errno, "SO_PEERCRED");
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

Result<> send_packet(const Fd& socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  if (fds.size() > kMaxPassedFds) return fail(ErrorKind::internal, "too_many_descriptors", "a packet carries at most 32 descriptors");
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPassedFds)] = {};
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  for (;;) {
    if (::sendmsg(socket.get(), &message, MSG_NOSIGNAL) >= 0) return {};
    if (errno != EINTR) return fail_errno(errno, "send a packet");
  }
}

Result<Packet> receive_packet(const Fd& socket, std::size_t limit) {
  Packet packet;
  packet.bytes.resize(limit);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPassedFds)] = {};
  iovec part{packet.bytes.data(), limit};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n;
  do n = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n < 0) return fail_errno(errno, "receive a packet");
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      packet.fds.emplace_back(fd);
    }
  }
  if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
    return fail(ErrorKind::invalid_argument, "packet_too_large", fmt::format("a packet of more than {} bytes or 32 descriptors", limit));
  if (n == 0 && packet.fds.empty()) return fail(ErrorKind::unavailable, "peer_closed", "the other end closed the socket");
  packet.bytes.resize(static_cast<std::size_t>(n));
  return packet;
}

}  // namespace space
