// How node hands a sandbox's sockets to the egress gateway: one fixed-size packet asks, one answers, over a SEQPACKET Unix socket
// of one machine (<run>/egress/fds.sock); the descriptors ride along as SCM_RIGHTS. docs/egress.md describes the requests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace space::wire {

inline constexpr std::uint32_t kEgressVersion = 1;
inline constexpr std::size_t kEgressSockets = 3;  // [TCP, UDP DNS, TCP DNS], as WardenClient::egress_sockets gives them

enum class EgressCall : std::uint32_t {
  attach = 1,  // sandbox, tenant, load; fds: the three sockets, bound and not listening. Takes the place of an earlier load's
  detach,      // sandbox, load; of another load than the present one: nothing happens, and that is success
};

// Text fields are filled up with NUL; a full field has none.
struct [[gnu::packed]] EgressRequest {
  std::uint32_t version = kEgressVersion;
  EgressCall call = EgressCall::attach;
  char sandbox[40] = {};  // is_id
  char tenant[64] = {};   // is_tenant; empty in detach
  char load[40] = {};     // is_id: one load of the VM
};

struct [[gnu::packed]] EgressReply {
  std::uint32_t version = kEgressVersion;
  std::uint32_t failed = 0;  // 0, or 1 + ErrorKind
  char code[48] = {};
  char message[320] = {};
  char next[160] = {};
};

Result<EgressRequest> parse_egress_request(std::string_view bytes);  // exact size, this version, known call, well-formed fields
bool is_tenant(std::string_view text);                               // 1 to 64 of [A-Za-z0-9_-]

// The client's end. Blocks, up to 10 s a call; one call at a time (it locks). Not for the event loop.
class EgressClient {
 public:
  virtual ~EgressClient() = default;
  static Result<std::unique_ptr<EgressClient>> connect(const std::string& path);

  // The answer comes when the sockets of an earlier load are closed and these are served. `unavailable` when the gateway died:
  // connect again and attach everything again.
  virtual Result<> attach(const std::string& sandbox, const std::string& tenant, const std::string& load,
                          const std::vector<Fd>& sockets) = 0;
  virtual Result<> detach(const std::string& sandbox, const std::string& load) = 0;
  // Readable with an end of file once the gateway has died; for watching alone.
  virtual const Fd& socket() const = 0;
};

}  // namespace space::wire
