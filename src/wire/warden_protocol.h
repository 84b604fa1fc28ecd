// What node and warden say to each other: one fixed-size packet asks, one answers, over a SEQPACKET Unix socket of one machine
// (so byte order and packing are the compiler's own); descriptors ride along as SCM_RIGHTS. No lengths inside, no nesting, no
// optional parts: a packet of another size, version or with stray bytes is refused whole. docs/warden.md lists the requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "wire/refusals.h"

namespace space::wire {

inline constexpr std::uint32_t kWardenVersion = 2;
inline constexpr std::size_t kWardenArgvBytes = 16384;
inline constexpr std::size_t kWardenMaxArguments = 512;
inline constexpr std::size_t kWardenListEntries = 64;  // VMs in one answer to `list`
inline constexpr int kWardenMaxGuestSockets = 8;
inline constexpr std::size_t kWardenMaxVmmFds = 31;  // beside the log, in one packet

enum class WardenCall : std::uint32_t {
  hello = 1,
  make_net,        // → fds: [TAP]
  egress_sockets,  // → fds: [tcp, udp dns, tcp dns]
  guest_sockets,   // count → fds
  start_vmm,       // build, limits, argv; fds: [log, descriptors 3…] → pid, fds: [pidfd, userfault socket?]
  adopt,           // → pid, fds: [pidfd]
  open_memory,     // → fds: [mem, pagemap, maps]
  freeze_file,     // count: 1 immutable, 0 not; fds: [file]
  set_limits,      // limits
  destroy,
  list,            // vm: the last id already known, or empty → entries, count, more
  set_cpu_weight,  // count: the weight
  kill_vmm,
  refusals,  // → refused
};

// Text fields are filled up with NUL; a full field has none.
struct [[gnu::packed]] WardenRequest {
  std::uint32_t version = kWardenVersion;
  WardenCall call = WardenCall::hello;
  char vm[40] = {};     // is_id, except in hello, freeze_file (empty) and list (may be empty)
  char build[64] = {};  // start_vmm: lower-case hex, or empty for the current one
  std::uint64_t memory_bytes = 0;
  std::uint64_t file_bytes = 0;
  std::uint32_t cpu_percent = 0;
  std::uint32_t tasks = 0;
  std::uint32_t count = 0;
  std::uint32_t argv_count = 0;
  std::uint32_t argv_bytes = 0;      // of `argv`, with the NUL after every argument; the rest is zero
  char argv[kWardenArgvBytes] = {};  // split at NUL, never looked into
};

struct [[gnu::packed]] WardenEntry {
  char vm[40] = {};
  std::int32_t pid = 0;  // 0: no VMM was started
  std::uint32_t alive = 0;
};

struct [[gnu::packed]] WardenReply {
  std::uint32_t version = kWardenVersion;
  std::uint32_t failed = 0;  // 0, or 1 + ErrorKind
  char code[48] = {};
  char message[320] = {};
  char next[160] = {};
  std::int32_t pid = 0;
  std::uint32_t count = 0;  // list: entries used
  std::uint32_t more = 0;   // list: 1 when another request is needed
  std::uint32_t kvm = 0;
  char vmm_build[64] = {};
  char vmm_version[48] = {};
  char limits[16] = {};
  std::uint64_t refused[kRefusals.size()] = {};  // by Refusal
  WardenEntry entries[kWardenListEntries] = {};
};

// Strict readers: exact size, this version, known call, well-formed fields. The result owns its bytes.
Result<WardenRequest> parse_warden_request(std::string_view bytes);
Result<WardenReply> parse_warden_reply(std::string_view bytes);

Result<> put_argv(WardenRequest& request, const std::vector<std::string>& argv);  // argument_list_too_long
std::vector<std::string> split_argv(const WardenRequest& request);                // of a parsed request

void put_error(WardenReply& reply, const Error& error);  // texts are cut to their fields
Error error_of(const WardenReply& reply);                // of a reply whose `failed` is not 0

void put_text(std::span<char> field, std::string_view text);  // cut to the field, filled up with NUL
std::string text_of(std::span<const char> field);             // up to the first NUL

}  // namespace space::wire
