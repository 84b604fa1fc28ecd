// Unix sockets between our own processes: who is at the other end, and descriptors handed over (unix(7), SCM_RIGHTS).
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace space {

inline constexpr std::size_t kMaxPassedFds = 32;

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

struct Packet {
  std::string bytes;
  std::vector<Fd> fds;
};

Result<std::pair<Fd, Fd>> seqpacket_pair();
// A bound, listening socket at `path` (an old socket there is replaced), with exactly this mode. `type` is SOCK_STREAM or SOCK_SEQPACKET.
Result<Fd> listen_unix(const std::filesystem::path& path, int type, unsigned mode, int backlog = 128);
Result<Fd> connect_unix(const std::filesystem::path& path, int type);
Result<Fd> accept_unix(const Fd& listener);
Result<PeerCredentials> peer_credentials(const Fd& socket);

// One packet with descriptors. Blocks. A packet of more than `limit` bytes, or with cut-off control data, is an error and its
// descriptors are closed; an empty packet without descriptors means that the peer closed (`unavailable`).
Result<> send_packet(const Fd& socket, std::span<const std::byte> bytes, std::span<const int> fds = {});
Result<Packet> receive_packet(const Fd& socket, std::size_t limit);

}  // namespace space
