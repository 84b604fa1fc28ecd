#include "wire/egress_handover.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <poll.h>
#include <sys/socket.h>

#include "base/encoding.h"
#include "base/random.h"
#include "base/unix_socket.h"
#include "wire/warden_protocol.h"

namespace space::wire {
namespace {

constexpr int kPatienceMs = 10'000;

tl::unexpected<Error> malformed(std::string_view why) {
  return fail(ErrorKind::invalid_argument, "bad_packet", "a packet for the egress gateway " + std::string(why),
              "use the same version of node and egress");
}

// Nothing but NUL behind the text.
bool clean(std::span<const char> field) {
  const auto end = std::find(field.begin(), field.end(), '\0');
  return std::all_of(end, field.end(), [](char c) { return c == '\0'; });
}

class EgressSocket final : public EgressClient {
 public:
  explicit EgressSocket(Fd socket) : socket_(std::move(socket)) {}

  Result<> attach(const std::string& sandbox, const std::string& tenant, const std::string& load, const std::vector<Fd>& sockets) override {
    if (sockets.size() != kEgressSockets) return fail(ErrorKind::internal, "bad_count", "a sandbox has three sockets for the gateway");
    std::vector<int> fds;
    for (const Fd& fd : sockets) fds.push_back(fd.get());
    EgressRequest request;
    put_text(request.sandbox, sandbox);
    put_text(request.tenant, tenant);
    put_text(request.load, load);
    return ask(request, fds);
  }

  Result<> detach(const std::string& sandbox, const std::string& load) override {
    EgressRequest request{.call = EgressCall::detach};
    put_text(request.sandbox, sandbox);
    put_text(request.load, load);
    return ask(request, {});
  }

  const Fd& socket() const override { return socket_; }

 private:
  // Waited for here and not in recvmsg: whoever watches this socket for its end (asio does so by a duplicate) makes it non-blocking for
  // all its descriptors.
  Result<> ready(short events) const {
    pollfd wanted{socket_.get(), events, 0};
    for (;;) {
      const int count = ::poll(&wanted, 1, kPatienceMs);
      if (count > 0) return {};
      if (count == 0) return fail(ErrorKind::unavailable, "egress_slow", "the gateway did not answer in 10 s");
      if (errno != EINTR) return fail_errno(errno, "wait for the gateway");
    }
  }

  Result<> ask(const EgressRequest& request, const std::vector<int>& fds) {
    const std::string_view bytes(reinterpret_cast<const char*>(&request), sizeof request);
    TRY_VOID(parse_egress_request(bytes));
    const std::lock_guard lock(mutex_);
    auto exchange = [&]() -> Result<Packet> {
      TRY_VOID(ready(POLLOUT));
      TRY_VOID(send_packet(socket_, as_bytes(bytes), fds));
      TRY_VOID(ready(POLLIN));
      return receive_packet(socket_, sizeof(EgressReply));
    };
    auto packet = exchange();
    if (!packet)
      return fail(ErrorKind::unavailable, "egress_gone", packet.error().message,
                  "the gateway restarts by itself; hand the sockets over again");
    EgressReply reply;
    if (packet->bytes.size() != sizeof reply) return malformed("has another size");
    std::memcpy(&reply, packet->bytes.data(), sizeof reply);
    if (reply.version != kEgressVersion) return malformed("has another version");
    if (reply.failed == 0) return {};
    const auto last = static_cast<std::uint32_t>(ErrorKind::corrupt);
    const auto kind = static_cast<ErrorKind>(std::min(reply.failed - 1, last));
    return fail(kind, text_of(reply.code), text_of(reply.message), text_of(reply.next));
  }

  Fd socket_;
  std::mutex mutex_;
};

}  // namespace

bool is_tenant(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

Result<EgressRequest> parse_egress_request(std::string_view bytes) {
  EgressRequest request;
  if (bytes.size() != sizeof request) return malformed("has another size");
  std::memcpy(&request, bytes.data(), sizeof request);
  if (request.version != kEgressVersion) return malformed("has another version");
  if (request.call != EgressCall::attach && request.call != EgressCall::detach) return malformed("asks for something unknown");
  if (!clean(request.sandbox) || !clean(request.tenant) || !clean(request.load)) return malformed("has stray bytes");
  if (!is_id(text_of(request.sandbox)) || !is_id(text_of(request.load))) return malformed("names no sandbox or no load");
  const std::string tenant = text_of(request.tenant);
  if (request.call == EgressCall::attach ? !is_tenant(tenant) : !tenant.empty())
    return malformed("names no tenant, or one where none belongs");
  return request;
}

Result<std::unique_ptr<EgressClient>> EgressClient::connect(const std::string& path) {
  TRY(Fd fd, connect_unix(path, SOCK_SEQPACKET));
  return std::make_unique<EgressSocket>(std::move(fd));
}

}  // namespace space::wire
