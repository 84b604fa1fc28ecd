#include "agent/old_connections.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/file.h"
#include "wire/agent_protocol.h"

namespace space::agent {
namespace {

constexpr std::size_t kMostTable = 8 << 20;  // some fifty thousand connections
constexpr unsigned kListening = 0x0a;        // TCP_LISTEN

using Address = std::array<unsigned char, 16>;  // IPv4 as ::ffff:a.b.c.d

std::optional<std::uint64_t> hex_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return number;
}

Address mapped(const unsigned char* v4) {
  Address address{};
  address[10] = address[11] = 0xff;
  std::memcpy(address.data() + 12, v4, 4);
  return address;
}

struct End {
  Address address{};
  std::uint16_t port = 0;
};

// "0200000A:C351", or with 32 digits: each 32-bit word of the address as the machine reads it.
std::optional<End> read_end(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon != 8 && colon != 32) return std::nullopt;
  End end;
  unsigned char bytes[16] = {};
  for (std::size_t at = 0; at < colon; at += 8) {
    const auto word = hex_number(text.substr(at, 8));
    if (!word) return std::nullopt;
    const auto value = static_cast<std::uint32_t>(*word);
    std::memcpy(bytes + at / 2, &value, 4);
  }
  if (colon == 8)
    end.address = mapped(bytes);
  else
    std::memcpy(end.address.data(), bytes, 16);
  const auto port = hex_number(text.substr(colon + 1));
  if (!port || *port > 65535) return std::nullopt;
  end.port = static_cast<std::uint16_t>(*port);
  return end;
}

bool is_on_wire(const Address& address) {
  static const std::array<Address, 2> kOurs = [] {
    std::array<Address, 2> ours{};
    unsigned char v4[4] = {};
    (void)::inet_pton(AF_INET, wire::kGuestAddress, v4);
    ours[0] = mapped(v4);
    (void)::inet_pton(AF_INET6, wire::kGuestAddress6, ours[1].data());
    return ours;
  }();
  return std::find(kOurs.begin(), kOurs.end(), address) != kOurs.end();
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (words.size() < 10) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == line.npos) break;
    line.remove_prefix(begin);
    words.push_back(line.substr(0, line.find(' ')));
    line.remove_prefix(words.back().size());
  }
  return words;
}

// "socket:[12345]"
std::uint64_t socket_inode(const char* link) {
  char text[64];
  const ssize_t size = ::readlink(link, text, sizeof text - 1);
  if (size < 10 || std::strncmp(text, "socket:[", 8) != 0) return 0;
  text[size] = '\0';
  return std::strtoull(text + 8, nullptr, 10);
}

// What waits on the socket gets ECONNRESET: a connect to nowhere undoes a connection with a reset (connect(2), AF_UNSPEC).
bool reset(pid_t pid, int number) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return false;
  const Fd socket(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), number, 0)));
  if (!socket) return false;
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;
  return ::connect(socket.get(), &nowhere, sizeof nowhere) == 0 || ::shutdown(socket.get(), SHUT_RDWR) == 0;
}

}  // namespace

std::vector<WireConnection> connections_on_wire(std::string_view table) {
  std::vector<WireConnection> found;
  while (!table.empty()) {
    const std::string_view line = table.substr(0, table.find('\n'));
    table.remove_prefix(std::min(table.size(), line.size() + 1));
    // sl, local, remote, state, queues, timer, retransmits, uid, timeout, inode
    const auto words = words_of(line);
    if (words.size() < 10) continue;
    const auto local = read_end(words[1]), remote = read_end(words[2]);
    const auto state = hex_number(words[3]);
    std::uint64_t inode = 0;
    const auto [end, error] = std::from_chars(words[9].data(), words[9].data() + words[9].size(), inode);
    if (!local || !remote || !state || error != std::errc() || inode == 0 || *state == kListening) continue;
    if (is_on_wire(local->address) && remote->address != local->address) found.push_back({inode, local->port, remote->port});
  }
  return found;
}

std::size_t end_old_connections(std::uint16_t keep_port) {
  std::map<std::uint64_t, bool> wanted;  // by inode; whether it was ended
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const auto text = read_file(table, kMostTable);
    if (!text) continue;
    for (const WireConnection& one : connections_on_wire(*text))
      if (one.local_port != wire::kAgentPort || one.remote_port != keep_port) wanted.emplace(one.inode, false);
  }
  if (wanted.empty()) return 0;
  std::size_t ended = 0;
  const auto processes = list_directory("/proc");
  for (const std::string& process : processes ? *processes : std::vector<std::string>{}) {
    if (process.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string folder = "/proc/" + process + "/fd/";
    const auto numbers = list_directory(folder);
    if (!numbers) continue;  // it has just ended
    for (const std::string& number : *numbers) {
      const auto found = wanted.find(socket_inode((folder + number).c_str()));
      if (found == wanted.end() || found->second) continue;
      found->second = reset(std::atoi(process.c_str()), std::atoi(number.c_str()));
      ended += found->second ? 1 : 0;
    }
    if (ended == wanted.size()) break;
  }
  return ended;
}

}  // namespace space::agent
